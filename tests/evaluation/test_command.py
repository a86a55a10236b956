"""``manifind evaluate`` on descriptors, as it is typed."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import Manifold
from manifind.baselines import NearestImages, RegionMatch
from manifind.evaluation import evaluate
from manifind.evaluation import runner as running
from manifind.evaluation.methods import METHODS
from tests.evaluation.conftest import Laid
from tests.evaluation.evaluate_command import FEW, by_hand, counted, on, printed, run


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


def test_a_solver_that_works_off_line_ranks_as_the_closed_form_does(laid: Laid) -> None:
    """On so few images nothing is cut off; conjugate gradient has converged in 200 steps."""
    settings = ["solver=offline,size=60,max_iter=200", "solver=spectral,size=60", "max_iter=200"]
    words = [word for one in settings for word in ("--method", f"global-diffusion:k=10,tol=1e-7,{one}")]
    offline, spectral, solved = printed(on(laid, *words, "--no-cache", "--json"))["results"]
    assert offline["mAP_trapezoid"] == pytest.approx(solved["mAP_trapezoid"], abs=0.2)
    assert spectral["mAP_trapezoid"] == pytest.approx(solved["mAP_trapezoid"], abs=0.2)
    assert "solver = offline" in offline["title"]


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
    calls = list[str]()

    def interrupted(estimator: Any, *others: Any, **options: Any) -> Any:
        calls.append(next(name for name, method in METHODS.items() if method.make is type(estimator)))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(estimator, *others, **options)

    monkeypatch.setattr(running, "evaluate", interrupted)
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
    given = (laid.vectors, "--truth", truth, "--queries", laid.queries, "--preset", "paper", "--cache", tmp_path / "k")
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
    assert "r-match needs regional descriptors, which" in result.stderr
    assert "hqe needs photos" in result.stderr
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
