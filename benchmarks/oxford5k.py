"""What diffusion finds on Oxford5k: the table of methods, and the curves of the paper's figures on these descriptors.

    python benchmarks/oxford5k.py [--out docs/oxford5k] [--part methods --part iterations ...]

Prints every figure as it is measured, and writes DIR.json with all of them and DIR-PART.png with each curve. Average
precision is the trapezoid, as in Oxford's own program; mAP is in percent. The whole takes about 15 minutes on 2 cores,
most of it the graphs. Figures of a part that was not asked for are kept as DIR.json has them.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import oxford5k_data
from manifind import Manifold, __version__, compact
from manifind.baselines import NearestImages
from manifind.graph import Neighbours, exact_neighbours
from manifind.kernels import thread_count

Row = dict[str, Any]

KS = [10, 20, 50, 100, 200, 500, 1000]
ITERATIONS = [1, 2, 5, 10, 20, 40, 60, 80, 110, 160, 320, 640, 1280]


class Bench:
    """The protocol, and the longest neighbour lists that any part needs, found once."""

    def __init__(self) -> None:
        self.oxford = oxford5k_data.oxford5k()
        self._lists: Neighbours | None = None

    def manifold(self, **parameters: Any) -> Manifold:
        if self._lists is None:
            print(f"neighbours: exact, k = {KS[-1]}, n = {len(self.oxford.vectors)} …", file=sys.stderr)
            self._lists = exact_neighbours(self.oxford.vectors, KS[-1])
        lists = self._lists
        return Manifold(**parameters).fit(self.oxford.vectors, self.oxford.image_of, neighbours=lists)

    def score(self, manifold: Manifold, **arguments: Any) -> Row:
        began = time.perf_counter()
        rankings = manifold.search_many(self.oxford.queries, **arguments)
        seconds = time.perf_counter() - began
        return {
            "mAP": self.oxford.tasks["Oxford5k"].mean_average_precision(rankings),
            "ms_a_query": 1e3 * seconds / len(rankings),
        }


def methods(bench: Bench) -> Iterator[Row]:
    """Yield every method on Oxford5k and, for the main ones, on Revisited Oxford."""
    oxford, again = bench.oxford, oxford5k_data.revisited()
    score, revisit = oxford.tasks["Oxford5k"].mean_average_precision, again.tasks

    def row(method: str, on_oxford: float, rankings: Any = None) -> Row:
        figures = {name: task.mean_average_precision(rankings) for name, task in revisit.items()} if rankings else {}
        return {"method": method, "Oxford5k": on_oxford, **figures}

    plain, plain_again = (NearestImages().fit(p.vectors, p.image_of) for p in (oxford, again))
    yield row("plain search", score(plain.search_many(oxford.queries)), plain_again.search_many(again.queries))
    whole, whole_again = (Manifold(k=50, query_k=10).fit(p.whole_images) for p in (oxford, again))
    yield row(
        "global diffusion, k = 50, query_k = 10",
        score(whole.search_many(oxford.whole_queries)),
        whole_again.search_many(again.whole_queries),
    )
    for k in (200, 100, 50, 20, 10):
        for pooling in ("sum", "gmp"):
            manifold = bench.manifold(k=k, query_k=k, pooling=pooling)
            rankings = None
            if k in (50, 20) and pooling == "gmp":
                rankings = Manifold(k=k, query_k=k).fit(again.vectors, again.image_of).search_many(again.queries)
            name = f"regional diffusion, k = query_k = {k}, {pooling}"
            yield row(name, bench.score(manifold)["mAP"], rankings)
    for k, query_k in ((100, 50), (200, 200)):
        manifold = bench.manifold(k=k, query_k=query_k)
        for seeding in ("paper", "released", "append"):
            manifold.set_params(seeding=seeding)
            name = f"regional diffusion, k = {k}, query_k = {query_k}, gmp, seeding {seeding}"
            yield row(name, bench.score(manifold)["mAP"])


def neighbours(bench: Bench) -> Iterator[Row]:
    """Yield mAP against k, with query_k at the default and equal to k."""
    for k in KS:
        manifold = bench.manifold(k=k)
        edges = manifold.S_.nnz / len(bench.oxford.vectors)
        for query_k in dict.fromkeys((manifold.query_k, k)):
            line = "query_k = 50" if query_k == 50 else "query_k = k"
            figures = bench.score(manifold.set_params(query_k=query_k))
            yield {"line": line, "k": k, "edges_a_region": edges, **figures}
            if k == 50:
                yield {"line": "query_k = k", "k": k, "edges_a_region": edges, **figures}


def query_neighbours(bench: Bench) -> Iterator[Row]:
    """Yield mAP against query_k."""
    for k in (50, 100, 200):
        manifold = bench.manifold(k=k)
        for query_k in (5, 10, 20, 50, 100, 200, 400):
            yield {"line": f"k = {k}", "query_k": query_k, **bench.score(manifold.set_params(query_k=query_k))}


def iterations(bench: Bench) -> Iterator[Row]:
    """Yield mAP and time against the number of iterations, up to convergence."""
    for k in (50, 200):
        manifold = bench.manifold(k=k, query_k=k, tol=1e-6)
        for engine in ("cg", "iteration"):
            for count in ITERATIONS:
                manifold.set_params(max_iter=count)
                began = time.perf_counter()
                rankings = quietly(lambda m=manifold, e=engine: m.search_many(bench.oxford.queries, engine=e))  # type: ignore[misc]
                seconds = time.perf_counter() - began
                yield {
                    "line": f"{engine}, k = query_k = {k}",
                    "iterations": count,
                    "mAP": bench.oxford.tasks["Oxford5k"].mean_average_precision(rankings),
                    "ms_a_query": 1e3 * seconds / len(rankings),
                    "largest_residual": max(r.residual for r in rankings),
                }
                if all(r.converged for r in rankings):
                    break


def mixtures(bench: Bench) -> Iterator[Row]:
    """Yield mAP against the number of mixture means an image, and all 21 regions."""
    oxford = bench.oxford
    for count in (3, 5, 10):
        began = time.perf_counter()
        few = compact(oxford.vectors, oxford.image_of, regions_per_image=count)
        seconds = time.perf_counter() - began
        lists = exact_neighbours(few.vectors, 100)
        for k in (10, 20, 50, 100):
            manifold = Manifold(k=k, query_k=k).fit(few.vectors, few.image_of, neighbours=lists)
            yield {
                "line": f"k = query_k = {k}",
                "regions": count,
                **bench.score(manifold),
                "images_a_second": len(np.unique(oxford.image_of)) / seconds,
            }
    for k in (10, 20, 50, 100):
        yield {"line": f"k = query_k = {k}", "regions": 21, **bench.score(bench.manifold(k=k, query_k=k))}


def shortlists(bench: Bench) -> Iterator[Row]:
    """Yield mAP against the size of the shortlist."""
    for k in (50, 100):
        manifold = bench.manifold(k=k, query_k=50)
        for size in (50, 100, 250, 500, 1000, 2500, 5063):
            yield {"line": f"k = {k}, query_k = 50", "shortlist": size, **bench.score(manifold, shortlist=size)}


def alphas(bench: Bench) -> Iterator[Row]:
    """Yield mAP against α and against γ."""
    for alpha in (0.9, 0.95, 0.98, 0.99, 0.995):
        manifold = bench.manifold(k=50, query_k=50, alpha=alpha)
        yield {"line": "gamma = 3", "alpha": alpha, "gamma": 3.0, **bench.score(manifold)}
    for gamma in (1.0, 2.0, 5.0):
        manifold = bench.manifold(k=50, query_k=50, gamma=gamma)
        yield {"line": f"gamma = {gamma:g}", "alpha": 0.99, "gamma": gamma, **bench.score(manifold)}


PARTS: dict[str, tuple[Callable[[Bench], Iterator[Row]], str | None]] = {
    "methods": (methods, None),
    "neighbours": (neighbours, "k"),
    "query_neighbours": (query_neighbours, "query_k"),
    "iterations": (iterations, "iterations"),
    "mixtures": (mixtures, "regions"),
    "shortlists": (shortlists, "shortlist"),
    "alphas": (alphas, None),
}
"""Each part, and what its curve is drawn against."""


def quietly(work: Callable[[], Any]) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def draw(rows: list[Row], against: str, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for line in dict.fromkeys(row["line"] for row in rows):
        own = [row for row in rows if row["line"] == line]
        axes.plot([row[against] for row in own], [row["mAP"] for row in own], "o-", label=line)
    ticks = sorted({row[against] for row in rows})
    axes.set(xscale="log", xlabel=against, ylabel="mAP (trapezoid), Oxford5k, MobileNetV2")
    axes.set_xticks(ticks, [str(tick) for tick in ticks], rotation=45 if len(ticks) > 8 else 0)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=110)


def shown(row: Row) -> str:
    return "   ".join(
        f"{name} {value:.4g}"
        if isinstance(value, float) and name in ("alpha", "gamma", "largest_residual")
        else f"{name} {value:.2f}"
        if isinstance(value, float)
        else f"{value}"
        if name in ("line", "method")
        else f"{name} {value}"
        for name, value in row.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/oxford5k"))
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    arguments = parser.parse_args()
    if not oxford5k_data.at_hand():
        print(f"no descriptors at {oxford5k_data.FOLDER}; this benchmark needs them.", file=sys.stderr)
        return 1
    store = arguments.out.with_suffix(".json")
    store.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(store.read_text()) if store.exists() else {}
    results |= {"version": __version__, "definition": "trapezoid", "threads": thread_count()}
    bench = Bench()
    for part in arguments.part or PARTS:
        produce, against = PARTS[part]
        print(f"\n{part}")
        results[part] = []
        for row in produce(bench):
            results[part].append(row)
            print(" ", shown(row), flush=True)
        store.write_text(json.dumps(results, indent=1) + "\n")
        if against:
            draw(results[part], against, arguments.out.with_name(f"{arguments.out.name}-{part}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
