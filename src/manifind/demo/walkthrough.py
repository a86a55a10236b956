"""The whole thing on photos that come with it: ``manifind demo``.

Scenes are made from photographs (`manifind.demo.scenes`), indexed, and searched for every object: by four rankings
alone, and by a whole search, which verifies the photos of the fourth and expands the query. The truth about the scenes
gives mAP. A page shows photos that plain similarity loses and diffusion finds, and by which chain.

The neighbours are the paper's: 200 for regions, 50 for whole photos. `ALPHA` is not its 0.99, by which the score
walks a hundred steps on average: a long chain among thousands of photos, but among a few hundred the whole graph, and
there global diffusion falls far behind plain similarity. At 0.8, five steps, it comes out slightly before it. That was
chosen by looking at what the methods make of such scenes; regional diffusion is first with either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manifind.baselines import NearestImages, RegionMatch
from manifind.boxes import covered_fraction
from manifind.demo.cutouts import OBJECTS
from manifind.demo.figure1 import figure1
from manifind.demo.scenes import Query, Scene, Scenes, make_scenes
from manifind.errors import InvalidInputError, MissingExtraError
from manifind.evaluation import mean_average_precision
from manifind.groups import aggregate_one
from manifind.index import Chain, Index, whole_box
from manifind.index.storage.layout import is_index
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray, StageProgress

SCENES = 300
INDEX = "scenes.manifind"
"""The folder of the index, in that of the demo."""
ALPHA = 0.8
REGIONAL_PARAMETERS: dict[str, Any] = {"k": 200, "query_k": 50, "alpha": ALPHA}
GLOBAL_PARAMETERS: dict[str, Any] = {"k": 50, "query_k": 50, "alpha": ALPHA}
SIZES = ((2, 5), (5, 10), (10, 20), (20, 40))
"""Sizes of an object, in percent of the photo's area, that the table tells apart."""
DEFINITION = "trapezoid"
PLAIN, MATCH, GLOBAL, REGIONAL = "plain similarity", "R-match", "global diffusion", "regional diffusion"
SEARCH = "a search"
"""Regional diffusion with spatial verification and query expansion: `Index.search` by its defaults."""
MAX_EXAMPLES = 3
"""Photos whose chains the page shows."""


@dataclass(frozen=True)
class MethodResult:
    """mAP of one method in percent, and its seconds."""

    method: str
    mAP: float  # noqa: N815 (the field's word)
    by_size: dict[str, float]
    """mAP of the photos that show the object at a size; those that show it at another are ignored."""
    query_seconds: float


@dataclass(frozen=True)
class Example:
    """A photo that plain similarity loses and regional diffusion finds."""

    query: Query
    scene: Scene
    n_positives: int
    plain_rank: int
    regional_rank: int
    chain: Chain


class MethodRankings(NamedTuple):
    """All photos, ranked for each query by one method."""

    method: str
    rankings: list[Ranking]
    query_seconds: float


@dataclass(frozen=True)
class DemoResult:
    """What `run` measured and wrote."""

    collection: dict[str, int]
    photos_by_size: dict[str, int]
    methods: list[MethodResult]
    rankings: list[MethodRankings]
    seconds: dict[str, float]
    examples: list[Example]
    figure: Path | None
    """Figure 1, where matplotlib is there to draw it."""


