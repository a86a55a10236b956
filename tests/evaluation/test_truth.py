"""Published ground truths: read as they are defined, and refused where they cannot be right."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io

import harness
from manifind import InvalidInputError
from manifind.evaluation import read_truth
from tests.errors import raises
from tests.evaluation.truths import NAMES, listed, revisited

# -- Oxford5k and Paris6k ----------------------------------------------------------------------------------------------


def oxford(folder: Path, **changes: str) -> Path:
    files = {
        "hall_1_query": "oxc1_photo_0 10.5 20 300 400.5",
        "hall_1_good": "photo_0\nphoto_1\n",
        "hall_1_ok": "photo_2\n",
        "hall_1_junk": "photo_3\n",
        "arch_1_query": "oxc1_photo_5 1 2 3 4",
        "arch_1_good": "photo_5\n",
        "arch_1_ok": "",
        "arch_1_junk": "",
    } | changes
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def test_oxford_wants_good_and_ok_and_passes_over_junk(tmp_path: Path) -> None:
    protocol = read_truth(oxford(tmp_path / "gt"), NAMES)
    assert [query.name for query in protocol.queries] == ["arch_1", "hall_1"]
    assert protocol.queries[1].image == "photo_0"
    assert protocol.queries[1].box == (10.5, 20, 300, 400.5)
    assert listed(protocol, 0, 1) == ([0, 1, 2], [3])
    assert listed(protocol, 0, 0) == ([5], [])
    assert protocol.name == "Oxford5k"


@pytest.mark.parametrize(
    ("changes", "code", "offender"),
    [
        ({"hall_1_ok": "lost_1\nlost_2\nlost_3\nlost_4"}, "unknown-image", "lost_1, lost_2, lost_3 and 1 more"),
        ({"arch_1_good": "", "arch_1_ok": ""}, "no-positives", "arch_1"),
        ({"arch_1_query": "oxc1_photo_5 30 2 3 4"}, "box-outside", "arch_1 (30, 2, 3, 4)"),
        ({"arch_1_query": "oxc1_photo_5 1 2 3"}, "query-file", "arch_1_query.txt has 4 words"),
        ({"hall_1_junk": "photo_1"}, "positive-and-junk", "hall_1 (jpg/photo_1.jpg)"),
    ],
)
def test_oxford_that_cannot_be_right_is_refused(
    tmp_path: Path, changes: dict[str, str], code: str, offender: str
) -> None:
    with raises(code, InvalidInputError) as refused:
        read_truth(oxford(tmp_path / "gt", **changes), NAMES)
    assert offender in str(refused.value)


def test_a_missing_file_and_missing_names_are_said(tmp_path: Path) -> None:
    folder = oxford(tmp_path / "gt")
    with raises("no-image-names"):
        read_truth(folder)
    (folder / "hall_1_junk.txt").unlink()
    with raises("missing-file"):
        read_truth(folder, NAMES)
    with raises("no-query-files"):
        read_truth(tmp_path, NAMES)


# -- Revisited, in a pickle --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 4, 5])
def test_easy_medium_and_hard_differ_in_what_is_wanted_and_what_is_passed_over(tmp_path: Path, version: int) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps(revisited(), protocol=version))
    protocol = read_truth(path)
    assert protocol.name == "ROxford5k"
    assert [task.name for task in protocol.tasks] == ["Easy", "Medium", "Hard"]
    assert [listed(protocol, task, 0) for task in range(3)] == [([0, 1], [2, 3]), ([0, 1, 2], [3]), ([2], [0, 1, 3])]
    assert [listed(protocol, task, 1) for task in range(3)] == [([], [4]), ([4], []), ([4], [])]
    assert protocol.queries[0].box == (1, 2, 30, 40)


def test_numbers_beyond_the_images_are_named(tmp_path: Path) -> None:
    stored = revisited()
    stored["gnd"][0]["hard"] = [2, 6, 7, 8, 9]
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps(stored))
    with raises("image-number") as refused:
        read_truth(path)
    assert str(refused.value) == (
        f"hard of asked_0 in {path} name images that are not among the 6: 6, 7, 8 and 1 more."
    )
    stored = revisited()
    stored["qimlist"].append("asked_2")
    path.write_bytes(pickle.dumps(stored))
    with raises("query-count"):
        read_truth(path)


# -- INSTRE, in MATLAB files -------------------------------------------------------------------------------------------

BOXES = [[10.0, 20.0, 110.0, 220.0], [50.0, 60.0, 150.0, 90.0]]
"""Corners."""


def version5(path: Path, boxes: list[list[float]]) -> None:
    cells = np.empty((1, 4), object)
    cells[0] = [f"INSTRE-S1/01a/{i:03}.jpg" for i in range(4)]
    asked = np.empty((1, 2), object)
    asked[0] = ["INSTRE-S1/01a/100.jpg", "INSTRE-S2/02b/101.jpg"]
    gnd = np.empty((1, 2), [("ok", object), ("bbx", object)])
    gnd[0, 0] = (np.array([[1, 3]], np.uint16), np.array([boxes[0]]))
    gnd[0, 1] = (np.array([[4]], np.uint16), np.array([boxes[1]]))
    scipy.io.savemat(path, {"imlist": cells, "qimlist": asked, "gnd": gnd})


def version73(path: Path, boxes: list[list[float]]) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:

        def text(value: str) -> Any:
            node = file.create_dataset(f"#refs#/t{len(file['#refs#'])}", data=np.array([[ord(c)] for c in value], "u2"))
            node.attrs["MATLAB_class"] = np.bytes_("char")
            return node.ref

        def cell(name: str, references: list[Any]) -> None:
            file.create_dataset(name, data=np.array([[r] for r in references], h5py.ref_dtype), dtype=h5py.ref_dtype)

        def numbers(values: list[float]) -> Any:
            node = file.create_dataset(f"#refs#/n{len(file['#refs#'])}", data=np.array(values, float)[:, None])
            node.attrs["MATLAB_class"] = np.bytes_("double")
            return node.ref

        file.create_group("#refs#")
        cell("imlist", [text(f"INSTRE-S1/01a/{i:03}.jpg") for i in range(4)])
        cell("qimlist", [text("INSTRE-S1/01a/100.jpg"), text("INSTRE-S2/02b/101.jpg")])
        cell("gnd/ok", [numbers([1, 3]), numbers([4])])
        cell("gnd/bbx", [numbers(box) for box in boxes])


@pytest.mark.parametrize("write", [version5, version73])
@pytest.mark.parametrize("sizes", [False, True])
def test_instre_counts_from_one_and_its_boxes_are_corners_or_sizes(
    tmp_path: Path, write: Callable[[Path, list[list[float]]], None], sizes: bool
) -> None:
    path = tmp_path / "gnd_instre.mat"
    write(path, [[x0, y0, x1 - x0, y1 - y0] for x0, y0, x1, y1 in BOXES] if sizes else BOXES)
    protocol = read_truth(path)
    assert protocol.name == "INSTRE"
    assert protocol.images == tuple(f"INSTRE-S1/01a/{i:03}.jpg" for i in range(4))
    assert [query.image for query in protocol.queries] == ["INSTRE-S1/01a/100.jpg", "INSTRE-S2/02b/101.jpg"]
    assert [listed(protocol, 0, query) for query in range(2)] == [([0, 2], []), ([3], [])]
    assert [query.box for query in protocol.queries] == [tuple(box) for box in BOXES]


@pytest.mark.parametrize("telling", [(10.0, 50.0, 100.0, 40.0), (120.0, 5.0, 100.0, 40.0)])
def test_one_box_whose_numbers_do_not_ascend_tells_that_all_of_instre_are_sizes(
    tmp_path: Path, telling: tuple[float, float, float, float]
) -> None:
    path = tmp_path / "gnd_instre.mat"
    version5(path, [[1, 2, 30, 40], list(telling)])
    x, y, width, height = telling
    assert [query.box for query in read_truth(path).queries] == [(1, 2, 31, 42), (x, y, x + width, y + height)]


def test_a_matlab_file_cut_short_is_refused(tmp_path: Path) -> None:
    for write in (version5, version73):
        path = tmp_path / "gnd_instre.mat"
        write(path, BOXES)
        path.write_bytes(path.read_bytes()[: 700 if write is version73 else 300])
        with raises("matlab-file"):
            read_truth(path)


# -- Holidays ----------------------------------------------------------------------------------------------------------


def test_holidays_reads_groups_off_the_names_and_passes_over_the_query(tmp_path: Path) -> None:
    path = tmp_path / "holidays_images.dat"
    path.write_text("100000.jpg\n100001.jpg\n100002.jpg\n100100.jpg\n100101.jpg\n")
    protocol = read_truth(path)
    assert [query.image for query in protocol.queries] == ["100000.jpg", "100100.jpg"]
    assert [listed(protocol, 0, query) for query in range(2)] == [([1, 2], [0]), ([4], [3])]
    path.write_text("100000.jpg\n100001.jpg\nbeach.jpg\n")
    with raises("not-holidays"):
        read_truth(path)


def test_a_truth_in_json_may_be_called_after_holidays(tmp_path: Path) -> None:
    path = tmp_path / "my_holidays.json"
    path.write_text('{"queries": [{"image": "beach.jpg", "positives": ["sea.jpg"]}]}')
    protocol = read_truth(path, ["beach.jpg", "sea.jpg"])
    assert [query.image for query in protocol.queries] == ["beach.jpg"]


# -- ILIAS -------------------------------------------------------------------------------------------------------------


def test_ilias_is_read_off_its_folders(tmp_path: Path) -> None:
    boxes = {
        "bold_bimp_000/query/Q000_00": "10 20 30 40",
        "bold_bimp_000/pos/P000_00": "1 2 3 4\n10 20 30 40",
        "bold_bimp_000/pos/P000_01": "5 5 5 5",
        "zippy_999/query/Q999_00": "0 0 9 9",
        "zippy_999/query/Q999_01": "0 0 8 8\n4 4 8 8",
        "zippy_999/pos/P999_00": "1 1 2 2",
    }
    for name, text in boxes.items():
        file = tmp_path / "ilias_core" / f"{name}_bbox.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    names = [f"ilias_core/{name}.jpg" for name in boxes] + ["yfcc/1.jpg", "yfcc/2.jpg"]
    protocol = read_truth(tmp_path / "ilias_core", names)
    assert protocol.name == "ILIAS"
    assert protocol.images == tuple(name for name in names if "/query/" not in name)
    assert [query.name for query in protocol.queries] == [
        "bold_bimp_000/query/Q000_00",
        "zippy_999/query/Q999_00",
        "zippy_999/query/Q999_01",
    ]
    assert [query.box for query in protocol.queries] == [(10, 20, 40, 60), (0, 0, 9, 9), (0, 0, 12, 12)]
    assert [listed(protocol, 0, query) for query in range(3)] == [([0, 1], []), ([2], []), ([2], [])]
    assert protocol.objects[0] == {0: (1, 2, 40, 60), 1: (5, 5, 10, 10)}
    with raises("unknown-image"):
        read_truth(tmp_path / "ilias_core", names[:5])


# -- the real ones -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not harness.at_hand(), reason=f"the ground truths are not at {harness.FOLDER}")
def test_the_real_ground_truths_are_the_same_in_their_official_forms(tmp_path: Path) -> None:
    names = json.loads((harness.FOLDER / "names.json").read_text())
    stored = json.loads((harness.FOLDER / "ground_oxford5k.json").read_text())
    folder = tmp_path / "gt_files"
    folder.mkdir()
    for key, entry in stored.items():
        (folder / f"{key}_query.txt").write_text(f"oxc1_{entry['name']} {' '.join(map(str, entry['box']))}\n")
        for label in ("good", "ok", "junk"):
            (folder / f"{key}_{label}.txt").write_text("".join(f"{name}\n" for name in entry[label]))
    revisited_json = json.loads((harness.FOLDER / "ground_roxford5k.json").read_text())
    pickled = tmp_path / "gnd_roxford5k.pkl"
    gnd = [
        {"bbx": query["box"], **{label: np.array(query[label], int) for label in ("easy", "hard", "junk")}}
        for query in revisited_json["queries"]
    ]
    asked = [query["name"] for query in revisited_json["queries"]]
    pickled.write_bytes(pickle.dumps({"imlist": revisited_json["images"], "qimlist": asked, "gnd": gnd}))
    for official, shared in ((folder, "ground_oxford5k.json"), (pickled, "ground_roxford5k.json")):
        a, b = read_truth(official, names), read_truth(harness.FOLDER / shared, names)
        assert a.images == b.images
        assert a.queries == b.queries
        for one, other in zip(a.tasks, b.tasks, strict=True):
            assert one.name == other.name
            for x, y in zip((*one.positives, *one.junk), (*other.positives, *other.junk), strict=True):
                assert set(x.tolist()) == set(y.tolist())
    assert (len(a.images), len(a.queries), len(stored), len(names)) == (4993, 70, 55, 5063)
