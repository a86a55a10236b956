"""The whole thing on photos that come with it: ``manifind demo``.

Scenes are made from photographs (`manifind.demo.scenes`), indexed, and searched for every object in four ways, of which
the truth says how good they are. A page shows photos that plain similarity loses and diffusion finds, and
by which chain.

The neighbours are the paper's: 200 for regions, 50 for whole photos. `ALPHA` is not its 0.99, by which the score
walks a hundred steps on average: a long chain among thousands of photos, but among a few hundred the whole graph, and
there global diffusion falls far behind plain similarity. At 0.8, five steps, it comes out slightly before it. That was
chosen by looking at what the methods make of such scenes; regional diffusion is first with either.
"""

from pathlib import Path
from time import perf_counter

import numpy as np

from manifind.demo.cutouts import OBJECTS
from manifind.demo.figure1 import figure1
from manifind.demo.methods import REGIONAL, measured, rankings, scenes_by_size, telling
from manifind.demo.report import Demo, as_page
from manifind.demo.scenes import Query, Scenes, make_scenes
from manifind.errors import InvalidInputError, MissingExtraError
from manifind.index import Index, whole_box
from manifind.index.storage.layout import is_index
from manifind.types import FloatArray, StageProgress

SCENES = 300


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
    queries = [_query_descriptors(index, made, query) for query in made.queries]
    extracted = perf_counter()
    found = rankings(index, queries)
    searched = perf_counter()
    examples = telling(index, made, found)
    collection = {
        "photos": len(index),
        "regions": len(index.boxes),
        "objects": len(OBJECTS),
        "queries": len(made.queries),
    }
    counts = {size: len(of_it) for size, of_it in scenes_by_size(made.truth).items()}
    lines = [measured(index, made, one) for one in found]
    seconds = {
        "scenes": ready - start,
        "index": indexed - ready,
        "extract_a_query": (extracted - indexed) / len(queries),
        "searches": searched - extracted,
        "all": perf_counter() - start,
    }
    shown = Demo(collection, counts, lines, seconds, examples, report, picture)
    report.write_text(as_page(index, made, found, shown), encoding="utf-8")
    return shown


def _prepared(out: Path) -> tuple[Path | None, Path]:
    """Make the folder, see that what will be written can be, and draw the first figure."""
    picture, report = out / "figure1.png", out / "report.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInputError(f"--out {out} is a file or lies below one; name a folder.") from error
    for file in (picture, report):
        if file.is_dir():
            raise InvalidInputError(f"{file} is a folder; move it away or name another --out.")
    try:
        figure1(picture)
    except MissingExtraError:
        return None, report
    return picture, report


def _indexed(path: Path, made: Scenes, progress: StageProgress | None) -> Index:
    if not is_index(path):
        return Index.create(path, made.folder, progress=progress, **REGIONAL)
    index = Index.open(path)
    given = index.info()["manifold"]
    if index.root != made.folder.resolve() or any(given[name] != value for name, value in REGIONAL.items()):
        raise InvalidInputError(f"{path} is another index than this demo makes; move it away or name another --out.")
    index.sync(progress=progress)
    return index


def _query_descriptors(index: Index, made: Scenes, query: Query) -> FloatArray:
    pixels = index.pixels(made.queries_folder / query.file)
    x0, y0, x1, y1 = whole_box(query.box, pixels.shape[1], pixels.shape[0])
    return index.extractor.extract(np.ascontiguousarray(pixels[y0:y1, x0:x1])).vectors
