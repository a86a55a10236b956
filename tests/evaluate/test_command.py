"""``manifind evaluate``, as it is typed."""

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from manifind import Manifold
from manifind.baselines import NearestImages, RegionMatch
from manifind.cli import main
from manifind.compact import compact as compact_of
from manifind.evaluate import average_precision
from manifind.evaluate import runs as running
from manifind.evaluate.curves import SIZES
from tests.evaluate.conftest import Laid
from tests.index.conftest import scene

FEW = ("--method", "nearest", "--method", "global-diffusion:k=10", "--method", "regional-diffusion:k=20,query_k=10")


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["evaluate", *map(str, words)], catch_exceptions=False)


def on(laid: Laid, *words: object) -> Result:
    return run(laid.vectors, "--truth", laid.truth, "--queries", laid.queries, *words)


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def by_hand(laid: Laid, estimator: Any, definition: str) -> list[float]:
    """Average precision of each query, in percent, from the estimator itself and the truth's own file."""
    estimator.fit(laid.planted.vectors, laid.planted.image_of)
    return counted(laid, [estimator.search(vectors).images for vectors in laid.planted.queries], definition)


def counted(laid: Laid, rankings: Iterable[npt.NDArray[np.integer]], definition: str = "trapezoid") -> list[float]:
    """Average precision of each query's ranking, in percent, by the truth's own file."""
    found = []
    for query, ranking in zip(json.loads(laid.truth.read_text())["queries"], rankings, strict=True):
        wanted = [laid.names.index(one["image"]) for one in query["positives"]]
        junk = [laid.names.index(one) for one in query["junk"]]
        found.append(100 * average_precision(ranking, wanted, junk, definition=definition))
    return found


@pytest.mark.parametrize("definition", ["trapezoid", "mean"])
def test_the_figures_are_those_of_the_methods(laid: Laid, definition: str) -> None:
    methods = ("--method", "nearest", "--method", "r-match", "--method", "regional-diffusion:k=20,query_k=10")
    found = printed(on(laid, *methods, "--no-cache", "--json", "--ap", definition))
    assert found["definition"] == definition
    estimators = (NearestImages(), RegionMatch(), Manifold(k=20, query_k=10))
    for row, estimator in zip(found["results"], estimators, strict=True):
        truth = by_hand(laid, estimator, definition)
        np.testing.assert_allclose(row["average_precisions"], truth, atol=1e-3)
        assert row[f"mAP_{definition}"] == pytest.approx(np.mean(truth), abs=1e-3)
        assert row["from_cache"] is False


def test_the_table_names_the_definition_and_every_method(laid: Laid) -> None:
    result = on(laid, *FEW, "--no-cache")
    assert result.exit_code == 0
    assert "by the trapezoid" in result.stdout
    lines = result.stdout.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["method", "planted", "ms a query", "in a batch"]
    assert [line.split("  ")[0] for line in lines[1:4]] == [
        "Nearest neighbours (R-MAC)",
        "Global diffusion, k = 10, query_k = 10",
        "Regional diffusion, k = 20, query_k = 10",
    ]
    assert "mean of the precisions" in on(laid, *FEW, "--no-cache", "--ap", "mean").stdout


def test_an_engine_that_works_off_line_ranks_as_the_closed_form_does(laid: Laid) -> None:
    """On so few images nothing is cut off; conjugate gradient has converged in 200 steps."""
    settings = ["engine=offline,size=60,max_iter=200", "engine=spectral,size=60", "max_iter=200"]
    words = [word for one in settings for word in ("--method", f"global-diffusion:k=10,tol=1e-7,{one}")]
    offline, spectral, solved = printed(on(laid, *words, "--no-cache", "--json"))["results"]
    assert offline["mAP_trapezoid"] == pytest.approx(solved["mAP_trapezoid"], abs=0.2)
    assert spectral["mAP_trapezoid"] == pytest.approx(solved["mAP_trapezoid"], abs=0.2)
    assert "engine = offline" in offline["title"]


