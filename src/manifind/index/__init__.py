"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.build import Changes
from manifind.index.check import Problem
from manifind.index.estimate import Estimate
from manifind.index.evidence import Evidence, evidence
from manifind.index.generation import Generation
from manifind.index.index import Chain, Index, Link, Place
from manifind.index.query import METHODS, Hit, Query, RegionShare, Search, View, rank, stored_view, view, whole_box

__all__ = [
    "METHODS",
    "Chain",
    "Changes",
    "Estimate",
    "Evidence",
    "Generation",
    "Hit",
    "Index",
    "Link",
    "Place",
    "Problem",
    "Query",
    "RegionShare",
    "Search",
    "View",
    "evidence",
    "rank",
    "stored_view",
    "view",
    "whole_box",
]
