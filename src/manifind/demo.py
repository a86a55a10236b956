"""What diffusion is good for, in a few seconds: ``python -m manifind.demo [--out DIR] [--json]``.

It draws the paper's first figure, and ranks a synthetic collection of planted objects by plain search, by global
diffusion and by regional diffusion.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from manifind.baselines import NearestImages
from manifind.errors import MissingExtra
from manifind.evaluate import mean_average_precision
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.manifold import Manifold
from manifind.plots import figure1
from manifind.ranking import Ranking
from manifind.synthetic import REGIONS, Planted, planted_objects
from manifind.validation import FloatArray

DONE, WRONG_WORDS, MACHINE_FAULT = 0, 2, 3
"""Exit codes."""

SIZES = ((1, 3), (4, 6), (7, 9), (10, 12))
"""Sizes of an object in an image, in regions, that the table tells apart."""

DEFINITION = "trapezoid"


@dataclass(frozen=True)
class Line:
    """How one method did; percentages and seconds."""

    method: str
    mAP: float  # noqa: N815 (the field's word)
    by_size: dict[str, float]
    """Mean precision at the rank where a positive image was found, by the size of the object in it (Fig. 6)."""
    fit_seconds: float
    query_seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo on these arguments, the command line's by default, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m manifind.demo", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("out"), help="where figure1.png goes (out)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    given = parser.parse_args(argv)

    picture: Path | None = given.out / "figure1.png"
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        figure1(picture)
    except MissingExtra as missing:
        print(f"no picture: {missing}", file=sys.stderr)
        picture = None
    except (FileExistsError, NotADirectoryError):
        print(f"--out {given.out} is a file or lies below one; name a folder.", file=sys.stderr)
        return WRONG_WORDS
    except IsADirectoryError:
        print(f"{picture} is a folder; move it away or name another --out.", file=sys.stderr)
        return WRONG_WORDS
    except OSError as fault:
        print(f"{picture} cannot be written: {fault.strerror or fault}.", file=sys.stderr)
        return MACHINE_FAULT

    collection = planted_objects()
    lines = compare(collection, progress=_show_progress if sys.stderr.isatty() else None)
    print(_as_json(collection, lines, picture) if given.json else _as_table(collection, lines, picture))
    return DONE


def compare(collection: Planted, *, progress: Callable[[int, int], None] | None = None) -> list[Line]:
    """Rank the collection for every query by each method, from the simplest to the paper's."""
    vectors, image_of, queries = collection.vectors, collection.image_of, collection.queries
    images = aggregate(vectors, Layout.of(image_of))
    whole_queries = [aggregate_one(query) for query in queries]
    return [
        _measure("plain search", collection, lambda: NearestImages().fit(vectors, image_of), queries),
        _measure("global diffusion", collection, lambda: Manifold(k=50, query_k=10).fit(images), whole_queries),
        _measure(
            "regional diffusion", collection, lambda: Manifold().fit(vectors, image_of, progress=progress), queries
        ),
    ]


def _measure(
    method: str,
    collection: Planted,
    fit: Callable[[], NearestImages | Manifold],
    queries: list[FloatArray],
) -> Line:
    start = perf_counter()
    fitted = fit()
    ready = perf_counter()
    rankings = fitted.search_many(queries)
    end = perf_counter()
    mAP = mean_average_precision(rankings, collection.positives, definition=DEFINITION)
    return Line(
        method,
        round(100 * mAP, 2),
        _by_size(rankings, collection),
        round(ready - start, 3),
        round((end - ready) / len(queries), 5),
    )


def _by_size(rankings: list[Ranking], collection: Planted) -> dict[str, float]:
    precisions = np.concatenate(
        [_precision_where_found(ranking, own) for ranking, own in zip(rankings, collection.positives, strict=True)]
    )
    sizes = np.concatenate(collection.sizes)
    kinds = {f"{least}-{most}": (least <= sizes) & (sizes <= most) for least, most in SIZES}
    return {kind: round(100 * float(precisions[own].mean()), 2) for kind, own in kinds.items() if own.any()}


def _precision_where_found(ranking: Ranking, positives: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Return for each positive image the share of positives among the images down to it, all of which are ranked."""
    rank_of = np.empty(len(ranking), np.intp)
    rank_of[ranking.images] = np.arange(1, len(ranking) + 1)
    ranks = rank_of[positives]
    return np.asarray((ranks[:, None] >= ranks).sum(axis=1) / ranks)


def _show_progress(done: int, total: int) -> None:
    print(f"\rgraph: {done:,} of {total:,} regions", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _facts(collection: Planted) -> dict[str, int]:
    return {
        "images": int(collection.image_of[-1]) + 1,
        "regions": len(collection.vectors),
        "dimensions": collection.vectors.shape[1],
        "queries": len(collection.queries),
    }


def _as_json(collection: Planted, lines: list[Line], picture: Path | None) -> str:
    return json.dumps(
        {
            "collection": _facts(collection),
            "average_precision": DEFINITION,
            "methods": [asdict(line) for line in lines],
            "picture": None if picture is None else str(picture),
        },
        indent=2,
    )


def _as_table(collection: Planted, lines: list[Line], picture: Path | None) -> str:
    facts = ", ".join(f"{count:,} {what}" for what, count in _facts(collection).items())
    sizes = "".join(f"{size.replace('-', '–'):>8}" for size in lines[0].by_size)
    rows = [
        f"{line.method:<20}{line.mAP:6.1f}  "
        + "".join(f"{precision:8.1f}" for precision in line.by_size.values())
        + f"{line.fit_seconds:10.2f} s{1000 * line.query_seconds:10.1f} ms"
        for line in lines
    ]
    return "\n".join(
        [
            f"Planted objects: {facts}",
            "",
            f"{'':<20}{'':6}  {f'by size, of {REGIONS} regions':>32}",
            f"{'method':<20}{'mAP':>6}  {sizes}{'fit':>12}{'a query':>13}",
            *rows,
            "",
            f"mAP in percent, of average precision by the {DEFINITION} rule. By size: the mean precision at the",
            "rank where an image was found, by how many of its regions show the object.",
            "The collection is made up, and its difficulty was chosen to set the methods apart.",
            *([] if picture is None else ["", f"Figure 1 of the paper: {picture}"]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
