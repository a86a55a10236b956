"""When a photo was taken and by what, from files written by another library's EXIF."""

from datetime import datetime
from pathlib import Path

import pytest
from PIL import ExifTags, Image

from manifind.io.exif import ExifData, read_exif


def photo(file: Path, base: dict[int, object], inner: dict[int, object]) -> Path:
    exif = Image.Exif()
    exif.update(base)
    exif.get_ifd(ExifTags.IFD.Exif).update(inner)
    Image.new("RGB", (40, 30), "teal").save(file, exif=exif)
    return file


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_date_camera_and_lens_are_read(tmp_path: Path, suffix: str) -> None:
    file = photo(
        tmp_path / f"a{suffix}",
        {ExifTags.Base.Make: "NIKON CORPORATION", ExifTags.Base.Model: "NIKON D90"},
        {ExifTags.Base.DateTimeOriginal: "2019:07:04 12:33:05", ExifTags.Base.LensModel: "18-105mm"},
    )
    assert read_exif(file) == ExifData(datetime(2019, 7, 4, 12, 33, 5), "NIKON D90", "18-105mm")


def test_maker_and_model_are_joined_where_the_model_does_not_say(tmp_path: Path) -> None:
    file = photo(tmp_path / "a.jpg", {ExifTags.Base.Make: "Apple", ExifTags.Base.Model: "iPhone 12"}, {})
    assert read_exif(file) == ExifData(None, "Apple iPhone 12", None)


@pytest.mark.parametrize(
    "when",
    [
        "0000:00:00 00:00:00",
        "-2019:07:04 12:33:05",
        "92019:07:04 12:33:05",
        "9" * 5000,
        "yesterday",
        "2019:13:45 99:99:99",
        "",
    ],
)
def test_a_clock_that_was_never_set_says_nothing(tmp_path: Path, when: str) -> None:
    assert read_exif(photo(tmp_path / "a.jpg", {}, {ExifTags.Base.DateTimeOriginal: when})).taken_at is None


def test_what_is_no_photo_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe1\xff\xffExif\0\0II*\0" + bytes(40))
    (tmp_path / "b.txt").write_text("hello")
    assert [read_exif(tmp_path / name) for name in ("a.jpg", "b.txt", "none.jpg")] == [ExifData()] * 3
