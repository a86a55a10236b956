"""An index of the photos that are described so far, beside the one that is being made."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from manifind.describe import Describer, Regions
from manifind.index import Index, SoFar


@pytest.mark.parametrize("whiten", ["shipped", "auto"])
def test_it_is_the_index_that_those_photos_alone_would_make_and_describes_none_of_them_again(
    whiten: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[npt.NDArray[np.uint8]] = []
    describe = Describer.describe
    counts: list[int] = []

    def noted(self: Describer, photo: npt.NDArray[np.uint8]) -> Regions:
        described.append(photo)
        return describe(self, photo)

    monkeypatch.setattr(Describer, "describe", noted)

    def growing(so_far: SoFar) -> None:
        counts.append(len(so_far))
        if len(so_far) == 7:
            before = len(described)
            so_far.write(tmp_path / "so-far.manifind")
            # Photos are read ahead in other threads, those of the build: no more than there are.
            assert len(described) - before <= 12 - 7

    whole = Index.create(tmp_path / "photos.manifind", photos, zooms=(1.0,), whiten=whiten, growing=growing)
    assert counts == list(range(1, 13))
    assert len(described) == len(whole) == 12
    so_far = Index.open(tmp_path / "so-far.manifind", verify=True)
    assert so_far.check() == []
    keys = [record.key for record in so_far.catalogue.images]
    assert len(keys) == 7
    assert set(keys) < {record.key for record in whole.catalogue.images}
    assert so_far.search(keys[3], top=1)[0].key == keys[3]
    if whiten == "auto":
        assert so_far.info()["whitening"]["photos"] == 7  # learnt from these
        return
    # The same photos in a folder of their own make the same descriptions.
    for key in keys:
        (tmp_path / "few" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "few" / key).write_bytes((photos / key).read_bytes())
    alone = Index.create(tmp_path / "few.manifind", tmp_path / "few", zooms=(1.0,), whiten=whiten)
    assert np.array_equal(alone.manifold.vectors_, so_far.manifold.vectors_)
    assert np.array_equal(alone.boxes, so_far.boxes)
