"""The whole thing on photos that come with it: ``manifind demo``.

Scenes are made from photographs (`manifind.demo.scenes`), indexed, and searched for every object in four ways, of which
the truth says how good they are. A page shows photos that plain similarity loses and diffusion finds, and
by which chain.

The neighbours are the paper's: 200 for regions, 50 for whole photos. `ALPHA` is not its 0.99, by which the score
walks a hundred steps on average: a long chain among thousands of photos, but among a few hundred the whole graph, and
there global diffusion falls far behind plain similarity. At 0.8, five steps, it comes out slightly before it. That was
chosen by looking at what the methods make of such scenes; regional diffusion is first with either.
"""

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manifind.baselines import NearestImages, RegionMatch
from manifind.demo.figure1 import figure1
from manifind.demo.scenes import OBJECTS, Query, Scene, Scenes, make_scenes
from manifind.errors import InvalidInput, MissingExtra
from manifind.evaluate import mean_average_precision
from manifind.index import Chain, Index, whole_box
from manifind.index.unfinished import is_index
from manifind.layout import aggregate_one
from manifind.manifold import Manifold
from manifind.pages.answers import chain_pictures, photo_picture, query_picture
from manifind.pages.html import gallery, illustration, page, table
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray, StageProgress

SCENES = 300
ALPHA = 0.8
REGIONAL: dict[str, Any] = {"k": 200, "query_k": 50, "alpha": ALPHA}
GLOBAL: dict[str, Any] = {"k": 50, "query_k": 50, "alpha": ALPHA}
SIZES = ((2, 5), (5, 10), (10, 20), (20, 40))
"""Sizes of an object, in percent of the photo's area, that the table tells apart."""
DEFINITION = "trapezoid"
PLAIN, MATCH, DIFFUSION, REGIONS = "plain similarity", "R-match", "global diffusion", "regional diffusion"
EXAMPLES = 3
"""Photos whose chains the page shows."""


@dataclass(frozen=True)
class Line:
    """How one method did; percentages and seconds."""

    method: str
    mAP: float  # noqa: N815 (the field's word)
    by_size: dict[str, float]
    """mAP of the photos that show the object at a size; those that show it at another are passed over."""
    query_seconds: float


@dataclass(frozen=True)
class Example:
    """A photo that plain similarity loses and regional diffusion finds."""

    query: Query
    scene: Scene
    photos_of_it: int
    plain_rank: int
    regional_rank: int
    chain: Chain


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


class Ranked(NamedTuple):
    """All photos, for each query, by one method."""

    method: str
    rankings: list[Ranking]
    query_seconds: float


def run(out: Path, *, scenes: int = SCENES, progress: StageProgress | None = None) -> Demo:
    """Make the scenes below the folder `out`, index and search them, and write the report there.

    What an earlier run left there is used again where it is the same.
    """
    told = progress or (lambda *_: None)
    start = perf_counter()
    picture, report = _prepared(out)
    made = make_scenes(out / "scenes", scenes=scenes, progress=lambda done, total: told("scenes", done, total))
    ready = perf_counter()
    index = _indexed(out / "scenes.manifind", made, progress)
    indexed = perf_counter()
    queries = [_described(index, made, query) for query in made.queries]
    described = perf_counter()
    found = rankings(index, queries)
    searched = perf_counter()
    examples = telling(index, made, found)
    collection = {
        "photos": len(index),
        "regions": len(index.boxes),
        "objects": len(OBJECTS),
        "queries": len(made.queries),
    }
    counts = {size: len(of_it) for size, of_it in _by_size(made.truth).items()}
    lines = [measured(index, made, one) for one in found]
    seconds = {
        "scenes": ready - start,
        "index": indexed - ready,
        "describe_a_query": (described - indexed) / len(queries),
        "searches": searched - described,
        "all": perf_counter() - start,
    }
    shown = Demo(collection, counts, lines, seconds, examples, report, picture)
    report.write_text(_page(index, made, found, shown), encoding="utf-8")
    return shown


def rankings(index: Index, queries: Sequence[FloatArray]) -> list[Ranked]:
    """Rank all photos for the regions (m, d) of each query, by each method from the simplest to the paper's."""
    manifold = index.manifold
    image_of = manifold.layout_.image_of
    whole = {**GLOBAL, "k": min(GLOBAL["k"], len(index) - 1)}
    methods: list[tuple[str, NearestImages | RegionMatch | Manifold, Sequence[FloatArray]]] = [
        (PLAIN, NearestImages().fit(manifold.vectors_, image_of), queries),
        (MATCH, RegionMatch().fit(manifold.vectors_, image_of), queries),
        (DIFFUSION, Manifold(**whole).fit(manifold.global_vectors_), [aggregate_one(query) for query in queries]),
        (REGIONS, manifold, queries),
    ]
    ranked = []
    for name, method, asked in methods:
        start = perf_counter()
        each = [method.search(query) for query in asked]
        ranked.append(Ranked(name, each, (perf_counter() - start) / len(asked)))
    return ranked


