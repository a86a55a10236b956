"""Files may be dated as they like: what an index cannot hold is the nearest time that it can."""

import os
from pathlib import Path

import pytest

from manifind.index.search.filters import date_of
from manifind.io.files import MAX_TIME_NS
from tests.index.small import save_photos, small_index


@pytest.mark.parametrize(
    ("seconds", "date"), [(10_413_792_000, "2262-04-11T23:47:16"), (-(2**31), "1901-12-13T20:45:52")]
)
def test_a_file_of_any_date_is_indexed_and_stays_as_it_is(seconds: int, date: str, tmp_path: Path) -> None:
    photo = save_photos(tmp_path / "photos", 4) / "2.png"
    os.utime(photo, (seconds, seconds))
    if photo.stat().st_mtime != seconds:
        pytest.skip("the file system cannot hold that date")
    index = small_index(tmp_path, 0)
    record = index._snapshot.catalogue.photo_of("2.png")
    assert record is not None
    assert abs(record.mtime_ns) <= MAX_TIME_NS
    assert date_of(index.root, record) == date
    assert index.sync().kept == 4
    assert index.check() == []
