"""Ground truths: read as their publications define them, and refused where they cannot be right."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io

import oxford5k_data
from manifind import InvalidInput
from manifind.evaluate import Protocol, average_precision, read_truth
from manifind.evaluate.unpickle import read_pickle
from tests.attack import pickles

NAMES = [f"jpg/photo_{i}.jpg" for i in range(8)]


def listed(protocol: Protocol, task: int, query: int) -> tuple[list[int], list[int]]:
    found = protocol.tasks[task]
    return sorted(found.positives[query].tolist()), sorted(found.junk[query].tolist())


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
    ("changes", "message"),
    [
        ({"hall_1_ok": "lost_1\nlost_2\nlost_3\nlost_4"}, "not in the collection: lost_1, lost_2, lost_3 and 1 more"),
        ({"arch_1_good": "", "arch_1_ok": ""}, "no positive for query arch_1"),
        ({"arch_1_query": "oxc1_photo_5 30 2 3 4"}, r"no box in its photo.*arch_1 \(30, 2, 3, 4\)"),
        ({"arch_1_query": "oxc1_photo_5 1 2 3"}, "has 4 words"),
        ({"hall_1_junk": "photo_1"}, r"both positive and junk, of query hall_1 \(jpg/photo_1.jpg\)"),
    ],
)
def test_oxford_that_cannot_be_right_is_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_truth(oxford(tmp_path / "gt", **changes), NAMES)


def test_a_missing_file_and_missing_names_are_said(tmp_path: Path) -> None:
    folder = oxford(tmp_path / "gt")
    with pytest.raises(InvalidInput, match="--names"):
        read_truth(folder)
    (folder / "hall_1_junk.txt").unlink()
    with pytest.raises(InvalidInput, match=r"hall_1_junk\.txt is missing"):
        read_truth(folder, NAMES)
    with pytest.raises(InvalidInput, match=r"no \*_query.txt"):
        read_truth(tmp_path, NAMES)


# -- Revisited, in a pickle --------------------------------------------------------------------------------------------


def revisited() -> dict[str, Any]:
    return {
        "imlist": [f"photo_{i}" for i in range(6)],
        "qimlist": ["asked_0", "asked_1"],
        "gnd": [
            {"bbx": [1.0, 2.0, 30.0, 40.0], "easy": [0, 1], "hard": [2], "junk": [3]},
            {"bbx": np.array([1.0, 2.0, 30.0, 40.0]), "easy": np.array([], int), "hard": np.array([4]), "junk": []},
        ],
    }


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


@pytest.mark.parametrize("number", range(10))
def test_every_protocol_and_the_names_of_numpy_1_and_2_are_read(tmp_path: Path, number: int) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickles.written()[number])
    assert (number < 6) or b"cnumpy.core.multiarray" in path.read_bytes()
    protocol = read_truth(path)
    assert [listed(protocol, 1, query) for query in range(2)] == [([0, 1, 2, 3], [4]), ([0], [5, 6])]
    assert [query.box for query in protocol.queries] == [(1, 2, 30, 40), (1, 2, 3, 4)]


@pytest.mark.parametrize("dtype", ["i1", "u2", "<i4", ">i8", "f2", ">f4", "f8", "?"])
@pytest.mark.parametrize("version", [0, 2, 4, 5])
def test_arrays_come_out_of_a_pickle_as_they_went_in(tmp_path: Path, dtype: str, version: int) -> None:
    rows = np.array([[0, 1, 1], [1, 0, 100]]).astype(dtype)
    stored = {"rows": rows, "columns": np.asfortranarray(rows), "none": rows[:0], "one": rows[1, 2], "again": rows}
    path = tmp_path / "some.pkl"
    path.write_bytes(pickle.dumps(stored, protocol=version))
    found = read_pickle(path)
    for name in ("rows", "columns", "none", "again"):
        assert found[name].dtype == rows.dtype
        np.testing.assert_array_equal(found[name], stored[name])
    assert found["one"] == rows[1, 2].item()
    assert isinstance(found["one"], bool | int | float)


@pytest.mark.parametrize("version", range(6))
def test_plain_values_come_out_of_a_pickle_and_names_alone_do_not(tmp_path: Path, version: int) -> None:
    path = tmp_path / "some.pkl"
    plain = {
        "none": None,
        "both": (True, False),
        "numbers": [1, -2, 2**40, 0.5],
        "text": "é",
        "within": [{"a": [None]}],
    }
    path.write_bytes(pickle.dumps(plain, protocol=version))
    assert read_pickle(path) == plain
    path.write_bytes(pickle.dumps({"dtype": np.ndarray}, protocol=version))
    with pytest.raises(InvalidInput, match="it has a name where a value should be"):
        read_pickle(path)


@pytest.mark.parametrize("name", pickles.hostile())
def test_a_hostile_pickle_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "gnd_x.pkl"
    path.write_bytes(pickles.hostile()[name])
    with pytest.raises(InvalidInput, match=r"gnd_x\.pkl is not a ground truth that can be read safely: it "):
        read_pickle(path)


def test_mutated_pickles_neither_crash_nor_stall_the_reader() -> None:
    """In a process of its own; ``python -m tests.attack.pickles`` tries thousands."""
    assert "'read': " in pickles.attack(400)


class _Runs:
    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("version", [0, 2, 4, 5])
@pytest.mark.parametrize("function", [os.system, os.mkdir, eval, exec, getattr, open, np.load, np.savetxt])
def test_nothing_in_a_pickle_is_run(tmp_path: Path, function: Callable[..., Any], version: int) -> None:
    mark = tmp_path / "mark"
    argument = {os.system: f"touch {mark}", eval: f"open({str(mark)!r}, 'w')", exec: f"open({str(mark)!r}, 'w')"}
    evil = _Runs(function, argument.get(function, str(mark)), *(["w"] if function is open else []))
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps({**revisited(), "more": [evil]}, protocol=version))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match=r"read safely: it asks for \w+"):
        read_truth(path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_function_hidden_behind_an_allowed_name_is_not_found(tmp_path: Path) -> None:
    """Protocol 4 looks up dotted names: numpy.ndarray.tofile must not come through numpy.ndarray."""
    path = tmp_path / "gnd_x.pkl"
    path.write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.")
    with pytest.raises(InvalidInput, match=r"numpy.ndarray.tofile"):
        read_pickle(path)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff" * 50, lambda b: b[5:]])
def test_a_damaged_pickle_is_refused_in_a_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(damage(pickle.dumps(revisited())))
    with pytest.raises(InvalidInput, match=r"gnd_roxford5k\.pkl"):
        read_truth(path)


def test_numbers_beyond_the_images_are_named(tmp_path: Path) -> None:
    stored = revisited()
    stored["gnd"][0]["hard"] = [2, 6, 7, 8, 9]
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps(stored))
    with pytest.raises(InvalidInput, match=r"hard of asked_0.*not among the 6: 6, 7, 8 and 1 more"):
        read_truth(path)
    stored = revisited()
    stored["qimlist"].append("asked_2")
    path.write_bytes(pickle.dumps(stored))
    with pytest.raises(InvalidInput, match="3 queries and 2 entries"):
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
        with pytest.raises(InvalidInput, match=r"gnd_instre\.mat"):
            read_truth(path)


# -- Holidays ----------------------------------------------------------------------------------------------------------


def test_holidays_reads_groups_off_the_names_and_passes_over_the_query(tmp_path: Path) -> None:
    path = tmp_path / "holidays_images.dat"
    path.write_text("100000.jpg\n100001.jpg\n100002.jpg\n100100.jpg\n100101.jpg\n")
    protocol = read_truth(path)
    assert [query.image for query in protocol.queries] == ["100000.jpg", "100100.jpg"]
    assert [listed(protocol, 0, query) for query in range(2)] == [([1, 2], [0]), ([4], [3])]
    path.write_text("100000.jpg\n100001.jpg\nbeach.jpg\n")
    with pytest.raises(InvalidInput, match=r"beach\.jpg"):
        read_truth(path)


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
    with pytest.raises(InvalidInput, match="not in the collection: zippy_999/pos/P999_00"):
        read_truth(tmp_path / "ilias_core", names[:5])


# -- anybody's ---------------------------------------------------------------------------------------------------------


def test_csv_and_json_say_the_same(tmp_path: Path) -> None:
    table = tmp_path / "toys.csv"
    table.write_text(
        "query,box,positives,junk\n"
        'photo_0,"1,2,30,40",photo_1.jpg;jpg/photo_2.jpg,photo_3\n'
        "elsewhere.jpg,,photo_4,\n"
        "photo_0,5;6;7;8,photo_6,\n"
    )
    stored = {
        "name": "toys",
        "queries": [
            {"image": "photo_0", "box": [1, 2, 30, 40], "positives": ["photo_1", "photo_2"], "junk": ["photo_3"]},
            {"image": "elsewhere.jpg", "positives": ["photo_4"]},
            {"image": "photo_0", "box": [5, 6, 7, 8], "positives": ["photo_6"]},
        ],
    }
    file = tmp_path / "toys.json"
    file.write_text(json.dumps(stored))
    for path in (table, file):
        protocol = read_truth(path, NAMES)
        assert protocol.name == "toys"
        assert [query.name for query in protocol.queries] == ["photo_0", "elsewhere.jpg", "photo_0 (2)"]
        assert [query.box for query in protocol.queries] == [(1, 2, 30, 40), None, (5, 6, 7, 8)]
        # The photo that a query was cut out of is passed over.
        assert [listed(protocol, 0, query) for query in range(3)] == [([1, 2], [0, 3]), ([4], []), ([6], [0])]


def own(tmp_path: Path, *queries: dict[str, Any], **more: Any) -> Path:
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"queries": list(queries), **more}))
    return path


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"positives": ["lost"]}, "own.json names images that are not in the collection: lost"),
        ({"positives": []}, "own has no positive for query photo_0"),
        ({"positives": ["photo_0", "photo_1"]}, "the query itself among the positives of photo_0"),
        ({"positives": ["photo_1"], "junk": ["photo_1"]}, "both positive and junk"),
        ({"positives": ["photo_1"], "box": [1, 2, 3]}, "box of photo_0 is"),
        ({"positives": ["photo_1"], "box": [5, 2, 3, 9]}, r"no box in its photo.*photo_0 \(5, 2, 3, 9\)"),
        (
            {"positives": [{"image": "photo_1", "box": [0, 0, 700, 40], "photo": [640, 480]}]},
            r"photo_0 in jpg/photo_1.jpg \(0, 0, 700, 40\)",
        ),
        ({}, "not laid out"),
    ],
)
def test_a_ground_truth_of_ones_own_that_cannot_be_right_is_refused(
    tmp_path: Path, query: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_truth(own(tmp_path, {"image": "photo_0", **query}), NAMES)


@pytest.mark.parametrize("side", range(4))
def test_a_box_may_leave_its_photo_by_a_pixel_of_rounding_and_by_no_more(tmp_path: Path, side: int) -> None:
    for beyond in (1, 2):
        box = [0, 0, 640, 480]
        box[side] += beyond if side > 1 else -beyond
        positive = {"image": "photo_1", "box": box, "photo": [640, 480]}
        path = own(tmp_path, {"image": "photo_0", "positives": [positive]})
        if beyond == 1:
            assert read_truth(path, NAMES).objects == ({1: tuple(box)},)
        else:
            with pytest.raises(InvalidInput, match="no box in its photo"):
                read_truth(path, NAMES)


def test_the_query_may_count_if_one_says_so(tmp_path: Path) -> None:
    query = {"image": "photo_0", "positives": ["photo_0", "photo_1"]}
    assert listed(read_truth(own(tmp_path, query, query_counts=True), NAMES), 0, 0) == ([0, 1], [])
    assert listed(read_truth(own(tmp_path, query), NAMES, query_counts=True), 0, 0) == ([0, 1], [])


def test_the_querys_own_photo_is_no_mistake(tmp_path: Path) -> None:
    """Photo 0 is the query's own, comes first, and is neither positive nor junk in the file."""
    path = own(tmp_path, {"image": "photo_0.jpg", "positives": ["photo_1"]})
    ranked = [0, 1, 2, 3, 4, 5, 6, 7]

    def score(protocol: Protocol) -> float:
        (task,) = protocol.tasks
        return average_precision(ranked, task.positives[0], task.junk[0])

    passed_over = read_truth(path, NAMES)
    assert score(passed_over) == 1
    assert "1 are passed over and 0 count" in passed_over.what_becomes_of_own_photos()
    counted = read_truth(path, NAMES, query_counts=True)
    assert score(counted) == 0.25
    assert "0 are passed over and 1 count" in counted.what_becomes_of_own_photos()


