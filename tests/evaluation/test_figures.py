"""``manifind evaluate --figure``: each point is a run, and the page stands alone."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import Manifold
from manifind.evaluation import report
from manifind.evaluation.curves import SIZES, Curve, Point
from manifind.gmm import compact as compact_of
from tests.evaluation.conftest import Laid
from tests.evaluation.evaluate_command import FEW, by_hand, counted, on, printed, resources, run


def test_everything_is_written_to_a_folder(laid: Laid, tmp_path: Path) -> None:
    result = on(laid, *FEW, "--figure", "all", "-o", tmp_path / "out", "--cache", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    written = {file.name for file in (tmp_path / "out").iterdir()}
    named = ("k", "query_k", "iterations", "systems", "mixtures", "shortlists", "sizes")
    figures = {f"figure-{name}.png" for name in named}
    assert written == {"results.json", "results.csv", "report.md", "report.html"} | figures
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["data"][0]["images"] == 60
    assert len(found["data"][0]["sha256"]) == 64
    assert {"numpy", "scipy", "manifind"} <= set(found["versions"])
    page = (tmp_path / "out" / "report.html").read_text()
    parsed = resources(page)
    assert all(source.startswith("data:") for source in parsed.sources)
    assert len(parsed.sources) == 7
    assert not parsed.tags & {"script", "link", "iframe"}
    kept_on_a_line = re.findall(r"nowrap\">([^<]*)<", page)  # a table of words is as wide as the page, not wider
    assert kept_on_a_line
    assert max(map(len, kept_on_a_line)) <= 12
    for said in (found["data"][0]["sha256"], "trapezoid", "numpy", "query_k = 10", "Tolias"):
        assert said in page
    text = (tmp_path / "out" / "report.md").read_text()
    assert f"{found['results'][0]['mAP_trapezoid']:.2f}" in text
    assert "figure-k.png" in text
    assert text.startswith("# How good manifind is on planted\n")


def at(found: Any, figure: str, line: str, x: int, column: str = "planted") -> float:
    points = found["figures"][figure]["points"]
    (value,) = [p["mAP"] for p in points if (p["column"], p["line"], p["x"]) == (column, line, x)]
    return float(value)


def test_a_point_of_a_curve_is_the_method_run_so_in_the_papers_setting(laid: Laid, tmp_path: Path) -> None:
    words = ("--method", "nearest", "--figure", "mixtures", "--figure", "k", "--figure", "iterations", "--json")
    found = printed(on(laid, *words, "--cache", tmp_path))
    assert set(found["figures"]) == {"k", "mixtures", "iterations"}

    def score(manifold: Manifold) -> Any:
        return pytest.approx(np.mean(by_hand(laid, manifold, "trapezoid")), abs=1e-3)

    assert at(found, "k", "regional", 20) == score(Manifold(k=20, query_k=200))
    assert at(found, "iterations", "conjugate gradient", 5) == score(Manifold(k=200, query_k=200, max_iter=5))
    few = compact_of(laid.planted.vectors, laid.planted.image_of, regions_per_image=3)

    class OnMeans(Manifold):
        def fit(self, *_: Any, **__: Any) -> Any:
            return super().fit(few.vectors, few.image_of)

    assert at(found, "mixtures", "means of mixtures", 3) == score(OnMeans(k=50, query_k=50))
    points = found["figures"]["iterations"]["points"]
    assert all(point["ms_alone"] > 0 for point in points)
    assert {(p["parameters"]["k"], p["parameters"]["query_k"]) for p in points} == {(200, 200)}
    assert {level["line"] for level in found["figures"]["k"]["levels"]} == {"R-match", "nearest neighbours"}


def test_a_figure_takes_other_parameters(laid: Laid, tmp_path: Path) -> None:
    words = ("--method", "nearest", "--figure", "shortlists:k=20,query_k=10", "--json", "--cache", tmp_path)
    found = printed(on(laid, *words))
    whole = Manifold(k=20, query_k=10).fit(laid.planted.vectors, laid.planted.image_of)
    for size in (50, 60):
        truth = counted(laid, [whole.search(vectors, shortlist=size).images for vectors in laid.planted.queries])
        assert at(found, "shortlists", "regional", size) == pytest.approx(np.mean(truth), abs=1e-3)


def test_several_truths_are_drawn_over_each_other(laid: Laid, tmp_path: Path) -> None:
    """The same truth twice under two names, and Revisited, of which the level is named."""
    other = tmp_path / "again.json"
    stored = json.loads(laid.truth.read_text())
    other.write_text(json.dumps({**stored, "name": "again"}))
    plain = [[one["image"] for one in query["positives"]] for query in stored["queries"]]
    levels = {
        "images": laid.names,
        "queries": [
            {
                "name": query["image"],
                "box": None,
                "easy": [laid.names.index(name) for name in wanted[:3]],
                "hard": [laid.names.index(name) for name in wanted[3:]],
                "junk": [],
            }
            for query, wanted in zip(stored["queries"], plain, strict=True)
        ],
    }
    revisited = tmp_path / "gnd_roxford5k.json"
    revisited.write_text(json.dumps(levels))
    words = [word for path in (other, revisited) for word in ("--truth", path, "--queries", laid.queries)]
    asked = ("--method", "nearest", "--figure", "iterations", "--figure", "k:task=Hard", "--json", "--cache", tmp_path)
    found = printed(on(laid, *words, *asked))
    columns = {point["column"] for point in found["figures"]["iterations"]["points"]}
    assert columns == {"planted", "again", "ROxford5k Medium"}
    line = "conjugate gradient"
    assert at(found, "iterations", line, 20) == at(found, "iterations", line, 20, "again")
    assert at(found, "k", "regional", 20, "ROxford5k Hard") > 0


def test_a_figure_that_cannot_be_drawn_is_an_error_that_says_what_is_missing(
    laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare.json"
    stored = json.loads(laid.truth.read_text())["queries"]
    queries = [{**query, "positives": [one["image"] for one in query["positives"]]} for query in stored]
    bare.write_text(json.dumps({"name": "bare", "queries": queries}))
    given = (laid.vectors, "--truth", bare, "--queries", laid.queries, "--method", "nearest", "--cache", tmp_path / "k")
    for figure, message in (
        ("sizes", "figure sizes needs the boxes of objects"),
        ("k:task=Hard", "figure k needs a ground truth with the task Hard"),
        ("magic", "choose one of all, k"),
        ("k:magic=1", "has no parameter 'magic'"),
    ):
        refused = run(*given, "--figure", figure)
        assert refused.exit_code == 2
        assert message in refused.stderr
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    refused = run(*given, "--figure", "k")
    assert refused.exit_code == 2
    assert "pip install 'manifind[plots]'" in refused.stderr


def test_the_system_that_is_not_normalised_converges_slower(laid: Laid, tmp_path: Path) -> None:
    asked = ("--method", "nearest", "--figure", "systems:k=20,query_k=10", "--json", "--cache", tmp_path)
    points = printed(on(laid, *asked))["figures"]["systems"]["points"]
    residuals = {(point["line"][:3], point["x"]): point["residual"] for point in points}
    for steps in (5, 10, 20):
        assert residuals["nor", steps] < residuals["not", steps]


def test_precision_by_size_and_gains_equal_counting(laid: Laid, tmp_path: Path) -> None:
    figures = ("--figure", "sizes:k=20,query_k=10", "--figure", "gains:k=20,query_k=10")
    found = printed(on(laid, "--method", "nearest", *figures, "--json", "--cache", tmp_path))
    truth = json.loads(laid.truth.read_text())["queries"]
    manifold = Manifold(k=20, query_k=10).fit(laid.planted.vectors, laid.planted.image_of)
    sizes = found["precision_by_size"]
    regional = "Regional diffusion, k = 20, query_k = 10"
    assert set(sizes["precision"]) == {"Global diffusion, k = 50, query_k = 10", regional}
    assert sum(sizes["counts"]) == sum(len(query["positives"]) for query in truth)
    bins: list[list[float]] = [[] for _ in SIZES[1:]]
    for query, vectors in zip(truth, laid.planted.queries, strict=True):
        junk = {laid.names.index(name) for name in query["junk"]}
        wanted = {laid.names.index(one["image"]) for one in query["positives"]}
        seen = [image for image in manifold.search(vectors).images.tolist() if image not in junk]
        for one in query["positives"]:
            part = one["box"][3] / 1000
            rank = seen.index(laid.names.index(one["image"])) + 1
            bins[min(int(part * 10), 9)].append(100 * sum(image in wanted for image in seen[:rank]) / rank)
    for values, measured in zip(bins, sizes["precision"][regional], strict=True):
        assert measured == (pytest.approx(np.mean(values)) if values else None)
    gains = found["gains"]
    assert gains
    differences = [gain["after"] - gain["before"] for gain in gains]
    assert differences == sorted(differences, reverse=True)
    assert all(image["after"] > image["before"] for gain in gains for image in gain["images"])


def test_each_curve_and_level_has_a_colour_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(report, "_png", drawn.append)
    lines = ("regional", "global", "offline")
    points = tuple(Point("mine", line, x, 50.0 + x, 0.1, 0.0, {"k": x}) for line in lines for x in (10, 20))
    levels = (("mine", "R-match", 60.0), ("mine", "nearest neighbours", 40.0))
    report.curve_png(Curve("k", "mAP against k", "k", points, levels), "trapezoid")
    (axes,) = drawn[0].axes
    colours = [line.get_color() for line in axes.get_lines()]
    assert len(set(colours)) == len(colours) == 5