def measured(index: Index, made: Scenes, ranked: Ranked) -> Line:
    """Hold the rankings of a method against the truth."""
    every = {query.shows: _numbers(index, _showing(made.truth, query.shows)) for query in made.queries}
    wanted = [every[query.shows] for query in made.queries]
    by_size = {}
    for size, scenes in _by_size(made.truth).items():
        of_size = [_numbers(index, _showing(scenes, query.shows)) for query in made.queries]
        others = [sorted(set(all_) - set(some)) for all_, some in zip(wanted, of_size, strict=True)]
        if any(of_size):
            by_size[size] = mean_average_precision(ranked.rankings, of_size, others, definition=DEFINITION)
    return Line(
        ranked.method,
        round(100 * mean_average_precision(ranked.rankings, wanted, definition=DEFINITION), 2),
        {size: round(100 * mAP, 2) for size, mAP in by_size.items()},
        round(ranked.query_seconds, 5),
    )


def telling(index: Index, made: Scenes, found: Sequence[Ranked]) -> list[Example]:
    """Choose photos of different objects that plain similarity loses the most and regional diffusion finds.

    Lost is a photo ranked behind as many photos as show the object, and found is one ranked before. Its chain leads
    through other photos, and the object is in all regions on the way.
    """
    plain, regional = (next(one.rankings for one in found if one.method == name) for name in (PLAIN, REGIONS))
    candidates = []
    for number, query in enumerate(made.queries):
        of_it = _showing(made.truth, query.shows)
        before, after = _ranks(plain[number]), _ranks(regional[number])
        for scene, image in zip(of_it, _numbers(index, of_it), strict=True):
            if after[image] <= len(of_it) < before[image]:
                candidates.append((after[image] - before[image], number, scene, len(of_it), before[image]))
    chosen: list[Example] = []
    for gain, number, scene, count, rank in sorted(candidates, key=lambda one: (one[0], one[1], one[2].file)):
        query = made.queries[number]
        if len(chosen) == EXAMPLES:
            break
        if any(one.query.shows == query.shows for one in chosen):
            continue
        (image,) = _numbers(index, [scene])
        hit = index.search(made.queries_folder / query.file, query.box, top=None).of_image(image)
        if hit is None:
            continue
        why = index.explain(hit)
        boxes = {one.file: one.box for one in _showing(made.truth, query.shows)}
        if len(why.keys) > 1 and all(_meets(link.target.box, boxes.get(link.target.key or "")) for link in why.links):
            chosen.append(Example(query, scene, count, rank, rank + gain, why))
    return chosen


# -- on the way -------------------------------------------------------------------------------------------------------


def _prepared(out: Path) -> tuple[Path | None, Path]:
    """Make the folder, see that what will be written can be, and draw the first figure."""
    picture, report = out / "figure1.png", out / "report.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInput(f"--out {out} is a file or lies below one; name a folder.") from error
    for file in (picture, report):
        if file.is_dir():
            raise InvalidInput(f"{file} is a folder; move it away or name another --out.")
    try:
        figure1(picture)
    except MissingExtra:
        return None, report
    return picture, report


def _indexed(path: Path, made: Scenes, progress: StageProgress | None) -> Index:
    if not is_index(path):
        return Index.create(path, made.folder, progress=progress, **REGIONAL)
    index = Index.open(path)
    given = index.info()["manifold"]
    if index.root != made.folder.resolve() or any(given[name] != value for name, value in REGIONAL.items()):
        raise InvalidInput(f"{path} is another index than this demo makes; move it away or name another --out.")
    index.sync(progress=progress)
    return index


def _described(index: Index, made: Scenes, query: Query) -> FloatArray:
    pixels = index.pixels(made.queries_folder / query.file)
    x0, y0, x1, y1 = whole_box(query.box, pixels.shape[1], pixels.shape[0])
    return index.describer.describe(np.ascontiguousarray(pixels[y0:y1, x0:x1])).vectors


def _showing(scenes: Sequence[Scene], name: str) -> list[Scene]:
    return [scene for scene in scenes if scene.shows == name]


def _by_size(scenes: Sequence[Scene]) -> dict[str, list[Scene]]:
    """Return the scenes that show an object by its size; those at the ends of the scale belong to it."""
    edges = [least / 100 for least, _ in SIZES[1:]]
    kinds: dict[str, list[Scene]] = {f"{least}-{most}": [] for least, most in SIZES}
    names = list(kinds)
    for scene in scenes:
        if scene.shows is not None:
            kinds[names[int(np.digitize(scene.size, edges))]].append(scene)
    return kinds


def _meets(region: Box, box: Box | None) -> bool:
    """Say whether a region has half of the object in a box, or the object half of it."""
    if box is None:
        return False
    width, height = (min(region[i + 2], box[i + 2]) - max(region[i], box[i]) for i in (0, 1))
    smaller = min((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (region, box))
    return width > 0 and height > 0 and width * height >= smaller / 2


def _numbers(index: Index, scenes: Sequence[Scene]) -> list[int]:
    records = [index.catalogue.of_key(scene.file) for scene in scenes]
    return [record.number for record in records if record is not None]


def _ranks(ranking: Ranking) -> dict[int, int]:
    return {image: rank for rank, image in enumerate(ranking.images.tolist(), start=1)}


# -- what is shown ----------------------------------------------------------------------------------------------------


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


def _page(index: Index, made: Scenes, found: Sequence[Ranked], demo: Demo) -> str:
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
        right_ones = len(_showing(scenes, query.shows))
        yield (
            f"The first {count} by {ranked.method}: {right_ones} show the {query.shows}",
            f'<div class="small">{gallery(pictures)}</div>',
        )


def _dash(size: str) -> str:
    return size.replace("-", "–")


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
