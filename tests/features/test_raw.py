"""Raw files by the preview inside them, on files made here as cameras lay them out."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from manifind.io import read_photo
from manifind.io.image import raw_preview
from tests.errors import raises

LOSSLESS = b"\xff\xd8\xff\xc3" + struct.pack(">H", 11) + bytes(4000) + b"\xff\xd9"
"""As a sensor's own values are stored."""


def jpeg(colour: str, size: tuple[int, int] = (80, 60)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "JPEG")
    return buffer.getvalue()


def raw(order: str, small: bytes, large: bytes, orientation: int = 1) -> bytes:
    """A TIFF file whose first directory is a thumbnail, with a preview and the sensor's values in two below it."""

    def directory(at: int, entries: list[tuple[int, int, int, bytes]], following: int = 0) -> bytes:
        packed = struct.pack(f"{order}H", len(entries))
        for tag, kind, count, value in sorted(entries):
            packed += struct.pack(f"{order}HHI", tag, kind, count) + value.ljust(4, b"\0")
        return packed + struct.pack(f"{order}I", following)

    def number(tag: int, value: int) -> tuple[int, int, int, bytes]:
        return tag, 4, 1, struct.pack(f"{order}I", value)

    def short(tag: int, value: int) -> tuple[int, int, int, bytes]:
        return tag, 3, 1, struct.pack(f"{order}H", value)

    first = [
        number(254, 1),
        short(256, 8),
        short(257, 8),
        short(258, 8),
        short(262, 1),
        short(277, 1),
        short(274, orientation),
    ]
    first += [short(259, 1), number(273, 0), number(279, 64), number(278, 8), (330, 4, 2, b"")]
    head = b"II*\0" if order == "<" else b"MM\0*"
    length = 8 + len(directory(0, first)) + 8
    below = [
        [number(254, 1), number(513, 0), number(514, 0)],
        [number(254, 0), short(259, 7), number(273, 0), number(279, 0)],
    ]
    places = []
    for one in below:
        places.append(length)
        length += len(directory(0, one))
    small_at, large_at, sensor_at = length, length + len(small), length + len(small) + len(large)
    below[0][1:] = [number(513, large_at), number(514, len(large))]
    below[1][2:] = [number(273, sensor_at), number(279, len(LOSSLESS))]
    pixels_at = sensor_at + len(LOSSLESS)
    first = [one for one in first if one[0] not in (273, 330)] + [number(273, pixels_at)]
    first.append((330, 4, 2, struct.pack(f"{order}I", 8 + len(directory(0, [*first, number(330, 0)])))))
    file = head + struct.pack(f"{order}I", 8) + directory(8, first) + struct.pack(f"{order}II", *places)
    file += b"".join(directory(0, one) for one in below)
    assert len(file) == small_at
    return file + small + large + LOSSLESS + bytes(64)


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_largest_picture_is_the_photo_and_the_sensor_is_passed_over(order: str, tmp_path: Path) -> None:
    large = jpeg("orange", (160, 120))
    (tmp_path / "a.nef").write_bytes(raw(order, jpeg("teal"), large))
    photo = read_photo(tmp_path / "a.nef")
    assert (photo.width, photo.height) == (160, 120)
    with Image.open(io.BytesIO(large)) as same:
        assert np.array_equal(photo.pixels, np.asarray(same.convert("RGB")))


def test_the_preview_is_turned_as_the_file_says() -> None:
    photo = read_photo(raw("<", b"", jpeg("orange", (160, 120)), orientation=6))
    assert (photo.width, photo.height) == (120, 160)


def test_a_raf_says_in_its_head_where_its_picture_lies() -> None:
    picture = jpeg("navy", (90, 60))
    head = b"FUJIFILMCCD-RAW 0201".ljust(84, b"\0") + struct.pack(">II", 92, len(picture))
    assert (read_photo(head + picture).width, raw_preview(head + picture)) == (90, picture)


def test_a_value_may_be_the_picture_itself() -> None:
    picture = jpeg("olive", (90, 60))
    entry = struct.pack("<HHHII", 1, 46, 7, len(picture), 26)
    assert read_photo(b"IIU\0" + struct.pack("<I", 8) + entry + bytes(4) + picture).width == 90


def test_a_raw_file_without_a_picture_says_so() -> None:
    with raises("no-preview") as error:
        read_photo(raw("<", b"", LOSSLESS))
    assert "without a preview that can be read: export it as JPEG" in str(error.value)
    with raises("no-preview"):
        read_photo(b"FUJIFILMCCD-RAW ".ljust(100, b"\0"))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_whatever_a_file_claims_nothing_beyond_it_is_read(noise: bytes, at: int) -> None:
    whole = raw("<", b"", jpeg("red", (16, 16)))
    for data in (b"II*\0" + noise, b"MM\0*" + noise, whole[:at] + noise + whole[at + len(noise) :], whole[:at]):
        found = raw_preview(data)
        assert found is None or found[:2] == b"\xff\xd8"