def run(
    out: Path, *, scenes: int = SCENES, queries: int | None = None, progress: StageProgress | None = None
) -> tuple[Index, Scenes, DemoResult]:
    """Make scenes below the folder `out`, index them, and search them by every method.

    What an earlier run left there is used again where it is the same.

    Parameters
    ----------
    out : path
        A folder, made where it is not there.
    scenes : int
        How many photos are made.
    queries : int, optional
        How many of the scenes' 24 queries are searched for; all by default.
    progress : callable, optional
        Called with a stage, how much of it is done, and how much there is.
    """
    report = progress or (lambda *_: None)
    times = [perf_counter()]
    figure = _draw_figure(out)
    collection = make_scenes(out / "scenes", scenes=scenes, progress=lambda done, total: report("scenes", done, total))
    chosen = collection.queries[:queries]
    times.append(perf_counter())
    index = _open_index(out / INDEX, collection, progress)
    times.append(perf_counter())
    vectors = [_query_descriptors(index, collection, query) for query in chosen]
    times.append(perf_counter())
    rankings = [*rank_alone(index, vectors), search_whole(index, collection, chosen, report)]
    times.append(perf_counter())
    seconds = dict(zip(("scenes", "index", "extract_a_query", "searches"), np.diff(times).tolist(), strict=True))
    seconds["extract_a_query"] /= len(chosen)
    counts = {"photos": len(index), "regions": len(index.boxes), "objects": len(OBJECTS), "queries": len(chosen)}
    return (
        index,
        collection,
        DemoResult(
            counts,
            {size: len(positives) for size, positives in scenes_by_size(collection.truth).items()},
            [measure(index, collection, ranked) for ranked in rankings],
            rankings,
            {**seconds, "all": perf_counter() - times[0]},
            find_examples(index, collection, rankings),
            figure,
        ),
    )


def _draw_figure(out: Path) -> Path | None:
    """Make the folder and draw the paper's first figure there; None without matplotlib."""
    figure = out / "figure1.png"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInputError(
            f"--out {out} is a file or lies below one; name a folder.", code="output-folder"
        ) from error
    for file in (figure, out / "report.html"):
        if file.is_dir():
            raise InvalidInputError(f"{file} is a folder; move it away or name another --out.", code="output-file")
    try:
        figure1(figure)
    except MissingExtraError:
        return None
    return figure


def _open_index(path: Path, collection: Scenes, progress: StageProgress | None) -> Index:
    """Build the index of the scenes, or bring that of an earlier run up to date."""
    if not is_index(path):
        return Index.create(path, collection.folder, progress=progress, **REGIONAL_PARAMETERS)
    index = Index.open(path)
    stored = index.info()["manifold"]
    if index.root != collection.folder.resolve() or any(stored[name] != v for name, v in REGIONAL_PARAMETERS.items()):
        raise InvalidInputError(
            f"{path} is another index than this demo makes; move it away or name another --out.", code="other-index"
        )
    index.sync(progress=progress)
    return index


def _query_descriptors(index: Index, collection: Scenes, query: Query) -> FloatArray:
    pixels = index.pixels(collection.queries_folder / query.file)
    x0, y0, x1, y1 = whole_box(query.box, pixels.shape[1], pixels.shape[0])
    return index.extractor.extract(np.ascontiguousarray(pixels[y0:y1, x0:x1])).vectors


# -- rankings ----------------------------------------------------------------------------------------------------------


def rank_alone(index: Index, queries: Sequence[FloatArray]) -> list[MethodRankings]:
    """Rank all photos for the regions (m, d) of each query, by each method from the simplest to the paper's."""
    manifold = index.manifold
    image_of = manifold.layout_.image_of
    parameters = {**GLOBAL_PARAMETERS, "k": min(GLOBAL_PARAMETERS["k"], len(index) - 1)}
    whole = Manifold(**parameters).fit(manifold.global_vectors_)
    methods: list[tuple[str, NearestImages | RegionMatch | Manifold, Sequence[FloatArray]]] = [
        (PLAIN, NearestImages().fit(manifold.vectors_, image_of), queries),
        (MATCH, RegionMatch().fit(manifold.vectors_, image_of), queries),
        (GLOBAL, whole, [aggregate_one(query) for query in queries]),
        (REGIONAL, manifold, queries),
    ]
    ranked = []
    for name, method, vectors in methods:
        start = perf_counter()
        rankings = [method.search(query) for query in vectors]
        ranked.append(MethodRankings(name, rankings, (perf_counter() - start) / len(vectors)))
    return ranked


def search_whole(index: Index, collection: Scenes, queries: Sequence[Query], progress: StageProgress) -> MethodRankings:
    """Search the index for each query as its users do: extract, retrieve, verify, expand the query, verify again."""
    start, rankings = perf_counter(), []
    for number, query in enumerate(queries, 1):
        result = index.search(collection.queries_folder / query.file, query.box, top=None)
        rankings.append(Ranking(result.images, result.scores))
        progress("searches", number, len(queries))
    return MethodRankings(SEARCH, rankings, (perf_counter() - start) / len(queries))


