"""The pages that a search and an explanation can be written to."""

from collections.abc import Sequence
from itertools import pairwise

from manifind.index import Answer, Chain, Hit, Index, Source
from manifind.pages.answers import chain_pictures, hit_picture, query_picture
from manifind.pages.html import gallery, page
from manifind.pages.text import visible


def search_page(index: Index, views: Sequence[tuple[Source, Sequence[float] | None]], answer: Answer) -> str:
    """Return a page with the query and the photos that were found, those below the line apart."""
    sections = [("Query", gallery([query_picture(index, *view) for view in views]))]
    line = len(answer) if answer.likely is None else answer.likely
    found, others = ([hit_picture(index, hit) for hit in some] for some in (answer[:line], answer[line:]))
    heading = f"{len(found)} photos" if answer.likely is None else f"{len(found)} photos are likely to show it"
    sections.append((heading, gallery(found) if found else "<p>Nothing was found.</p>"))
    if others:
        sections.append((f"{len(others)} more, which probably do not", gallery(others)))
    return page("What manifind found", f"{answer.method}, among {len(index)} photos of {index.root}", sections)


def chain_page(index: Index, image: Source, box: Sequence[float] | None, hit: Hit, found: Chain) -> str:
    """Return a page with the chain of photos from the query to a result."""
    title = f"Why {visible(hit.key)}?"
    if not found.links:
        return page(title, "", [("Chain", "<p>No chain of photos leads there from the query.</p>")])
    same = sum(a.target.key == b.target.key for a, b in pairwise(found.links))
    note = f"rank {hit.rank}, score {hit.score:.4f}, {steps(len(found.links))}" + (
        f", {same} of them within a photo" if same else ""
    )
    row = chain_pictures(index, query_picture(index, image, box), found)
    return page(title, note, [("The chain that carries most", row)])


def steps(count: int) -> str:
    """Count steps as people do."""
    return "1 step" if count == 1 else f"{count} steps"
