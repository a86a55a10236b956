"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.asking.answer import Answer, Hit, Match, Outline
from manifind.index.asking.batch import Asked, Outcome
from manifind.index.asking.evidence import Evidence, evidence
from manifind.index.asking.explain import Chain, Link, Place, explained
from manifind.index.asking.points import MatchingPoints
from manifind.index.asking.query import (
    METHODS,
    QueryRegions,
    RegionShare,
    Search,
    View,
    rank,
    stored_view,
    view,
    whole_box,
)
from manifind.index.asking.repeats import Repeat, Repeats, Sighting
from manifind.index.asking.sources import Source
from manifind.index.index import Index
from manifind.index.making.build import Changes
from manifind.index.making.estimate import Estimate
from manifind.index.making.so_far import SoFar
from manifind.index.sets import FoundSet, FoundSets, Member
from manifind.index.state.generation import Generation
from manifind.index.tending.check import Problem

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