def test_csv_has_both_definitions(laid: Laid) -> None:
    rows = list(csv.DictReader(io.StringIO(on(laid, *FEW, "--no-cache", "--csv").stdout)))
    assert [row["method"] for row in rows] == ["nearest", "global-diffusion", "regional-diffusion"]
    assert all(float(row["mAP_trapezoid"]) != float(row["mAP_mean"]) for row in rows)
    assert {"mP@1", "mP@5", "mP@10"} <= set(rows[0])


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_kept_and_what_is_damaged_is_measured_again(laid: Laid, tmp_path: Path) -> None:
    words = (*FEW, "--json", "--cache", tmp_path / "kept")
    first = printed(on(laid, *words))
    again = printed(on(laid, *words))
    assert [row["from_cache"] for row in again["results"]] == [True] * 3

    def figures(found: Any) -> list[Any]:
        return [row["average_precisions"] for row in found["results"]]

    assert figures(again) == figures(first)
    entry = sorted((tmp_path / "kept").iterdir())[0]
    (array,) = entry.glob("*.npy")
    array.write_bytes(array.read_bytes()[:-4] + b"\x07\x00\x00\x00")
    mended = on(laid, *words)
    assert "damaged and is computed again" in mended.stderr
    assert figures(printed(mended)) == figures(first)
    assert sorted(row["from_cache"] for row in printed(mended)["results"]) == [False, True, True]
    assert "damaged" not in on(laid, *words).stderr
    assert not any(row["from_cache"] for row in printed(on(laid, *words, "--fresh"))["results"])