def test_a_photo_of_the_same_name_in_another_folder_is_not_the_querys_own(tmp_path: Path) -> None:
    path = own(tmp_path, {"image": "other/photo_0.jpg", "positives": ["photo_1"]})
    assert listed(read_truth(path, NAMES), 0, 0) == ([1], [])


def test_it_is_said_how_many_queries_have_no_photo_in_the_collection(tmp_path: Path) -> None:
    images = ["photo_0", "elsewhere", "photo_3", "beyond"]
    path = own(tmp_path, *({"image": image, "positives": ["photo_1"]} for image in images))
    assert (
        "of 4 queries' own photos 2 are not in the collection, 2 are"
        in read_truth(path, NAMES).what_becomes_of_own_photos()
    )


COPIES = {"more/twin.jpg": "jpg/photo_1.jpg", "self.jpg": "jpg/photo_0.jpg", "x/photo_1.jpg": "jpg/photo_1.jpg"}


def test_a_copy_stands_for_the_photo_that_it_is_a_copy_of(tmp_path: Path) -> None:
    """A copy of a positive is no second one to find, and a copy of the query's photo is that photo."""
    query = {"image": "self", "positives": ["twin", "photo_1.jpg", "photo_2"], "junk": ["photo_3"]}
    protocol = read_truth(own(tmp_path, query), NAMES, copies=COPIES)
    assert protocol.images == tuple(NAMES)
    assert protocol.queries[0].image == "jpg/photo_0.jpg"
    assert listed(protocol, 0, 0) == ([1, 2], [0, 3])
    with pytest.raises(InvalidInput, match="not in the collection: twin"):
        read_truth(own(tmp_path, query), NAMES)


