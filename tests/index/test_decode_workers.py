"""Photos read by other processes are those that this one reads, and a process that dies takes one photo with it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind.errors import UnreadableImageError
from manifind.features import RegionExtractor
from manifind.features.backbone import Photo
from manifind.features.extractor import Regions
from manifind.index import Index
from manifind.index.build import decode_workers as readers
from manifind.index.build import extractor_factory as device
from manifind.index.build.decode_workers import CRASHED, Readers
from manifind.index.storage.local_features import LOCAL_FEATURES, keep
from manifind.io import ListedFile, list_photos, read_photo
from manifind.kernels.costs import CostModel
from tests.index.conftest import scene
from tests.index.small import small_extractor


def found(folder: Path) -> dict[str, ListedFile]:
    return {one.key: one for one in list_photos(folder) if isinstance(one, ListedFile)}


def seen_size(height: int, width: int) -> tuple[int, int]:
    return height // 4, width // 4


def test_other_processes_read_what_this_one_reads(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, asked = found(photos), list[int]()
    with Readers(seen_size, LOCAL_FEATURES, long_side=768) as reading:
        made = reading.read(files["first-1.png"], asked.append)
        here = read_photo(photos / "first-1.png")
        np.testing.assert_array_equal(made.pixels, here.pixels)
        assert (made.width, made.height) == (320, 240)
        np.testing.assert_array_equal(made.local, keep(here.pixels).rows)
        assert len(asked) == 1
        assert asked[0] >= here.pixels.nbytes
        with pytest.raises(UnreadableImageError) as there:
            reading.read(files["broken.jpg"], asked.append)
        with pytest.raises(UnreadableImageError) as at_home:
            read_photo(photos / "broken.jpg")
        assert there.value.reason == at_home.value.reason
        assert not there.value.temporary
        with (
            Readers(seen_size, LOCAL_FEATURES, long_side=768, max_bytes=files["first-1.png"].size) as in_little,
            pytest.raises(UnreadableImageError, match="too much memory") as for_now,
        ):
            in_little.read(files["first-1.png"], asked.append)
        assert for_now.value.temporary
        monkeypatch.setattr(readers, "MAX_SENT_BYTES", 1000)
        assert reading.read(files["second-0.png"], asked.append).pixels.shape == (60, 80, 3)
        (process,) = reading._processes
        # It dies while it is asked how much it may take: that photo is lost, and the next has another process.
        with pytest.raises(UnreadableImageError, match=CRASHED):
            reading.read(files["first-0.png"], lambda _: os.kill(process.pid, signal.SIGKILL))
        assert reading.read(files["first-0.png"], asked.append).width == 320
        with pytest.raises(KeyboardInterrupt):
            reading.read(files["first-0.png"], interrupt)
        assert reading.read(files["first-0.png"], asked.append).width == 320
    assert all(one.poll() is not None for one in reading._processes)


def test_features_may_be_left_to_others_unless_a_photo_is_too_large_to_go_to_them(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A photo that is made smaller on its way has the features that it had before."""
    file, here = found(photos)["first-1.png"], read_photo(photos / "first-1.png")
    with Readers(seen_size, LOCAL_FEATURES, left=True, long_side=768) as reading:
        made = reading.read(file, lambda _: None)
        assert made.local is None
        np.testing.assert_array_equal(made.pixels, here.pixels)
    monkeypatch.setattr(readers, "MAX_SENT_BYTES", 1000)
    with Readers(seen_size, LOCAL_FEATURES, left=True, long_side=768) as reading:
        made = reading.read(file, lambda _: None)
        np.testing.assert_array_equal(made.local, keep(here.pixels).rows)
        assert made.pixels.shape == (60, 80, 3)


def interrupt(_: int) -> None:
    raise KeyboardInterrupt


class Apart(RegionExtractor):
    """An extractor that works elsewhere than on the processor, as far as an index can tell."""

    apart = True

    def begin(self, photo: Photo) -> Callable[[], Regions]:
        regions = self.extract(photo)
        return lambda: Regions(regions.vectors, regions.boxes, keep(photo).rows if self.extract_local else None)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(("local_features", "beside"), [(True, False), (True, True), (False, False)])
def test_an_index_is_the_same_whoever_reads_and_extracts_and_finds_features(
    local_features: bool, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(5):
        Image.fromarray(scene(number, 1 + number % 2)).save(photos / f"{number}.png")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(300))
    extractor = small_extractor()
    here = Index.create(tmp_path / "here", photos, extractor=extractor, local_features=local_features, k=5)
    monkeypatch.setattr(device, "backend", lambda name: SimpleNamespace(name="cuda"))
    monkeypatch.setattr(device, "COSTS", CostModel(min_gpu_photos=1))
    used: list[RegionExtractor] = []

    def on_gpu(given: RegionExtractor, finder: Any) -> Apart:
        used.append(Apart(given.backbone, given.whitening, **given.settings))
        used[-1].extract_local = finder
        return used[-1]  # type: ignore[return-value]

    monkeypatch.setattr(device, "on_gpu", on_gpu)
    monkeypatch.setattr(device, "gpu_feature_finder", lambda keeping: (lambda *_: []) if beside else None)
    given = {"local_features": local_features, "k": 5, "device": "auto"}
    there = Index.create(tmp_path / "there", photos, extractor=extractor, **given)  # type: ignore[arg-type]
    assert len(used) == 1
    np.testing.assert_array_equal(here._here.manifold.vectors_, there._here.manifold.vectors_)
    np.testing.assert_array_equal(here._here.boxes, there._here.boxes)
    if local_features:
        assert here._here.local is not None
        assert there._here.local is not None
        np.testing.assert_array_equal(here._here.local.rows, there._here.local.rows)
    assert here.info()["skipped"] == there.info()["skipped"]
    (photos / "4.png").rename(photos / "moved.png")
    assert there.sync().moved == 1  # extracted by neither
