"""``manifind evaluate`` on a folder of photos."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.evaluation.evaluate_command import printed, resources, run
from tests.extraction_options import QUICKLY
from tests.index.conftest import scene


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


def test_photos_are_extracted_once_and_shown_in_the_page(photos: Path, tmp_path: Path) -> None:
    methods = ("nearest", "global-diffusion:k=3,query_k=2", "regional-diffusion:k=10,query_k=5")
    words: list[object] = [word for method in methods for word in ("--method", method)]
    words += ["--figure", "sizes:k=10,query_k=5", "--figure", "gains:k=10,query_k=5"]
    words += [
        *("--backbone", "mobilenet_v2", "--whiten", "shipped", "--scales", "1"),
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
    words = ("--method", "nearest", "--method", "hqe", "--json", "--cache", tmp_path / "kept", *QUICKLY)
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
    words = ("--method", "nearest", "--cache", tmp_path / "k", *QUICKLY)
    result = run(photos, "--truth", truth_of_photos(tmp_path, **change), *words)
    assert result.exit_code == (0 if message is None else 2)
    if message is not None:
        assert re.search(message, result.stderr.replace("\n", " "))
