"""Ground truths of one's own, in JSON and in CSV: what counts, what is ignored, and what cannot be right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import InvalidInputError
from manifind.evaluation import Protocol, average_precision, read_truth
from tests.commands import refused
from tests.errors import raises
from tests.evaluation.truths import NAMES, listed


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
        # The photo that a query was cut out of is ignored.
        assert [listed(protocol, 0, query) for query in range(3)] == [([1, 2], [0, 3]), ([4], []), ([6], [0])]


def own(tmp_path: Path, *queries: dict[str, Any], **more: Any) -> Path:
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"queries": list(queries), **more}))
    return path


@pytest.mark.parametrize(
    ("query", "code", "sentence"),
    [
        (
            {"positives": ["lost"]},
            "unknown-image",
            "{} names images that are not in the collection: lost; give its own collection.",
        ),
        (
            {"positives": []},
            "no-positives",
            "own has no positive for query photo_0; give at least one image to find, or leave the query out.",
        ),
        (
            {"positives": ["photo_0", "photo_1"]},
            "own-photo-positive",
            "own has the photo of the query itself among the positives of photo_0; take it out or make it junk, or say "
            "that it counts (--query-counts, or query_counts in JSON).",
        ),
        (
            {"positives": ["photo_1"], "junk": ["photo_1"]},
            "positive-and-junk",
            "own has an image that is both positive and junk, of query photo_0 (jpg/photo_1.jpg); let it be one of "
            "them.",
        ),
        (
            {"positives": ["photo_1"], "box": [1, 2, 3]},
            "box-numbers",
            "the box of photo_0 is [1, 2, 3]; give four numbers x0, y0, x1, y1 in pixels.",
        ),
        (
            {"positives": ["photo_1"], "box": [5, 2, 3, 9]},
            "box-outside",
            "own has a box that is no box in its photo, x0 < x1 and y0 < y1 within it: photo_0 (5, 2, 3, 9).",
        ),
        (
            {"positives": [{"image": "photo_1", "box": [0, 0, 700, 40], "photo": [640, 480]}]},
            "box-outside",
            "own has a box that is no box in its photo, x0 < x1 and y0 < y1 within it: photo_0 in jpg/photo_1.jpg "
            "(0, 0, 700, 40).",
        ),
        (
            {},
            "query-fields",
            '{}: query 1 has no image or no positives; give {{"image": "duck.jpg", "positives": ["a.jpg"]}}.',
        ),
        (
            {"positives": 3},
            "truth-layout",
            "{} is not laid out as a ground truth: TypeError at 'int' object is not iterable.",
        ),
        (
            {"positives": [{"image": "photo_1", "photo": ["wide"]}]},
            "truth-layout",
            "{} is not laid out as a ground truth: ValueError at could not convert string to float: 'wide'.",
        ),
    ],
)
def test_a_ground_truth_of_ones_own_that_cannot_be_right_is_refused(
    tmp_path: Path, query: dict[str, Any], code: str, sentence: str
) -> None:
    path = own(tmp_path, {"image": "photo_0", **query})
    with raises(code, InvalidInputError) as error:
        read_truth(path, NAMES)
    assert str(error.value) == sentence.format(path)


HEADER = b"query,box,positives,junk\n"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x.json", b"[" * 100_000, "not-json"),
        ("x.json", b'{"queries": [{"image": "q", "positives": ["\\ud800"]}]}', "not-json"),
        ("x.json", b'{"queries": "\xff"}', "not-utf-8"),
        ("x.csv", HEADER + b"photo_0,," + b"photo_1;" * 20_000 + b"\n", "not-csv"),
        ("x.csv", HEADER + b"photo_0,,\xff,\n", "not-utf-8"),
        ("x.csv", HEADER + b",,photo_1,\n", "query-fields"),
        ("x.csv", HEADER + b"photo_0\n", "no-positives"),
        ("x.dat", b"100000.jpg\n\xff.jpg\n", "not-utf-8"),
    ],
)
def test_a_file_that_no_text_editor_wrote_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, code: str
) -> None:
    (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "x.npz", vectors=np.eye(len(NAMES), dtype=np.float32), names=NAMES)
    with raises(code, InvalidInputError) as error:
        read_truth(tmp_path / name, NAMES)
    sentence = str(error.value)
    assert sentence.endswith(".")
    assert len(sentence) < 500
    words = ("--truth", tmp_path / name, "--queries", tmp_path / "x.npz", "--no-cache")
    assert refused("evaluate", tmp_path / "x.npz", *words) == sentence


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
            with raises("box-outside"):
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

    ignored = read_truth(path, NAMES)
    assert score(ignored) == 1
    assert "1 are ignored and 0 count" in ignored.own_photos_note()
    counted = read_truth(path, NAMES, query_counts=True)
    assert score(counted) == 0.25
    assert "0 are ignored and 1 count" in counted.own_photos_note()


def test_a_photo_of_the_same_name_in_another_folder_is_not_the_querys_own(tmp_path: Path) -> None:
    path = own(tmp_path, {"image": "other/photo_0.jpg", "positives": ["photo_1"]})
    assert listed(read_truth(path, NAMES), 0, 0) == ([1], [])


def test_it_is_said_how_many_queries_have_no_photo_in_the_collection(tmp_path: Path) -> None:
    images = ["photo_0", "elsewhere", "photo_3", "beyond"]
    path = own(tmp_path, *({"image": image, "positives": ["photo_1"]} for image in images))
    assert "of 4 queries' own photos 2 are not in the collection, 2 are" in read_truth(path, NAMES).own_photos_note()


COPIES = {"more/twin.jpg": "jpg/photo_1.jpg", "self.jpg": "jpg/photo_0.jpg", "x/photo_1.jpg": "jpg/photo_1.jpg"}


def test_a_copy_stands_for_the_photo_that_it_is_a_copy_of(tmp_path: Path) -> None:
    """A copy of a positive is no second one to find, and a copy of the query's photo is that photo."""
    query = {"image": "self", "positives": ["twin", "photo_1.jpg", "photo_2"], "junk": ["photo_3"]}
    protocol = read_truth(own(tmp_path, query), NAMES, copies=COPIES)
    assert protocol.images == tuple(NAMES)
    assert protocol.queries[0].image == "jpg/photo_0.jpg"
    assert listed(protocol, 0, 0) == ([1, 2], [0, 3])
    with raises("unknown-image"):
        read_truth(own(tmp_path, query), NAMES)


def test_the_querys_own_copy_is_nothing_to_find(tmp_path: Path) -> None:
    path = own(tmp_path, {"image": "photo_0", "positives": ["self", "twin"]})
    assert listed(read_truth(path, NAMES, copies=COPIES), 0, 0) == ([1], [0])
    with raises("no-positives"):
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
    with raises("duplicate-image"):
        read_truth(own(tmp_path, {"image": "q", "positives": ["a"]}, images=["a", "b", "a"]))
    (tmp_path / "own.json").write_text("[1, 2")
    with raises("not-json"):
        read_truth(tmp_path / "own.json", NAMES)
    (tmp_path / "x.docx").write_text("")
    with raises("truth-format"):
        read_truth(tmp_path / "x.docx", NAMES)
    (tmp_path / "x.csv").write_text("photo,box\na,b\n")
    with raises("csv-columns"):
        read_truth(tmp_path / "x.csv", NAMES)
    with pytest.raises(FileNotFoundError):
        read_truth(tmp_path / "none.json", NAMES)
