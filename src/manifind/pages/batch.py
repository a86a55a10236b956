"""What became of many queries, in the shapes that people and programs read: plain data, one table, one page."""

from collections.abc import Iterator, Sequence
from typing import Any

from manifind.index import Index, Outcome
from manifind.pages.answers import COLUMNS, answer_data, escaped, hit_data, hit_picture, query_picture, table_rows
from manifind.pages.html import gallery, page
from manifind.pages.search import BELOW, NEAREST, found_words
from manifind.pages.tables import as_csv_text
from manifind.pages.text import cell


def batch_data(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the answers as JSON has them; a query without an answer has an `error`."""
    return {"queries": [_data(one) for one in outcomes]}


def _data(one: Outcome) -> dict[str, Any]:
    query = {"views": [{"image": str(photo), "box": box} for photo, box in one.asked.views]}
    if one.answer is None:
        return {"name": one.asked.name, "query": query, "error": one.problem}
    return {"name": one.asked.name, **answer_data(query, one.answer)}


def batch_csv(outcomes: Sequence[Outcome]) -> str:
    """Return one table of all results, with the name of the query before each."""
    return as_csv_text(_rows(outcomes))


def _rows(outcomes: Sequence[Outcome]) -> Iterator[list[Any]]:
    yield ["query", *COLUMNS]
    for one in outcomes:
        if one.answer is not None:
            _, *found = table_rows(map(hit_data, one.answer))
            yield from ([cell(one.asked.name), *row] for row in found)


def batch_page(index: Index, outcomes: Sequence[Outcome]) -> str:
    """Return one page: what was found in short, then each query with its photos and those that were found."""
    sections, lines = [], []
    for number, one in enumerate(outcomes, 1):
        words = escaped(one.problem or "" if one.answer is None else found_words(one.answer))
        lines.append(
            f'<li><a href="#query-{number}">{escaped(one.asked.name)}</a> <span class=faint>{words}</span></li>'
        )
        content = f'<div id="query-{number}"></div>'
        if one.answer is not None:
            asked = gallery([query_picture(index, photo, box) for photo, box in one.asked.views])
            content += f"<div class=small>{asked}</div>"
        content += f"<p>{words}</p>"
        if one.answer:
            content += gallery([hit_picture(index, hit) for hit in one.answer], BELOW if one.answer.likely else NEAREST)
        sections.append((one.asked.name, content))
    short = [] if len(outcomes) < 2 else [("In short", f"<ol>{''.join(lines)}</ol>")]
    asked_of = f"{len(outcomes)} queries among {len(index)} photos of {index.root}"
    return page("What manifind found", asked_of, [*short, *sections])
