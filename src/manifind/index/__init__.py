"""A collection of photos kept on disk, brought up to date, searched."""

from manifind.index.build.build import Changes
from manifind.index.build.builder import PartialIndex
from manifind.index.build.estimate import Estimate
from manifind.index.build.plan import PendingChanges
from manifind.index.config import SearchConfig
from manifind.index.index import BuildOptions, Index, SearchOptions
from manifind.index.maintenance.check import Problem
from manifind.index.search.batch import BatchQuery, BatchResult
from manifind.index.search.confidence import Confidence, measure_confidence
from manifind.index.search.explain import Chain, Link, MatchingPoints, Place, explain_result
from manifind.index.search.query import (
    QueryRegions,
    QueryView,
    Source,
    extract_query_view,
    stored_query_view,
    whole_box,
)
from manifind.index.search.repeats import ObjectCluster, ObjectClusters, Occurrence
from manifind.index.search.results import Grade, Hit, Match, SearchResult, Stage
from manifind.index.search.retrieval import METHODS, RegionShare, Retrieval, retrieve
from manifind.index.search.verification import Outline, Verification
from manifind.index.sets import Member, PhotoSet, PhotoSets
from manifind.index.storage.snapshot import Snapshot

__all__ = [
    "METHODS",
    "BatchQuery",
    "BatchResult",
    "BuildOptions",
    "Chain",
    "Changes",
    "Confidence",
    "Estimate",
    "Grade",
    "Hit",
    "Index",
    "Link",
    "Match",
    "MatchingPoints",
    "Member",
    "ObjectCluster",
    "ObjectClusters",
    "Occurrence",
    "Outline",
    "PartialIndex",
    "PendingChanges",
    "PhotoSet",
    "PhotoSets",
    "Place",
    "Problem",
    "QueryRegions",
    "QueryView",
    "RegionShare",
    "Retrieval",
    "SearchConfig",
    "SearchOptions",
    "SearchResult",
    "Snapshot",
    "Source",
    "Stage",
    "Verification",
    "explain_result",
    "extract_query_view",
    "measure_confidence",
    "retrieve",
    "stored_query_view",
    "whole_box",
]
