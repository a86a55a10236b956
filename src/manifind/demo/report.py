"""What came out of the demo: as JSON, as text, and as a page that shows by which chains photos were found."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manifind.demo.methods import ALPHA, DEFINITION, GLOBAL, PLAIN, REGIONAL, REGIONS, Example, Line, Ranked, showing
from manifind.demo.scenes import Scenes
from manifind.index import Index
from manifind.reports.html import render
from manifind.reports.results import chain_pictures, photo_picture, query_picture


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
    extraction = f"{1000 * demo.seconds['extract_a_query']:.0f} ms"
    return [
        f"mAP in percent, of average precision by the {DEFINITION} rule. By size: photos that show the object at",
        f"another size are ignored. Times are without extraction of the query, which takes {extraction}.",
        f"Diffusion with k = {REGIONAL['k']} (regional) and {GLOBAL['k']} (global), query_k = {REGIONAL['query_k']},",
        f"alpha = {ALPHA}, chosen to suit so small a collection (0.99 is for thousands of photos).",
    ]


def as_page(index: Index, made: Scenes, found: Sequence[Ranked], demo: Demo) -> str:
    """Return what came out as a page that stands alone."""
    sizes = demo.photos_of_size
    rows = [
        [
            line.method,
            f"{line.mAP:.1f}",
            *(f"{line.by_size[size]:.1f}" if size in line.by_size else "" for size in sizes),
            f"{1000 * line.query_seconds:.1f} ms",
        ]
        for line in demo.lines
    ]
    rows.append(["photos", str(sum(sizes.values())), *map(str, sizes.values()), ""])
    examples = [_example(index, made, example) for example in demo.examples]
    if examples:
        examples[0]["rankings"] = _first_ones(index, made, found, demo.examples[0])
    return render(
        "demo.html",
        title="What diffusion finds and similarity loses",
        subtitle=", ".join(f"{count:,} {what}" for what, count in demo.collection.items()),
        photos=len(index),
        examples=examples,
        methods=(["method", "mAP", *(f"{_dash(size)} %" for size in sizes), "a query"], rows),
        notes=" ".join(_notes(demo)),
        drawing=None if demo.picture is None else demo.picture.read_bytes(),
    )


def _example(index: Index, made: Scenes, example: Example) -> dict[str, Any]:
    """Return how a photo was found: the chain from the query to it."""
    query, scene = example.query, example.scene
    start = query_picture(index, made.queries_folder / query.file, None, query.file)
    return {
        "shows": query.shows,
        "before": _nth(example.plain_rank),
        "after": _nth(example.regional_rank),
        "photos_of_it": example.photos_of_it,
        "size": f"{100 * scene.size:.0f} %",
        "hidden": f"{100 * (1 - scene.visible):.0f} %" if scene.visible < 1 else "",
        "chain": chain_pictures(index, start, example.chain),
        "rankings": [],
    }


def _first_ones(index: Index, made: Scenes, found: Sequence[Ranked], example: Example) -> list[dict[str, Any]]:
    """Return the first photos for a query by plain similarity and by regional diffusion."""
    query = example.query
    truth = {scene.file: scene for scene in made.truth}
    number = made.queries.index(query)
    rankings = []
    for ranked in found:
        if ranked.method not in (PLAIN, REGIONS):
            continue
        images = ranked.rankings[number].images[: example.photos_of_it].tolist()
        scenes = [truth[index.catalogue[image].key] for image in images]
        pictures = []
        for scene in scenes:
            right = scene.shows == query.shows
            picture = photo_picture(index, scene.file, scene.box if right else None)
            pictures.append((picture, f"{100 * scene.size:.0f} %" if right else ""))
        rankings.append({"method": ranked.method, "right": len(showing(scenes, query.shows)), "pictures": pictures})
    return rankings


def _dash(size: str) -> str:
    return size.replace("-", "–")


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
