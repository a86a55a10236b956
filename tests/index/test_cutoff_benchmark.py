"""The benchmark of the cutoff says what is known of a small collection."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from manifind.index import Index
from tests.index.conftest import BOX, scene, texture, where
from tests.test_benchmarks import printed


@pytest.fixture(scope="module")
def measured(index: Index, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is printed for a query that four photos show, one of them listed with a box that is off by half."""
    folder = tmp_path_factory.mktemp("cutoff")
    for name in ("queries", "strangers"):
        (folder / name).mkdir()
    Image.fromarray(scene(99, 1)).save(folder / "queries" / "thing.png")
    for i in range(2):
        Image.fromarray(texture(500 + i, 240, 320)).save(folder / "strangers" / f"{i}.png")
    x0, y0, x1, y1 = where(3)
    boxes = [*(where(i) for i in range(3)), (x0, y0, x1, (y0 + y1) / 2)]
    positives = [{"image": f"first-{i}.png", "box": box} for i, box in enumerate(boxes)]
    queries = [{"image": "thing.png", "box": BOX, "positives": [*positives, "second-0.png"], "junk": ["second-1.png"]}]
    (folder / "truth.json").write_text(json.dumps({"name": "things", "queries": queries}))
    words = ("--truth", folder / "truth.json", "--queries", folder / "queries", "--strangers", folder / "strangers")
    return printed(repository, "benchmarks/cutoff.py", str(index.path), "--made", "2", *map(str, words))


def test_photos_above_the_line_are_counted_against_the_truth(measured: Any) -> None:
    line, verified = (measured["tasks"]["things"][part] for part in ("line", "verified"))
    assert (line["queries"], line["told_none"]) == (1, 0)
    # Four of five that are listed show the thing, and nothing else does.
    assert line["precision"] == 1
    assert line["recall"] == pytest.approx(4 / 5)
    assert line["f1"] == pytest.approx(8 / 9)
    assert verified == {"photos": 4, "precision": 1, "recall": pytest.approx(4 / 5)}


def test_boxes_are_held_against_those_of_the_truth(measured: Any) -> None:
    tight = measured["tasks"]["things"]["boxes"]["verified_tight_box"]
    assert tight["photos"] == 4
    assert tight["overlap"] == pytest.approx((3 * 1 + 0.5) / 4, abs=0.06)


def test_every_kind_of_stranger_is_counted(measured: Any) -> None:
    nothing = measured["nothing"]
    assert {kind: one["strangers"] for kind, one in nothing.items()} == {
        "noise": 2,
        "even colours": 2,
        "gradients": 2,
        "strangers, whole": 2,
        "strangers, the middle": 2,
        "strangers, the evenest": 2,
    }
    assert nothing["noise"]["told_some"] == 0
