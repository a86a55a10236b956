"""Results, explanations and photos, ready for JSON: the fields of the response models in `manifind.serve.schemas`."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from manifind.index import Hit, Retrieval, SearchResult, explain_result
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.reports.results import hit_data, links_data, regions_data, result_data
from manifind.serve.schemas import SearchRequest


def search_payload(
    request: SearchRequest, result: SearchResult, record_of: Callable[[AnySnapshot, int], ImageRecord]
) -> dict[str, Any]:
    """Return a search result, all but the times and dates."""
    payload = result_data(query_payload(request), result)
    for one, hit in zip(payload["results"], result, strict=True):
        one.update(photo_payload(record_of(result.retrieval.snapshot, hit.image)))
    return {
        **payload,
        "n_verified": result.n_verified,
        "generation": result.generation,
        "confidence": None if result.confidence is None else asdict(result.confidence),
    }


def query_payload(request: SearchRequest) -> dict[str, Any]:
    """Return what was searched for, as the response repeats it."""
    return {
        "views": [view.model_dump() for view in request.views],
        "negatives": [view.model_dump() for view in request.negatives],
        "vectors": 0 if request.vectors is None else len(request.vectors),
    }


def hit_payload(hit: Hit, record: ImageRecord) -> dict[str, Any]:
    """Return one result."""
    return {**hit_data(hit), **photo_payload(record)}


def explain_payload(retrieval: Retrieval, hit: Hit, record: ImageRecord) -> dict[str, Any]:
    """Return why a photo was found: the chain of photos to it, and what each of its regions contributes."""
    return {
        "rank": hit.rank,
        "score": hit.score,
        "box": hit.box,
        "links": links_data(explain_result(retrieval, record.number)),
        "regions": regions_data(retrieval.region_shares(record.number, None)),
        **photo_payload(record),
    }


def photo_payload(record: ImageRecord) -> dict[str, Any]:
    """Return a photo's key, size and version."""
    return {"key": record.key, "width": record.width, "height": record.height, "version": record.sha256[:12]}