# -- what came of them ------------------------------------------------------------------------------------------------


def measure(index: Index, collection: Scenes, ranked: MethodRankings) -> MethodResult:
    """Return mAP of the rankings of one method, for all positives and by the size of the object."""
    queries = collection.queries[: len(ranked.rankings)]
    positives = [_image_numbers(index, showing(collection.truth, query.shows)) for query in queries]
    by_size = {}
    for size, scenes in scenes_by_size(collection.truth).items():
        of_size = [_image_numbers(index, showing(scenes, query.shows)) for query in queries]
        junk = [sorted(set(all_) - set(some)) for all_, some in zip(positives, of_size, strict=True)]
        if any(of_size):
            mAP = mean_average_precision(ranked.rankings, of_size, junk, definition=DEFINITION)
            by_size[size] = round(100 * mAP, 2)
    mAP = mean_average_precision(ranked.rankings, positives, definition=DEFINITION)
    return MethodResult(ranked.method, round(100 * mAP, 2), by_size, round(ranked.query_seconds, 5))


def find_examples(index: Index, collection: Scenes, ranked: Sequence[MethodRankings]) -> list[Example]:
    """Choose photos of different objects that plain similarity loses the most and regional diffusion finds.

    Lost is a photo ranked behind as many photos as show the object, and found is one ranked before. Its chain leads
    through other photos, and the object is in all regions on the way.
    """
    rankings = {method.method: method.rankings for method in ranked}
    candidates = []
    for number, (plain, regional) in enumerate(zip(rankings[PLAIN], rankings[REGIONAL], strict=True)):
        positives = showing(collection.truth, collection.queries[number].shows)
        before, after = _ranks(plain), _ranks(regional)
        for scene, image in zip(positives, _image_numbers(index, positives), strict=True):
            if after[image] <= len(positives) < before[image]:
                candidates.append((after[image] - before[image], number, scene.file, image))
    examples: list[Example] = []
    for gain, number, file, image in sorted(candidates):
        query = collection.queries[number]
        if len(examples) == MAX_EXAMPLES:
            break
        if any(example.query.shows == query.shows for example in examples):
            continue
        search = index.search(collection.queries_folder / query.file, query.box, top=None, verify=0)
        chain = index.explain(hit) if (hit := search.hit_of(image)) is not None else None
        positives = showing(collection.truth, query.shows)
        boxes = {scene.file: scene.box for scene in positives}
        if chain is None or len(chain.keys) < 2:
            continue
        if all(_overlaps(link.target.box, boxes.get(link.target.key or "")) for link in chain.links):
            scene = next(scene for scene in positives if scene.file == file)
            rank = _ranks(rankings[PLAIN][number])[image]
            examples.append(Example(query, scene, len(positives), rank, rank + gain, chain))
    return examples


def showing(scenes: Sequence[Scene], name: str) -> list[Scene]:
    """Return the scenes that show an object."""
    return [scene for scene in scenes if scene.shows == name]


def scenes_by_size(scenes: Sequence[Scene]) -> dict[str, list[Scene]]:
    """Return the scenes that show an object by its size; those at the ends of the scale belong to it."""
    edges = [least / 100 for least, _ in SIZES[1:]]
    kinds: dict[str, list[Scene]] = {f"{least}-{most}": [] for least, most in SIZES}
    names = list(kinds)
    for scene in scenes:
        if scene.shows is not None:
            kinds[names[int(np.digitize(scene.size, edges))]].append(scene)
    return kinds


def _overlaps(region: Box, box: Box | None) -> bool:
    """Return whether a region covers half of the object in a box, or the object half of the region."""
    return box is not None and bool(covered_fraction(region, box) >= 0.5)


def _image_numbers(index: Index, scenes: Sequence[Scene]) -> list[int]:
    records = [index.catalogue.of_key(scene.file) for scene in scenes]
    return [record.number for record in records if record is not None]


def _ranks(ranking: Ranking) -> dict[int, int]:
    return {image: rank for rank, image in enumerate(ranking.images.tolist(), start=1)}