def test_the_querys_own_copy_is_nothing_to_find(tmp_path: Path) -> None:
    path = own(tmp_path, {"image": "photo_0", "positives": ["self", "twin"]})
    assert listed(read_truth(path, NAMES, copies=COPIES), 0, 0) == ([1], [0])
    with pytest.raises(InvalidInput, match="no positive for query photo_0"):
        read_truth(own(tmp_path, {"image": "photo_0", "positives": ["self"]}), NAMES, copies=COPIES)


def test_a_truth_that_lists_its_images_has_each_once_whatever_copies_it_lists(tmp_path: Path) -> None:
    images = ["photo_2", "twin", "photo_1", "photo_4"]
    positives = [{"image": "photo_1", "box": [0, 0, 64, 48], "photo": [640, 480]}]
    path = own(tmp_path, {"image": "photo_0", "positives": positives, "junk": ["photo_4"]}, images=images)
    protocol = read_truth(path, NAMES, copies=COPIES)
    assert protocol.images == ("photo_2", "jpg/photo_1.jpg", "photo_4")
    assert listed(protocol, 0, 0) == ([1], [2])
    np.testing.assert_allclose(protocol.relative_sizes(0, [1]), [0.01])


def test_sizes_of_objects_are_parts_of_their_photos(tmp_path: Path) -> None:
    positives = [{"image": "photo_1", "box": [30, 20, 94, 68], "photo": [640, 480]}, "photo_2"]
    protocol = read_truth(own(tmp_path, {"image": "photo_0", "positives": positives}), NAMES)
    np.testing.assert_allclose(protocol.relative_sizes(0, [1, 2]), [0.01, np.nan])


