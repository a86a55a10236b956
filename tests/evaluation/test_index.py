"""An index under an evaluation: what is measured is what its searches answer."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind import Index, Manifold
from manifind.evaluation import average_precision, read_truth, runner
from manifind.evaluation import photos as photo_sets
from manifind.evaluation.index_search import IndexSearch
from manifind.features import RegionExtractor
from manifind.index import extract_query_view
from manifind.io import read_photo
from tests.commands import run
from tests.extraction_options import PLAINLY
from tests.index.conftest import index, photos, scene

__all__ = ["index", "photos"]
BOXES = {"first": "20,30,148,158", "second": "180,20,308,148"}


def test_an_index_is_evaluated_with_the_descriptors_that_it_has(
    index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = tmp_path / "things.csv"
    rows = [f'{kind}-0.png,"{box}",{";".join(f"{kind}-{i}.png" for i in (1, 2, 3))}' for kind, box in BOXES.items()]
    truth.write_text("query,box,positives\n" + "\n".join(rows) + "\n")
    extracted = list[Any]()
    usual = RegionExtractor.extract_unwhitened

    def counted(self: RegionExtractor, photo: Any) -> Any:
        extracted.append(photo)
        return usual(self, photo)

    monkeypatch.setattr(RegionExtractor, "extract_unwhitened", counted)
    methods = ("--method", "regional-diffusion:k=20,query_k=20", "--method", "index")
    words = [index.path, "--truth", truth, *methods, "--no-cache", "--json"]
    result = run("evaluate", *words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(extracted) == 2  # the queries alone; the index extracts them by itself
    assert "skipped broken.jpg" in result.stderr
    assert found["data"][0]["skipped"][0].startswith("broken.jpg: ")
    assert found["data"][0]["images"] == 12
    assert found["data"][0]["ms_extraction"] > 0
    table = run("evaluate", *words[:-1]).stdout.splitlines()
    assert table[0].endswith("with extraction")
    alone, _, extracted_too = map(float, table[1].split()[-3:])
    assert extracted_too > alone
    assert "2 are ignored" in found["data"][0]["own_photos"]
    diffused, searched = found["results"]
    assert diffused["average_precisions"] == searched["average_precisions"]
    precisions, recalls = [], []
    for (kind, box), measured in zip(BOXES.items(), diffused["average_precisions"], strict=True):
        hits = index.search(photos / f"{kind}-0.png", [float(x) for x in box.split(",")], top=None)
        assert hits.n_matches is not None
        above = [hit.key.startswith(kind) for hit in hits[: hits.n_matches] if hit.key != f"{kind}-0.png"]
        precisions.append(100 * np.mean(above))
        recalls.append(100 * sum(above) / 3)
        keys = [hit.key for hit in hits if hit.key != f"{kind}-0.png"]
        right = [key.startswith(kind) for key in keys]
        assert measured == pytest.approx(100 * average_precision(range(len(keys)), np.flatnonzero(right)), abs=1e-3)
    assert searched["cutoff_precision"] == pytest.approx(np.mean(precisions))
    assert searched["cutoff_recall"] == pytest.approx(np.mean(recalls))
    assert "cutoff_precision" not in diffused


def test_a_truth_may_name_the_copy_of_a_photo(photos: Path, tmp_path: Path) -> None:
    """An index keeps one of identical files; a ground truth knows the other."""
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copy(folder / "first-1.png", folder / "z-copy.png")
    made = Index.create(
        tmp_path / "m.manifind",
        folder,
        **PLAINLY,
        k=20,
        query_k=20,
        alpha=0.99,
    )
    assert made.catalogue.photo_of("z-copy.png") == made.catalogue.of_key("first-1.png")
    truths = {"copy": "z-copy.png;first-2.png", "photo": "first-1.png;first-2.png"}
    found = []
    for name, positives in truths.items():
        (tmp_path / f"{name}.csv").write_text(f"query,positives\nfirst-0.png,{positives}\n")
        words = [made.path, "--truth", tmp_path / f"{name}.csv", "--method", "index", "--no-cache", "--json"]
        result = run("evaluate", *words)
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout)["results"][0]["average_precisions"])
    assert found[0] == found[1]


def test_photos_that_a_protocol_leaves_out_are_left_out_of_the_index(index: Index, photos: Path) -> None:
    """A search then finds what an index of the other photos would find with the same descriptors."""
    keys = [one.key for one in index.catalogue.images]
    kept = [number for number, key in enumerate(keys) if key not in ("first-0.png", "more/none-2.png")]
    names = [keys[number] for number in reversed(kept)]
    image_of = np.repeat(np.arange(len(keys)), index.manifold.layout_.counts)
    rows = np.isin(image_of, kept)
    alone = Manifold(**index.manifold.get_params()).fit(index.manifold.vectors_[rows], image_of[rows])
    box = (20.0, 30.0, 148.0, 158.0)
    seen = extract_query_view(index.extractor, read_photo(photos / "first-0.png").pixels, box)
    expected = alone.search(seen.vectors)
    query = photos / "first-0.png", box, seen.vectors
    (found,) = IndexSearch(verify=0).fit(index, names).search_many([query])
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-7)
    assert [names[i] for i in found.images] == [keys[i] for i in expected.images]
    assert found.n_matches is not None
    (checked,) = IndexSearch().fit(index, names).search_many([query])
    assert sorted(names[i] for i in checked.images[:3]) == ["first-1.png", "first-2.png", "first-3.png"]


@pytest.mark.parametrize("expand", [True, False])
def test_what_is_evaluated_is_what_a_search_answers(index: Index, photos: Path, expand: bool) -> None:
    """With verified photos first, expanded or not, and the same cutoff."""
    box = (20.0, 30.0, 148.0, 158.0)
    seen = extract_query_view(index.extractor, read_photo(photos / "first-0.png").pixels, box)
    names = [one.key for one in index.catalogue.images]
    method = IndexSearch(expand=expand).fit(index, names)
    (found,) = method.search_many([(photos / "first-0.png", box, seen.vectors)])
    result = index.search(photos / "first-0.png", box, top=None, expand=expand)
    assert [names[i] for i in found.images] == [hit.key for hit in result]
    assert found.n_matches == result.n_matches
    assert (IndexSearch().verify, IndexSearch().expand) == (None, True)


def test_an_index_is_diffused_on_with_its_own_parameters(index: Index, tmp_path: Path) -> None:
    truth = tmp_path / "things.csv"
    truth.write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    words = [index.path, "--truth", truth, "--method", "regional-diffusion", "--no-cache", "--json"]
    found = json.loads(run("evaluate", *words).stdout)
    parameters = found["results"][0]["parameters"]
    assert (parameters["k"], parameters["query_k"], parameters["alpha"]) == (20, 20, 0.99)


def test_a_querys_photo_need_not_be_in_the_index(index: Index, photos: Path, tmp_path: Path) -> None:
    Image.fromarray(scene(40, 1, (20, 30))).save(tmp_path / "asked.png")
    truth = tmp_path / "things.csv"
    for name, code in ((os.path.relpath(tmp_path / "asked.png", photos), 0), ("nowhere/asked.png", 2)):
        truth.write_text(
            f'query,box,positives\n{name},"{BOXES["first"]}",first-0.png;first-1.png;first-2.png;first-3.png\n'
        )
        words = [index.path, "--truth", truth, "--method", "index", "--no-cache", "--json"]
        result = run("evaluate", *words)
        assert result.exit_code == code
        if code:
            assert "has queries whose photos are not in" in result.stderr
        else:
            assert json.loads(result.stdout)["results"][0]["average_precisions"] == [100.0]


def test_the_neighbours_of_the_index_are_reused_and_the_truth_is_read_once(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = tmp_path / "things.csv"
    truth.write_text(f'query,box,positives\nfirst-0.png,"{BOXES["first"]}",first-1.png\n')
    reads = list[Path]()

    def counted(path: Path, *others: Any, **options: Any) -> Any:
        reads.append(path)
        return read_truth(path, *others, **options)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("all regions were compared again")

    monkeypatch.setattr(photo_sets, "read_truth", counted)
    monkeypatch.setattr(runner, "exact_neighbours", refused)
    words = ("--truth", truth, "--method", "regional-diffusion", "--no-cache", "--json")
    result = run("evaluate", index.path, *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["results"][0]["parameters"]["k"] == index.manifold.k
    assert reads == [truth]
