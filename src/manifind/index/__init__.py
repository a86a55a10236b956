"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.build import Changes
from manifind.index.index import Chain, Generation, Index, Link, Place
from manifind.index.query import METHODS, Hit, Query, RegionShare, Search, View, rank, stored_view, view, whole_box

__all__ = [
    "METHODS",
    "Chain",
    "Changes",
    "Generation",
    "Hit",
    "Index",
    "Link",
    "Place",
    "Query",
    "RegionShare",
    "Search",
    "View",
    "rank",
    "stored_view",
    "view",
    "whole_box",
]
