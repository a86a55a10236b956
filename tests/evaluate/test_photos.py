"""Photos under an evaluation: sizes and boxes of objects from where they lie."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from manifind import Index, InvalidInput, Manifold
from manifind.cli import main
from manifind.cli.describing import describer_of, settings_of
from manifind.describe import Describer, load_describer, read_photo
from manifind.evaluate import Protocol, QueryPhoto, Task, average_precision
from manifind.evaluate import command as evaluation
from manifind.evaluate.cache import Cache, checksum_of_code
from manifind.evaluate.index_search import IndexSearch
from manifind.evaluate.photos import Photos, regions_and_whole
from manifind.index import view
from manifind.index.asking.refine import BY_DEFAULT, REFINEMENTS
from tests.described import PLAINLY
from tests.index.conftest import index, photos, scene
from tests.index.small import small_describer, small_photo

__all__ = ["index", "photos"]
BOXES = {"first": "20,30,148,158", "second": "180,20,308,148"}


@pytest.fixture
def instre(tmp_path: Path) -> Path:
    """Photos of 200 × 100 with their boxes beside them, as INSTRE has them: x, y, width, height."""
    for name, boxes in {
        "INSTRE-S1/01a_book/001": "20 10 40 50",
        "INSTRE-S1/01b_cup/001": "0 0 200 100",
        "INSTRE-M/01/001": "10 10 20 50\n100 50 100 50",
    }.items():
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((100, 200, 3), np.uint8)).save(path)
        path.with_suffix(".txt").write_text(boxes + "\n")
    return tmp_path


def protocol(*queries: tuple[str, list[int]]) -> Protocol:
    images = ("INSTRE-S1/01a_book/001.jpg", "INSTRE-S1/01b_cup/001.jpg", "INSTRE-M/01/001.jpg")
    asked = tuple(QueryPhoto(str(i), image) for i, (image, _) in enumerate(queries))
    positives = tuple(np.array(wanted) for _, wanted in queries)
    return Protocol("INSTRE", images, asked, (Task("INSTRE", positives, tuple(np.empty(0, int) for _ in queries)),))


def test_instre_has_the_boxes_of_objects_beside_its_photos(instre: Path) -> None:
    photos = Photos(instre, load_describer(), Cache(None))
    sizes = dict.fromkeys(photos.names, (200.0, 100.0))
    found = photos.with_sizes(
        protocol(("INSTRE-S1/01a_book/9.jpg", [0, 2]), ("INSTRE-S1/01b_cup/9.jpg", [1, 2]), ("INSTRE-M/01/9.jpg", [2])),
        sizes,
    )
    np.testing.assert_allclose(found.relative_sizes(0, [0, 2]), [0.1, 0.05])
    np.testing.assert_allclose(found.relative_sizes(1, [1, 2]), [1, 0.25])
    # A query for both objects: the box around both.
    np.testing.assert_allclose(found.relative_sizes(2, [2]), [190 * 90 / 20_000])


def test_a_text_that_is_no_boxes_is_refused(instre: Path) -> None:
    (instre / "INSTRE-S1/01a_book/001.txt").write_text("a book\n")
    photos = Photos(instre, load_describer(), Cache(None))
    with pytest.raises(InvalidInput, match=r"001\.txt is no list of boxes"):
        photos.with_sizes(protocol(("INSTRE-S1/01a_book/9.jpg", [0])), dict.fromkeys(photos.names, (200.0, 100.0)))


def test_a_folder_without_photos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no photos"):
        Photos(tmp_path, load_describer(), Cache(None))


def test_the_global_descriptor_of_a_photo_is_whitened_on_its_own() -> None:
    """The regions are those that an index has; the whole is their sum before whitening, then whitened: Sec. 5.1."""
    describer, pixels = small_describer(), small_photo(3)
    assert describer.whitening is not None
    regions, whole = regions_and_whole(describer.unwhitened(pixels), describer.whitening)
    np.testing.assert_allclose(regions, describer.describe(pixels).vectors, atol=1e-6)
    total = describer.unwhitened(pixels).astype(np.float64).sum(axis=0)
    centred = (total / np.linalg.norm(total) - describer.whitening.mean) @ describer.whitening.project
    np.testing.assert_allclose(whole, centred / np.linalg.norm(centred), atol=1e-5)


def test_index_evaluate_and_whiten_take_the_same_words_for_how_photos_are_described(
    photos: Path, tmp_path: Path
) -> None:
    """A whitening learnt with some words serves an evaluation with the same; descriptors have its dimensions."""
    pairs = [f"{photos}/{kind}-{i}.png,{photos}/{kind}-{i + 1}.png" for kind in ("first", "second") for i in range(3)]
    (tmp_path / "pairs.csv").write_text("\n".join(pairs))
    (tmp_path / "things.csv").write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    words = ["--pooling", "mac", "--zooms", "1,0.5", "--long-side", "256"]

    def run(*given: object) -> Any:
        return CliRunner().invoke(main, [str(word) for word in given], catch_exceptions=False)

    learnt = run("whiten", tmp_path / "pairs.csv", "-o", tmp_path / "w.npz", "--dimension", 3, *words)
    assert learnt.exit_code == 0, learnt.output
    asked = ["evaluate", photos, "--truth", tmp_path / "things.csv", "--method", "nearest", "--no-cache", "--json"]
    found = run(*asked, "--whiten", tmp_path / "w.npz", *words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["results"][0]["mAP_mean"] > 0
    assert "passed over broken.jpg" in found.stderr
    made = run(
        "index", photos, "-o", tmp_path / "m.manifind", "--whiten", tmp_path / "w.npz", *words[:2], "--zooms", "1,0.5"
    )
    assert made.exit_code == 0, made.output
    settings = Index.open(tmp_path / "m.manifind").describer.settings
    assert (settings["pooling"], list(settings["zooms"])) == ("mac", [1.0, 0.5])


@pytest.mark.parametrize("words", [(), ("--whiten", "shipped", "--zooms", "1")])
def test_a_folder_is_described_as_an_index_of_it_would_be(photos: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The whitening that is learnt from the photos on the way is the one that an index learns."""
    truth = tmp_path / "things.csv"
    truth.write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    made = CliRunner().invoke(main, ["index", str(photos), "-o", str(tmp_path / "m.manifind"), *words])
    assert made.exit_code == 0, made.output
    asked = evaluation.Request(photos, [truth], methods=["nearest"])
    given = dict(zip(words[::2], words[1::2], strict=True))
    zooms = given.get("--zooms")
    settings = settings_of(zooms=None if zooms is None else (float(zooms),))
    found = evaluation.run(asked, partial(describer_of, None, given.get("--whiten"), **settings))
    with Index.open(tmp_path / "m.manifind") as index:
        names = [one.key for one in index.catalogue.images]
        regional = found.evaluation.data[0].images.regional
        assert regional is not None
        assert found.evaluation.data[0].images.names == tuple(names)
        similar = np.einsum("ij,ij->i", regional.vectors, np.asarray(index.manifold.vectors_, np.float32))
        np.testing.assert_allclose(similar, 1, atol=2e-3)


