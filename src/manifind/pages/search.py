"""The pages that a search and an explanation can be written to."""

from collections.abc import Sequence
from itertools import pairwise

from manifind.index import Answer, Chain, Hit, Index, MatchingPoints, Source, whole_box
from manifind.pages.answers import chain_pictures, hit_picture, query_picture
from manifind.pages.html import gallery, page
from manifind.pages.registration import overlay, side_by_side
from manifind.pages.text import visible

BELOW = "Probably not below here"
NEAREST = "These are merely the nearest"
"""What the rule at the line says; the second where nothing stands above it."""


def search_page(index: Index, views: Sequence[tuple[Source, Sequence[float] | None]], answer: Answer) -> str:
    """Return a page with the query and the photos that were found, those below the line apart."""
    sections = [("Query", gallery([query_picture(index, *view) for view in views]))]
    heading = found_words(answer)
    found = gallery([hit_picture(index, hit) for hit in answer], BELOW if answer.likely else NEAREST)
    sections.append((heading, found if len(answer) else ""))
    return page("What manifind found", f"{answer.method}, among {len(index)} photos of {index.root}", sections)


def found_words(answer: Answer) -> str:
    """Say how many photos were found, and how many of them are likely to show the object."""
    if not answer or answer.likely == 0:
        return "Nothing in this collection matches"
    if answer.likely is None:
        return counted(len(answer), "photo")
    sure = sum(hit.verified is True for hit in answer[: answer.likely])
    verified = f", {sure} of them verified" if sure else ""
    are = "is" if answer.likely == 1 else "are"
    return f"{counted(answer.likely, 'photo')} {are} likely to show it{verified}"


def chain_page(
    index: Index,
    image: Source,
    box: Sequence[float] | None,
    hit: Hit,
    found: Chain,
    points: MatchingPoints | None = None,
) -> str:
    """Return a page with the chain of photos from the query to a result, and the points that match in the two."""
    title = f"Why {visible(hit.key)}?"
    sections = [("The chain that carries most", "<p>No chain of photos leads there from the query.</p>")]
    note = f"rank {hit.rank}, score {hit.score:.4f}"
    if found.links:
        same = sum(a.target.key == b.target.key for a, b in pairwise(found.links))
        note += f", {counted(len(found.links), 'step')}" + (f", {same} of them within a photo" if same else "")
        sections = [(sections[0][0], chain_pictures(index, query_picture(index, image, box), found))]
    if points is not None and points.map is not None:
        pixels, photo = index.pixels(image), index.photo(hit.key).pixels
        part = None if box is None else whole_box(box, *pixels.shape[1::-1])
        sections += [
            (f"{counted(points.inliers, 'point')} match in the same arrangement", side_by_side(pixels, photo, points)),
            ("The query laid on the result", overlay(pixels, part, photo, points)),
        ]
    elif points is not None:
        sections.append(("Geometry", f"<p>{geometry_words(points)}</p>"))
    return page(title, note, sections)


def geometry_words(points: MatchingPoints) -> str:
    """Say what geometry says of two photos."""
    if points.verified:
        return f"{counted(points.inliers, 'point')} of the query were found again in it, in the same arrangement."
    if points.verified is None:
        return "The query has too little texture for geometry to say anything."
    return "Too few points of the query were found again in it, in the same arrangement: reached by likeness alone."


def counted(count: int, what: str) -> str:
    """Count as people do."""
    return f"1 {what}" if count == 1 else f"{count} {what}s"
