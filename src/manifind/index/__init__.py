"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.build import Changes
from manifind.index.index import METHODS, Chain, Hit, Index, Link, Place, RegionShare, whole_box

__all__ = ["METHODS", "Chain", "Changes", "Hit", "Index", "Link", "Place", "RegionShare", "whole_box"]