def test_two_images_of_one_name_and_what_is_no_ground_truth_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"lists a twice"):
        read_truth(own(tmp_path, {"image": "q", "positives": ["a"]}, images=["a", "b", "a"]))
    (tmp_path / "own.json").write_text("[1, 2")
    with pytest.raises(InvalidInput, match="not JSON"):
        read_truth(tmp_path / "own.json", NAMES)
    (tmp_path / "x.docx").write_text("")
    with pytest.raises(InvalidInput, match="no ground truth"):
        read_truth(tmp_path / "x.docx", NAMES)
    (tmp_path / "x.csv").write_text("photo,box\na,b\n")
    with pytest.raises(InvalidInput, match=r"has the columns \['box', 'photo'\]"):
        read_truth(tmp_path / "x.csv", NAMES)
    with pytest.raises(FileNotFoundError):
        read_truth(tmp_path / "none.json", NAMES)


# -- the real ones -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not oxford5k_data.at_hand(), reason=f"the ground truths are not at {oxford5k_data.FOLDER}")
def test_the_real_ground_truths_are_the_same_in_their_official_forms(tmp_path: Path) -> None:
    names = json.loads((oxford5k_data.FOLDER / "names.json").read_text())
    stored = json.loads((oxford5k_data.FOLDER / "ground_oxford5k.json").read_text())
    folder = tmp_path / "gt_files"
    folder.mkdir()
    for key, entry in stored.items():
        (folder / f"{key}_query.txt").write_text(f"oxc1_{entry['name']} {' '.join(map(str, entry['box']))}\n")
        for label in ("good", "ok", "junk"):
            (folder / f"{key}_{label}.txt").write_text("".join(f"{name}\n" for name in entry[label]))
    revisited_json = json.loads((oxford5k_data.FOLDER / "ground_roxford5k.json").read_text())
    pickled = tmp_path / "gnd_roxford5k.pkl"
    gnd = [
        {"bbx": query["box"], **{label: np.array(query[label], int) for label in ("easy", "hard", "junk")}}
        for query in revisited_json["queries"]
    ]
    asked = [query["name"] for query in revisited_json["queries"]]
    pickled.write_bytes(pickle.dumps({"imlist": revisited_json["images"], "qimlist": asked, "gnd": gnd}))
    for official, shared in ((folder, "ground_oxford5k.json"), (pickled, "ground_roxford5k.json")):
        a, b = read_truth(official, names), read_truth(oxford5k_data.FOLDER / shared, names)
        assert a.images == b.images
        assert a.queries == b.queries
        for one, other in zip(a.tasks, b.tasks, strict=True):
            assert one.name == other.name
            for x, y in zip((*one.positives, *one.junk), (*other.positives, *other.junk), strict=True):
                assert set(x.tolist()) == set(y.tolist())
    assert (len(a.images), len(a.queries), len(stored), len(names)) == (4993, 70, 55, 5063)
