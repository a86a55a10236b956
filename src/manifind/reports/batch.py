"""What became of many queries, in the shapes that people and programs read: plain data, one table, one page."""

from collections.abc import Iterator, Sequence
from typing import Any

from manifind.index import BatchResult, Index
from manifind.reports.html import render
from manifind.reports.results import COLUMNS, hit_data, hit_pictures, query_picture, result_data, table_rows
from manifind.reports.search import found_words, rule_words
from manifind.reports.tables import as_csv_text
from manifind.reports.text import cell


def batch_data(results: Sequence[BatchResult]) -> dict[str, Any]:
    """Return the results as JSON; a query without a result has an `error`."""
    return {"queries": [_data(one) for one in results]}


def _data(one: BatchResult) -> dict[str, Any]:
    query = {"views": [{"image": str(photo), "box": box} for photo, box in one.query.views]}
    if one.result is None:
        return {"name": one.query.name, "query": query, "error": str(one.error)}
    return {"name": one.query.name, **result_data(query, one.result)}


def batch_csv(results: Sequence[BatchResult]) -> str:
    """Return one table of all results, with the name of the query before each."""
    return as_csv_text(_rows(results))


def _rows(results: Sequence[BatchResult]) -> Iterator[list[Any]]:
    yield ["query", *COLUMNS]
    for one in results:
        if one.result is not None:
            _, *found = table_rows(map(hit_data, one.result))
            yield from ([cell(one.query.name), *row] for row in found)


def batch_page(index: Index, results: Sequence[BatchResult]) -> str:
    """Return one page: what was found in short, then each query with its photos and those that were found."""
    return render(
        "batch.html",
        title="What manifind found",
        subtitle=f"{len(results)} queries among {len(index)} photos of {index.root}",
        searches=[_search(index, one) for one in results],
    )


def _search(index: Index, one: BatchResult) -> dict[str, Any]:
    """Return what the page shows of one query."""
    if one.result is None:
        return {"name": one.query.name, "words": str(one.error), "views": [], "found": []}
    return {
        "name": one.query.name,
        "words": found_words(one.result),
        "views": [query_picture(index, photo, box) for photo, box in one.query.views],
        "found": hit_pictures(index, one.result),
        "rule": rule_words(one.result),
    }
