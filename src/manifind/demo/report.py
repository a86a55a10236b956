"""What the demo measured: as JSON, as text, and as a page that shows by which chains photos were found."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from manifind.demo.scenes import Scenes
from manifind.demo.walkthrough import (
    ALPHA,
    DEFINITION,
    GLOBAL_PARAMETERS,
    PLAIN,
    REGIONAL,
    REGIONAL_PARAMETERS,
    SEARCH,
    DemoResult,
    Example,
    MethodRankings,
    showing,
)
from manifind.index import Index
from manifind.reports.html import render
from manifind.reports.search import chain_pictures, photo_picture, query_picture


def as_json(demo: DemoResult) -> str:
    """Return the figures as JSON."""
    return json.dumps(
        {
            "collection": demo.collection,
            "average_precision": DEFINITION,
            "regional": REGIONAL_PARAMETERS,
            "global": GLOBAL_PARAMETERS,
            "methods": [asdict(method) for method in demo.methods],
            "photos_by_size": demo.photos_by_size,
            "seconds": {name: round(value, 4) for name, value in demo.seconds.items()},
            "examples": [
                {
                    "query": example.query.file,
                    "result": example.scene.file,
                    "plain_rank": example.plain_rank,
                    "regional_rank": example.regional_rank,
                    "chain": example.chain.keys,
                }
                for example in demo.examples
            ],
            "figure": None if demo.figure is None else str(demo.figure),
        },
        indent=1,
    )


def table(demo: DemoResult) -> tuple[list[str], list[list[str]]]:
    """Return a header, and for each method its mAP, its mAP by size and its time; the last row counts photos."""
    sizes = demo.photos_by_size
    rows = [
        [
            method.method,
            f"{method.mAP:.1f}",
            *(f"{method.by_size[size]:.1f}" if size in method.by_size else "" for size in sizes),
            f"{1000 * method.query_seconds:.1f} ms",
        ]
        for method in demo.methods
    ]
    rows.append(["photos", str(sum(sizes.values())), *map(str, sizes.values()), ""])
    return ["method", "mAP", *(size.replace("-", "–") for size in sizes), "a query"], rows


def as_text(demo: DemoResult) -> str:
    """Return the table and what its figures mean, for a terminal."""
    facts = ", ".join(f"{count:,} {name}" for name, count in demo.collection.items())
    header, rows = table(demo)
    seconds = demo.seconds
    lines = [
        f"{name:<20}{mAP:>6}  {''.join(f'{cell:>8}' for cell in cells)}{time:>13}".rstrip()
        for name, mAP, *cells, time in (header, *rows)
    ]
    return "\n".join(
        [
            f"Objects cut from photographs and planted in scenes: {facts}",
            "",
            f"{'':<28}{'by size, % of the photo':>32}",
            *lines,
            "",
            *_notes(demo),
            f"Scenes made in {seconds['scenes']:.0f} s, indexed in {seconds['index']:.0f} s, "
            f"all in {seconds['all']:.0f} s.",
        ]
    )


def _notes(demo: DemoResult) -> list[str]:
    extraction = f"{1000 * demo.seconds['extract_a_query']:.0f} ms"
    return [
        f"mAP in percent, of average precision by the {DEFINITION} rule. By size: photos that show the object at",
        f"another size are ignored. {SEARCH.capitalize()} is regional diffusion with verification and query expansion,",
        f"and its time includes extraction of the query, which takes {extraction}; the other times do not.",
        f"Diffusion with k = {REGIONAL_PARAMETERS['k']} (regional) and {GLOBAL_PARAMETERS['k']} (global), "
        f"query_k = {REGIONAL_PARAMETERS['query_k']},",
        f"alpha = {ALPHA}, chosen to suit so small a collection (0.99 is for thousands of photos).",
    ]


def as_page(index: Index, scenes: Scenes, demo: DemoResult) -> str:
    """Return a page that stands alone: chains, first photos, and the table."""
    (first, mAP, *sizes, time), rows = table(demo)
    examples = [_example(index, scenes, example) for example in demo.examples]
    if examples:
        examples[0]["rankings"] = _first_photos(index, scenes, demo.rankings, demo.examples[0])
    return render(
        "demo.html",
        title="What diffusion finds and similarity loses",
        subtitle=", ".join(f"{count:,} {name}" for name, count in demo.collection.items()),
        photos=len(index),
        examples=examples,
        methods=([first, mAP, *(f"{size} %" for size in sizes), time], rows),
        notes=" ".join(_notes(demo)),
        drawing=None if demo.figure is None else demo.figure.read_bytes(),
    )


def _example(index: Index, scenes: Scenes, example: Example) -> dict[str, Any]:
    """Return how a photo was found: the chain from the query to it."""
    query, scene = example.query, example.scene
    start = query_picture(index, scenes.queries_folder / query.file, None, query.file)
    return {
        "shows": query.shows,
        "before": ordinal(example.plain_rank),
        "after": ordinal(example.regional_rank),
        "photos_of_it": example.n_positives,
        "size": f"{100 * scene.size:.0f} %",
        "hidden": f"{100 * (1 - scene.visible):.0f} %" if scene.visible < 1 else "",
        "chain": chain_pictures(index, start, example.chain),
        "rankings": [],
    }


def _first_photos(
    index: Index, all_scenes: Scenes, rankings: Sequence[MethodRankings], example: Example
) -> list[dict[str, Any]]:
    """Return the first photos for a query by plain similarity and by regional diffusion."""
    truth = {scene.file: scene for scene in all_scenes.truth}
    number = all_scenes.queries.index(example.query)
    rows = []
    for ranked in rankings:
        if ranked.method not in (PLAIN, REGIONAL):
            continue
        images = ranked.rankings[number].images[: example.n_positives].tolist()
        scenes = [truth[index.catalogue[image].key] for image in images]
        right = showing(scenes, example.query.shows)
        pictures = [
            (photo_picture(index, scene.file, scene.box), f"{100 * scene.size:.0f} %")
            if scene in right
            else (photo_picture(index, scene.file, None), "")
            for scene in scenes
        ]
        rows.append({"method": ranked.method, "right": len(right), "pictures": pictures})
    return rows


def ordinal(number: int) -> str:
    """Return a rank as an ordinal number: 1st, 2nd, 3rd, 4th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