def test_an_interrupted_run_goes_on_where_it_was(laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*FEW, "--json", "--cache", tmp_path / "kept")
    usual, calls = running.Runner._searched, list[str]()

    def interrupted(self: Any, data: Any, choice: Any, *others: Any) -> Any:
        calls.append(choice.method.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return usual(self, data, choice, *others)

    monkeypatch.setattr(running.Runner, "_searched", interrupted)
    stopped = on(laid, *words)
    assert stopped.exit_code == 130
    assert "kept" in stopped.stderr
    found = printed(on(laid, *words))
    assert [row["method"] for row in found["results"] if row["from_cache"]] == calls[:1]
    assert len(calls) == 4


def test_other_descriptors_are_measured_anew(laid: Laid, tmp_path: Path) -> None:
    words = ("--method", "nearest", "--json", "--cache", tmp_path / "kept")
    printed(on(laid, *words))
    with np.load(laid.vectors) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["vectors"] = arrays["vectors"].copy()
    arrays["vectors"][0] = arrays["vectors"][1]
    np.savez(tmp_path / "changed.npz", **arrays)
    changed = run(tmp_path / "changed.npz", "--truth", laid.truth, "--queries", laid.queries, *words)
    assert [row["from_cache"] for row in printed(changed)["results"]] == [False]


# -- figures and the page ----------------------------------------------------------------------------------------------


class _Resources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def resources(text: str) -> _Resources:
    parser = _Resources()
    parser.feed(text)
    return parser


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


# -- the paper's tables ------------------------------------------------------------------------------------------------


def test_a_shortlist_is_chosen_by_the_global_descriptors_that_were_given(laid: Laid, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def rows(count: int) -> Any:
        made = rng.normal(size=(count, 8)).astype(np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    with np.load(laid.vectors) as stored, np.load(laid.queries) as asked:
        np.savez(tmp_path / "v.npz", **{n: stored[n] for n in stored.files}, global_vectors=rows(60))
        np.savez(tmp_path / "q.npz", **{n: asked[n] for n in asked.files}, global_vectors=rows(8))
    settings = ("regional-diffusion:k=20,query_k=10,shortlist=10", "compact-diffusion:shortlist=60")
    words = [word for one in ["nearest", *settings, "compact-diffusion"] for word in ("--method", one)]
    files = (tmp_path / "v.npz", "--truth", laid.truth, "--queries", tmp_path / "q.npz")
    found = [row["average_precisions"] for row in printed(run(*files, *words, "--no-cache", "--json"))["results"]]
    manifold = Manifold(k=20, query_k=10).fit(laid.planted.vectors, laid.planted.image_of)
    with np.load(tmp_path / "v.npz") as stored, np.load(tmp_path / "q.npz") as asked:
        orders = np.argsort(-asked["global_vectors"] @ stored["global_vectors"].T, axis=1)
    short = [
        manifold.search(query, shortlist=order[:10]).images
        for query, order in zip(laid.planted.queries, orders, strict=True)
    ]
    assert found[0] == pytest.approx(counted(laid, orders), abs=1e-3)
    assert found[1] == pytest.approx(counted(laid, short), abs=1e-3)
    assert found[2] == found[3]


def test_edges_and_costs_off_line_are_reported(laid: Laid, tmp_path: Path) -> None:
    methods = ("regional-diffusion:k=20,query_k=10", "compact-diffusion:regions_per_image=2,k=10", "nearest")
    words = [word for one in methods for word in ("--method", one)]
    found = printed(on(laid, *words, "--json", "--no-cache", "-o", tmp_path))
    costs = {row["method"]: row["costs"] for row in found["results"]}
    manifold = Manifold(k=20).fit(laid.planted.vectors, laid.planted.image_of)
    assert costs["regional-diffusion"]["edges_a_region"] == pytest.approx(manifold.S_.nnz / manifold.S_.shape[0])
    assert costs["regional-diffusion"]["affinity_bytes"] >= 8 * manifold.S_.nnz
    assert costs["regional-diffusion"]["neighbours_seconds"] > 0
    assert costs["compact-diffusion"]["mixtures_seconds"] > 0
    assert costs["compact-diffusion"]["regions"] == 120
    assert all(row["ms_alone"] > 0 for row in found["results"])
    text = (tmp_path / "report.md").read_text()
    assert "| method | off line, s | neighbours, s | mixtures, s | affinity, s | edges a region |" in text


def test_the_papers_recipe_prints_its_values_ours_and_the_difference(laid: Laid, tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({**json.loads(laid.truth.read_text()), "name": "Oxford5k"}))
    given = (laid.vectors, "--truth", truth, "--queries", laid.queries, "--recipe", "paper", "--cache", tmp_path / "k")
    known = ("--descriptors", "vgg16-siamac-rmac-512")
    result = run(*given, *known)
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    (sum_pooling,) = [line for line in lines if line[0] == "Regional diffusion, sum pooling"]
    ours = np.mean(by_hand(laid, Manifold(k=200, query_k=200, pooling="sum"), "trapezoid"))
    assert sum_pooling[2:4] == ["Oxford5k", "92.2"]
    assert float(sum_pooling[4]) == pytest.approx(ours, abs=0.06)
    assert float(sum_pooling[5]) == pytest.approx(ours - 92.2, abs=0.11)
    assert sum_pooling[6] == "yes"
    found = printed(run(*given, "--json"))
    assert set(found["figures"]) == {"k", "query_k", "iterations", "systems", "mixtures", "shortlists"}
    assert {row["not_comparable"] for row in found["published"] if row["measure"] == "mAP"} <= {
        "other descriptors",
        "AP may differ",
        "the method is not one of these",
    }


# -- how sure ----------------------------------------------------------------------------------------------------------


def test_every_map_has_an_interval_and_what_cannot_be_told_from_the_best_is_marked(laid: Laid) -> None:
    methods = ("alpha-qe", "r-match", "regional-diffusion:k=20,query_k=10", "regional-diffusion:k=20,query_k=11")
    words = [word for one in methods for word in ("--method", one)]
    found = printed(on(laid, *words, "--no-cache", "--json"))
    for row in found["results"]:
        assert row["mAP_trapezoid_low"] <= row["mAP_trapezoid"] <= row["mAP_trapezoid_high"]
        assert 0 <= row["mAP_mean@100"] <= 100
    chances = {one["other"]: one["p"] for one in found["differences"]}
    assert len(chances) == 3
    assert min(chances.values()) < 0.05 <= max(chances.values())
    table = on(laid, *words, "--no-cache").stdout
    marked = [line for line in table.splitlines() if "~" in line and "±" in line and "mAP in percent" not in line]
    assert [line.split("  ")[0] for line in marked] == [name for name, p in chances.items() if p >= 0.05]
    assert "8 of planted" in table


def test_a_first_image_that_is_never_right_is_said(laid: Laid, tmp_path: Path) -> None:
    """A copy of the query in the collection that the truth does not know of."""
    with np.load(laid.vectors) as stored:
        vectors, image_of, names = (stored[name] for name in ("vectors", "image_of", "names"))
    extra = laid.planted.queries
    last = int(image_of[-1]) + 1
    of = np.repeat(np.arange(last, last + len(extra)), [len(one) for one in extra])
    np.savez(
        tmp_path / "copies.npz",
        vectors=np.concatenate([vectors, *extra]),
        image_of=np.concatenate([image_of, of]),
        names=[*names, *(f"copy_{i}" for i in range(len(extra)))],
    )
    words = ("--queries", laid.queries, "--method", "nearest", "--no-cache")
    warned = run(tmp_path / "copies.npz", "--truth", laid.truth, *words)
    assert "the first image is wrong for nearly all queries" in warned.stdout
    assert "nearly all queries" not in on(laid, "--method", "nearest", "--no-cache").stdout


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


# -- photos ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i in range(4):
        Image.fromarray(scene(i, 1, (20 + 50 * i, 30 + 20 * i))).save(root / f"first-{i}.png")
        Image.fromarray(scene(10 + i, 2, (180 - 50 * i, 20 + 25 * i))).save(root / f"second-{i}.png")
    return root


def truth_of_photos(folder: Path, **change: Any) -> Path:
    def positives(kind: str) -> list[Any]:
        corners = [(20 + 50 * i, 30 + 20 * i) if kind == "first" else (180 - 50 * i, 20 + 25 * i) for i in range(4)]
        return [{"image": f"{kind}-{i}", "box": [x, y, x + 128, y + 128]} for i, (x, y) in enumerate(corners) if i]

    queries = [
        {"image": "first-0.png", "box": [20, 30, 148, 158], "positives": positives("first"), "junk": ["first-0"]},
        {"image": "second-0.png", "box": [180, 20, 308, 148], "positives": positives("second"), "junk": ["second-0"]},
    ]
    queries[0] |= change
    path = folder / "things.json"
    path.write_text(json.dumps({"name": "things", "queries": queries}))
    return path


def test_photos_are_described_once_and_shown_in_the_page(photos: Path, tmp_path: Path) -> None:
    methods = ("nearest", "global-diffusion:k=3,query_k=2", "regional-diffusion:k=10,query_k=5")
    words: list[object] = [word for method in methods for word in ("--method", method)]
    words += ["--figure", "sizes:k=10,query_k=5", "--figure", "gains:k=10,query_k=5"]
    words += [
        *("--backbone", "mobilenet_v2", "--whiten", "shipped", "--zooms", "1"),
        "--json",
        "--cache",
        tmp_path / "kept",
    ]
    page = tmp_path / "page.html"
    truth = truth_of_photos(tmp_path)
    found = printed(run(photos, "--truth", truth, *words, "--html", page))
    by_method = {row["method"]: row["mAP_trapezoid"] for row in found["results"]}
    assert by_method["regional-diffusion"] > 90
    assert sum(found["precision_by_size"]["counts"]) == 6
    # The thing takes 128 × 128 of 320 × 240, a fifth.
    assert found["precision_by_size"]["counts"][2] == 6
    pictures = [source for source in resources(page.read_text()).sources if source.startswith("data:image/jpeg")]
    assert len(pictures) == sum(1 + len(gain["images"]) for gain in found["gains"])
    local = printed(run(photos, "--truth", truth, "--method", "hqe", "--json", "--cache", tmp_path / "kept"))["results"]
    assert local[0]["mAP_trapezoid"] > 60
    copy = tmp_path / "copy"
    shutil.copytree(photos, copy)
    again = run(copy, "--truth", truth, *words)
    assert all(row["from_cache"] for row in printed(again)["results"])


def test_a_method_whose_package_is_missing_is_left_out(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    words = ("--method", "nearest", "--method", "hqe", "--json", "--cache", tmp_path / "kept")
    result = run(photos, "--truth", truth_of_photos(tmp_path), *words)
    assert re.search(r"hqe is left out: .*pip install 'manifind\[sift\]'", result.stderr)
    assert [row["method"] for row in printed(result)["results"]] == ["nearest"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": [20, 30, 500, 158]}, r"not within their photos: first-0.png \(20, 30, 500, 158\) in 320 × 240"),
        ({"image": "lost.png"}, "photos are not in .*: lost.png"),
        ({"positives": ["lost-1", "lost-2"]}, "not in the collection: lost-1, lost-2"),
        ({"junk": []}, None),
    ],
)
def test_a_truth_that_photos_contradict_is_refused(
    photos: Path, tmp_path: Path, change: dict[str, Any], message: str | None
) -> None:
    result = run(
        photos, "--truth", truth_of_photos(tmp_path, **change), "--method", "nearest", "--cache", tmp_path / "k"
    )
    assert result.exit_code == (0 if message is None else 2)
    if message is not None:
        assert re.search(message, result.stderr.replace("\n", " "))


# -- words that are off ------------------------------------------------------------------------------------------------


def test_words_that_are_off_are_said_in_a_sentence(laid: Laid, tmp_path: Path) -> None:
    for words, message in (
        ((laid.vectors, "--truth", laid.truth), "give their descriptors with --queries"),
        ((laid.vectors, "--truth", laid.truth, "--truth", laid.truth, "--queries", laid.queries), "as many of each"),
        ((tmp_path / "none", "--truth", laid.truth), "does not exist"),
        ((laid.vectors, "--truth", tmp_path / "none.json", "--queries", laid.queries), "does not exist"),
        ((laid.vectors, "--truth", laid.truth, "--queries", laid.queries, "--method", "magic"), "choose one of"),
        (
            (laid.vectors, "--truth", laid.truth, "--queries", laid.queries, "--method", "regional-diffusion:k=x"),
            "k is 'x'; give a whole number",
        ),
        (
            (laid.vectors, "--truth", laid.truth, "--queries", laid.queries, "--descriptors", "mine"),
            "published figures",
        ),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_global_descriptors_leave_regional_methods_out(laid: Laid, tmp_path: Path) -> None:
    planted = laid.planted
    firsts = np.flatnonzero(np.diff(planted.image_of, prepend=-1))
    np.savez(tmp_path / "whole.npz", vectors=planted.vectors[firsts], names=laid.names)
    np.save(tmp_path / "queries.npy", np.array([query[0] for query in planted.queries]))
    words = ("--method", "nearest", "--method", "r-match", "--method", "hqe", "--no-cache", "--json")
    result = run(tmp_path / "whole.npz", "--truth", laid.truth, "--queries", tmp_path / "queries.npy", *words)
    assert "r-match wants regional descriptors, which" in result.stderr
    assert "hqe wants photos" in result.stderr
    assert [row["method"] for row in printed(result)["results"]] == ["nearest"]


def test_distractors_are_counted_in_the_name(laid: Laid, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    far = tmp_path / "far.npz"
    np.savez(far, vectors=vectors, image_of=np.repeat(np.arange(10), 3), names=[f"far_{i}" for i in range(10)])
    words = ("--method", "nearest", "--no-cache", "--json")
    found = printed(on(laid, *words, "--distractors", far))
    assert found["data"][0]["name"] == "planted+10"
    assert found["data"][0]["images"] == 70
    listed = tmp_path / "list.txt"
    truth = json.loads(laid.truth.read_text())["queries"]
    wanted = {one["image"] for query in truth for one in query["positives"]}
    listed.write_text("\n".join(name for name in laid.names if name not in wanted))
    within = printed(on(laid, *words, "--distractors", listed))
    assert within["data"][0]["images"] == 60
    assert within["results"][0]["mAP_mean"] == printed(on(laid, *words))["results"][0]["mAP_mean"]
    listed.write_text("elsewhere\n")
    refused = on(laid, *words, "--distractors", listed)
    assert refused.exit_code == 2
    assert "vectors.npz: elsewhere." in refused.stderr
