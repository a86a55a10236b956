"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.answer import Answer, Hit, Match, Outline
from manifind.index.batch import Asked, Outcome
from manifind.index.build import Changes
from manifind.index.check import Problem
from manifind.index.estimate import Estimate
from manifind.index.evidence import Evidence, evidence
from manifind.index.explain import Chain, Link, Place, explained
from manifind.index.generation import Generation
from manifind.index.index import Index
from manifind.index.points import MatchingPoints
from manifind.index.query import METHODS, QueryRegions, RegionShare, Search, View, rank, stored_view, view, whole_box
from manifind.index.repeats import Repeat, Repeats, Sighting
from manifind.index.sets import FoundSet, FoundSets, Member
from manifind.index.so_far import SoFar
from manifind.index.sources import Source

__all__ = [
    "METHODS",
    "Answer",
    "Asked",
    "Chain",
    "Changes",
    "Estimate",
    "Evidence",
    "FoundSet",
    "FoundSets",
    "Generation",
    "Hit",
    "Index",
    "Link",
    "Match",
    "MatchingPoints",
    "Member",
    "Outcome",
    "Outline",
    "Place",
    "Problem",
    "QueryRegions",
    "RegionShare",
    "Repeat",
    "Repeats",
    "Search",
    "Sighting",
    "SoFar",
    "Source",
    "View",
    "evidence",
    "explained",
    "rank",
    "stored_view",
    "view",
    "whole_box",
]