# -- an index ----------------------------------------------------------------------------------------------------------


def test_an_index_is_evaluated_with_the_descriptors_that_it_has(
    index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = tmp_path / "things.csv"
    rows = [f'{kind}-0.png,"{box}",{";".join(f"{kind}-{i}.png" for i in (1, 2, 3))}' for kind, box in BOXES.items()]
    truth.write_text("query,box,positives\n" + "\n".join(rows) + "\n")
    described = list[Any]()
    usual = Describer.unwhitened

    def counted(self: Describer, photo: Any) -> Any:
        described.append(photo)
        return usual(self, photo)

    monkeypatch.setattr(Describer, "unwhitened", counted)
    methods = ("--method", "regional-diffusion:k=20,query_k=20", "--method", "index")
    words = [index.path, "--truth", truth, *methods, "--no-cache", "--json"]
    result = CliRunner().invoke(main, ["evaluate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(described) == 2  # the queries alone; the index describes them by itself
    assert "passed over broken.jpg" in result.stderr
    assert found["data"][0]["passed_over"][0].startswith("broken.jpg: ")
    assert found["data"][0]["images"] == 12
    assert found["data"][0]["ms_describing"] > 0
    table = CliRunner().invoke(main, ["evaluate", *map(str, words[:-1])], catch_exceptions=False).stdout.splitlines()
    assert table[0].endswith("with describing")
    alone, _, described_too = map(float, table[1].split()[-3:])
    assert described_too > alone
    del described[2:]
    assert "2 are passed over" in found["data"][0]["own_photos"]
    diffused, searched = found["results"]
    assert diffused["average_precisions"] == searched["average_precisions"]
    precisions, recalls = [], []
    for (kind, box), measured in zip(BOXES.items(), diffused["average_precisions"], strict=True):
        hits = index.search(photos / f"{kind}-0.png", [float(x) for x in box.split(",")], top=None)
        assert hits.likely is not None
        above = [hit.key.startswith(kind) for hit in hits[: hits.likely] if hit.key != f"{kind}-0.png"]
        precisions.append(100 * np.mean(above))
        recalls.append(100 * sum(above) / 3)
        keys = [hit.key for hit in hits if hit.key != f"{kind}-0.png"]
        right = [key.startswith(kind) for key in keys]
        assert measured == pytest.approx(100 * average_precision(range(len(keys)), np.flatnonzero(right)), abs=1e-3)
    assert searched["line_precision"] == pytest.approx(np.mean(precisions))
    assert searched["line_recall"] == pytest.approx(np.mean(recalls))
    assert "line_precision" not in diffused


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
        result = CliRunner().invoke(main, ["evaluate", *map(str, words)], catch_exceptions=False)
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
    seen = view(index.describer, read_photo(photos / "first-0.png").pixels, box)
    expected = alone.search(seen.vectors)
    query = photos / "first-0.png", box, seen.vectors
    (found,) = IndexSearch(verify=0).fit(index, names).search_many([query])
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-7)
    assert [names[i] for i in found.images] == [keys[i] for i in expected.images]
    assert found.likely is not None
    (checked,) = IndexSearch().fit(index, names).search_many([query])
    assert sorted(names[i] for i in checked.images[:3]) == ["first-1.png", "first-2.png", "first-3.png"]


@pytest.mark.parametrize("refine", REFINEMENTS)
def test_what_is_evaluated_is_what_a_search_answers(index: Index, photos: Path, refine: str) -> None:
    """With verified photos first, refined or not, and the same line."""
    box = (20.0, 30.0, 148.0, 158.0)
    seen = view(index.describer, read_photo(photos / "first-0.png").pixels, box)
    names = [one.key for one in index.catalogue.images]
    method = IndexSearch(refine=refine).fit(index, names)
    (found,) = method.search_many([(photos / "first-0.png", box, seen.vectors)])
    answer = index.search(photos / "first-0.png", box, top=None, refine=refine)
    assert [names[i] for i in found.images] == [hit.key for hit in answer]
    assert found.likely == answer.likely
    assert (IndexSearch().verify, IndexSearch().refine) == (None, BY_DEFAULT)


def test_an_index_is_diffused_on_with_its_own_parameters(index: Index, tmp_path: Path) -> None:
    truth = tmp_path / "things.csv"
    truth.write_text("query,positives\nfirst-0.png,first-1.png;first-2.png\n")
    words = [index.path, "--truth", truth, "--method", "regional-diffusion", "--no-cache", "--json"]
    found = json.loads(CliRunner().invoke(main, ["evaluate", *map(str, words)], catch_exceptions=False).stdout)
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
        result = CliRunner().invoke(main, ["evaluate", *map(str, words)])
        assert result.exit_code == code
        if code:
            assert "has queries whose photos are not in" in result.stderr
        else:
            assert json.loads(result.stdout)["results"][0]["average_precisions"] == [100.0]


def test_what_is_kept_is_known_by_the_code_that_made_it(tmp_path: Path) -> None:
    """One letter of one module is another code; a file beside the rooms is not."""
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("a = 1\n")
    (tmp_path / "two.py").write_text("b = 1\n")
    rooms = ("room", "two.py")
    checksum_of_code.cache_clear()
    before = checksum_of_code(*rooms, root=tmp_path)
    for change, differs in (("three.py", False), ("room/notes.txt", False), ("two.py", True), ("room/one.py", True)):
        (tmp_path / change).write_text("b = 2\n")
        checksum_of_code.cache_clear()
        after = checksum_of_code(*rooms, root=tmp_path)
        assert (after != before) is differs
        before = after
