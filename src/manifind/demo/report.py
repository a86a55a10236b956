"""What came out of the demo: as JSON, as text, and as a page that shows by which chains photos were found."""

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from manifind.demo.methods import ALPHA, DEFINITION, GLOBAL, PLAIN, REGIONAL, REGIONS, Example, Line, Ranked, showing
from manifind.demo.scenes import Query, Scenes
from manifind.index import Index
from manifind.pages.answers import chain_pictures, photo_picture, query_picture
from manifind.pages.html import gallery, illustration, page, table


@dataclass(frozen=True)
class Demo:
    """What came out."""

    collection: dict[str, int]
    photos_of_size: dict[str, int]
    lines: list[Line]
    seconds: dict[str, float]
    examples: list[Example]
    report: Path
    picture: Path | None
    """Figure 1, where matplotlib is there to draw it."""


def as_json(demo: Demo) -> str:
    """Return what came out as JSON."""
    return json.dumps(
        {
            "collection": demo.collection,
            "average_precision": DEFINITION,
            "regional": REGIONAL,
            "global": GLOBAL,
            "methods": [asdict(line) for line in demo.lines],
            "photos_of_size": demo.photos_of_size,
            "seconds": {name: round(value, 4) for name, value in demo.seconds.items()},
            "examples": [
                {
                    "query": one.query.file,
                    "result": one.scene.file,
                    "plain_rank": one.plain_rank,
                    "regional_rank": one.regional_rank,
                    "chain": one.chain.keys,
                }
                for one in demo.examples
            ],
            "report": str(demo.report),
            "picture": None if demo.picture is None else str(demo.picture),
        },
        indent=2,
    )


def as_table(demo: Demo) -> str:
    """Return what came out as text."""
    facts = ", ".join(f"{count:,} {what}" for what, count in demo.collection.items())
    sizes = list(demo.photos_of_size)
    rows = [
        f"{line.method:<20}{line.mAP:6.1f}  "
        + "".join(f"{line.by_size[size]:8.1f}" if size in line.by_size else f"{'':8}" for size in sizes)
        + f"{1000 * line.query_seconds:10.1f} ms"
        for line in demo.lines
    ]
    times = demo.seconds
    return "\n".join(
        [
            f"Objects cut from photographs and planted in scenes: {facts}",
            "",
            f"{'':<20}{'':6}  {'by size, % of the photo':>32}",
            f"{'method':<20}{'mAP':>6}  {''.join(f'{_dash(size):>8}' for size in sizes)}{'a query':>13}",
            *rows,
            f"{'photos':<20}{sum(demo.photos_of_size.values()):6}  "
            + "".join(f"{count:8}" for count in demo.photos_of_size.values()),
            "",
            *_notes(demo),
            f"Scenes made in {times['scenes']:.0f} s, indexed in {times['index']:.0f} s, all in {times['all']:.0f} s.",
            "",
            f"Report: {demo.report}",
        ]
    )


def _notes(demo: Demo) -> list[str]:
    describing = f"{1000 * demo.seconds['describe_a_query']:.0f} ms"
    return [
        f"mAP in percent, of average precision by the {DEFINITION} rule. By size: photos that show the object at",
        f"another size are passed over. Times are without describing the query, which takes {describing}.",
        f"Diffusion with k = {REGIONAL['k']} (regional) and {GLOBAL['k']} (global), query_k = {REGIONAL['query_k']},",
        f"alpha = {ALPHA}, chosen to suit so small a collection (0.99 is for thousands of photos).",
    ]


def as_page(index: Index, made: Scenes, found: Sequence[Ranked], demo: Demo) -> str:
    """Return what came out as a page that stands alone."""
    sections: list[tuple[str, str]] = []
    for number, example in enumerate(demo.examples):
        sections.append(_example(index, made, example))
        if number == 0:
            sections += _first_ones(index, made, found, example.query, example.photos_of_it)
    header = ["method", "mAP", *(f"{_dash(size)} %" for size in demo.photos_of_size), "a query"]
    rows = [
        [
            line.method,
            f"{line.mAP:.1f}",
            *(f"{line.by_size[size]:.1f}" if size in line.by_size else "" for size in demo.photos_of_size),
            f"{1000 * line.query_seconds:.1f} ms",
        ]
        for line in demo.lines
    ]
    rows.append(["photos", str(sum(demo.photos_of_size.values())), *map(str, demo.photos_of_size.values()), ""])
    notes = f"<p class=faint>{html.escape(' '.join(_notes(demo)))}</p>"
    sections.append(("All queries, by the size of the object in the photo", table(header, rows) + notes))
    sections.append(("What was searched", f"<p>{html.escape(' '.join(ABOUT.split()))}</p>"))
    if demo.picture is not None:
        drawn = illustration(demo.picture.read_bytes(), "Contour lines of the score follow the curve of the query.")
        sections.append(("The same in the plane, where it can be seen: the paper's first figure", drawn))
    subtitle = ", ".join(f"{count:,} {what}" for what, count in demo.collection.items())
    return page("What diffusion finds and similarity loses", subtitle, sections)


ABOUT = """Every scene was made from photographs that come with scikit-image and scikit-learn: an object was cut out of
one, turned, tilted, lit otherwise, half hidden every second time, and planted among clutter from the others; a fifth of
the scenes show none. The examples above were chosen because they are telling; the table counts all queries. The scenes
show how the methods differ, not how well they do on photos of your own."""


def _example(index: Index, made: Scenes, example: Example) -> tuple[str, str]:
    """Return how a photo was found: the chain from the query to it."""
    query, scene = example.query, example.scene
    before, after = _nth(example.plain_rank), _nth(example.regional_rank)
    hidden = f" and {100 * (1 - scene.visible):.0f} % of it is hidden" if scene.visible < 1 else ""
    told = (
        f"<p>{example.photos_of_it} of the {len(index)} photos show the {query.shows}. In the one at the end of this "
        f"chain it takes {100 * scene.size:.0f} % of the area{hidden}: plain similarity ranks that photo "
        f"<b>{before}</b>, regional diffusion <b>{after}</b>, by way of the photos between. Each arrow joins two "
        "regions that look alike, outlined.</p>"
    )
    row = chain_pictures(index, query_picture(index, made.queries_folder / query.file, None, query.file), example.chain)
    return f"The {query.shows}: {before} by plain similarity, {after} by regional diffusion", told + row


def _first_ones(
    index: Index, made: Scenes, found: Sequence[Ranked], query: Query, count: int
) -> Iterator[tuple[str, str]]:
    """Return the first photos for a query by plain similarity and by regional diffusion."""
    truth = {scene.file: scene for scene in made.truth}
    number = made.queries.index(query)
    for ranked in found:
        if ranked.method not in (PLAIN, REGIONS):
            continue
        scenes = [truth[index.catalogue[image].key] for image in ranked.rankings[number].images[:count].tolist()]
        pictures = []
        for rank, scene in enumerate(scenes, start=1):
            right = scene.shows == query.shows
            kind, verdict = ("right", f"{100 * scene.size:.0f} %") if right else ("wrong", "not in it")
            caption = f"<b>{rank}</b> <span class={kind}>{verdict}</span>"
            pictures.append(
                photo_picture(index, scene.file, [(scene.box, 1.0)] if right and scene.box else [], caption)
            )
        right_ones = len(showing(scenes, query.shows))
        yield (
            f"The first {count} by {ranked.method}: {right_ones} show the {query.shows}",
            f'<div class="small">{gallery(pictures)}</div>',
        )


def _dash(size: str) -> str:
    return size.replace("-", "–")


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
