"""An index of the photos that are extracted so far, beside the one that is being made."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from manifind.features import RegionExtractor, Regions
from manifind.index import Index, PartialIndex


@pytest.mark.parametrize("whiten", ["shipped", "auto"])
def test_it_is_the_index_that_those_photos_alone_would_make_and_extracts_none_of_them_again(
    whiten: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracted: list[npt.NDArray[np.uint8]] = []
    extract = RegionExtractor.extract
    counts: list[int] = []

    def noted(self: RegionExtractor, photo: npt.NDArray[np.uint8]) -> Regions:
        extracted.append(photo)
        return extract(self, photo)

    monkeypatch.setattr(RegionExtractor, "extract", noted)

    def on_partial(partial: PartialIndex) -> None:
        counts.append(len(partial))
        if len(partial) == 7:
            before = len(extracted)
            partial.write(tmp_path / "so-far.manifind")
            # Photos are read ahead in other threads, those of the build: no more than there are.
            assert len(extracted) - before <= 12 - 7

    whole = Index.create(tmp_path / "photos.manifind", photos, scales=(1.0,), whiten=whiten, on_partial=on_partial)
    assert counts == list(range(1, 13))
    assert len(extracted) == len(whole) == 12
    partial = Index.open(tmp_path / "so-far.manifind", verify=True)
    assert partial.check() == []
    keys = [record.key for record in partial.catalogue.images]
    assert len(keys) == 7
    assert set(keys) < {record.key for record in whole.catalogue.images}
    assert partial.search(keys[3], top=1)[0].key == keys[3]
    if whiten == "auto":
        assert partial.info()["whitening"]["photos"] == 7  # learnt from these
        return
    # The same photos in a folder of their own make the same descriptions.
    for key in keys:
        (tmp_path / "few" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "few" / key).write_bytes((photos / key).read_bytes())
    alone = Index.create(tmp_path / "few.manifind", tmp_path / "few", scales=(1.0,), whiten=whiten)
    assert np.array_equal(alone.manifold.vectors_, partial.manifold.vectors_)
    assert np.array_equal(alone.boxes, partial.boxes)
