"""Photos of every kind are read upright, whole or reduced."""

import hashlib
import io
import sys
import tempfile
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from manifind.io import content_hash
from manifind.io.image import HEIF_READERS, MARGIN, photo_format, read_photo
from tests.errors import raises
from tests.features.photo_files import (
    FORMATS,
    LOSSLESS,
    LOSSY,
    Pixels,
    difference,
    exif,
    noise_ratio,
    reason_of,
    saved,
    scene,
    sharp,
    tiff,
)


def stored_as(upright: Pixels, orientation: int) -> Pixels:
    """Return how a camera stores a photo with this orientation: where, says EXIF, its row 0 and column 0 are seen."""
    first_row, first_column = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    stored = upright.transpose(1, 0, 2) if first_row in ("left", "right") else upright
    stored = stored[::-1] if first_row in ("bottom", "right") else stored
    return np.ascontiguousarray(stored[:, ::-1] if first_column in ("bottom", "right") else stored)


RAMP_HEIC = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAX1tZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAA"
    "ACJpbG9jAAAAAERAAAEAAQAAAAABoQABAAAAAAAAAJ0AAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRt"
    "AAAAAAABAAAA/WlwcnAAAADdaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMA"
    "AAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkAAAATY29scm5j"
    "bHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xhcAAAAEAAAAABAAAAMAAAAAEAAAAAAAAAAv////AAAAACAAAAEHBp"
    "eGkAAAAAAwgICAAAABhpcG1hAAAAAAAAAAEAAQWBAgMFhAAAAKVtZGF0AAAAmSgBrwngPg6bnk4QdLDGLT7BfowXMZC/LVW/eouD"
    "Bz7mRnCd9pVhbAhtO0tlU4nsVL6x16f2n6FRcFU2svngLYcTIphqwM1V/n2Cy25KMbBoxfp/0NB50xX6uayMLTRG6m3ss4fh/7Q4"
    "rtdfuiXotXlpfU4TcXbD2jRLI8niyySMyXNkcaio6CcA7z07hHR7MZEtaNZMtj8f/A=="
)
"""Three ramps of 64 × 48 pixels, encoded as a phone does: what reads HEIC here does not write it."""


class TestFormats:
    @pytest.mark.parametrize("kind", LOSSLESS)
    def test_a_lossless_photo_comes_back_as_it_was(self, kind: str) -> None:
        pixels = scene(61, 43)
        photo = read_photo(saved(pixels, kind))
        np.testing.assert_array_equal(photo.pixels, pixels)
        assert (photo.width, photo.height) == (61, 43)
        assert photo.pixels.dtype == np.uint8
        assert not photo.pixels.flags.writeable

    @pytest.mark.parametrize("kind", LOSSY)
    def test_a_lossy_photo_comes_back_nearly(self, kind: str) -> None:
        pixels = scene(160, 120)
        assert noise_ratio(read_photo(saved(pixels, kind)).pixels, pixels) > (20 if kind == "GIF" else 28)

    def test_bytes_paths_and_files_are_the_same_photo(self, tmp_path: Path) -> None:
        data = saved(scene(30, 20), "PNG")
        path = tmp_path / "photo.png"
        path.write_bytes(data)
        with path.open("rb") as file:
            photos = [read_photo(source) for source in (data, path, str(path), file, io.BytesIO(data))]
        for photo in photos:
            np.testing.assert_array_equal(photo.pixels, photos[0].pixels)

    @pytest.mark.parametrize("kind", FORMATS)
    def test_the_content_tells_the_format_whatever_the_name(self, kind: str, tmp_path: Path) -> None:
        data = saved(scene(30, 20), kind)
        path = tmp_path / ("photo.png" if kind == "JPEG" else "photo.jpg")
        path.write_bytes(data)
        np.testing.assert_array_equal(read_photo(path).pixels, read_photo(data).pixels)

    @pytest.mark.parametrize("kind", ["GIF", "TIFF", "PNG", "WEBP", "AVIF", "MPO"])
    def test_of_several_frames_the_first_is_read(self, kind: str) -> None:
        first, second = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
        data = saved(first, kind, save_all=True, append_images=[second])
        with Image.open(io.BytesIO(data)) as image:
            assert getattr(image, "n_frames", 1) == 2
        assert difference(read_photo(data).pixels, np.asarray(first)) <= 3

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF", "PPM", "WEBP", "GIF"])
    @pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (3, 2)])
    def test_tiny_tall_and_wide_photos_are_photos(self, kind: str, size: tuple[int, int]) -> None:
        data = saved(scene(*size), kind)
        photo = read_photo(data)
        assert (photo.width, photo.height) == size
        assert photo.pixels.shape == (size[1], size[0], 3)
        reduced = read_photo(data, long_side=100)
        assert (reduced.width, reduced.height) == size
        assert min(reduced.pixels.shape) >= 1

    def test_a_heic_photo_needs_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in HEIF_READERS:
            monkeypatch.setitem(sys.modules, name, None)
        header = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)
        assert reason_of(header) == "needs manifind[heic]: pip install 'manifind[heic]'"

    def test_a_heic_photo_is_read_with_the_extra(self) -> None:
        if not any(map(find_spec, HEIF_READERS)):
            pytest.skip("nothing that reads HEIC is installed")
        file = b64decode(RAMP_HEIC)
        y, x = np.mgrid[:48, :64]
        pixels = np.stack([4 * x, 5 * y, 255 - 2 * x - 2 * y], axis=2).astype(np.uint8)
        assert photo_format(file) == "HEIF"
        assert noise_ratio(read_photo(file).pixels, pixels) > 28

    def test_formats_that_are_not_read_say_what_to_do(self) -> None:
        assert "convert it" in reason_of(b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(80))
        assert "export it" in reason_of(tiff(2, 1, b"ab", t254=1))


class TestUpright:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "TIFF LZW", "WEBP"])
    def test_a_turned_twin_is_the_same_photo(self, kind: str, orientation: int) -> None:
        upright = scene(40, 23)
        photo = read_photo(saved(stored_as(upright, orientation), kind, exif=exif(orientation)))
        np.testing.assert_array_equal(photo.pixels, upright)
        assert (photo.width, photo.height) == (40, 23)

    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", ["JPEG", "AVIF", "TIFF jpeg", "MPO"])
    def test_a_turned_twin_is_nearly_the_same_photo_where_codecs_lose(self, kind: str, orientation: int) -> None:
        upright = scene(160, 96)
        photo = read_photo(saved(stored_as(upright, orientation), kind, exif=exif(orientation)))
        assert noise_ratio(photo.pixels, upright) > 28
        assert (photo.width, photo.height) == (160, 96)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_a_turned_twin_is_reduced_to_the_same_photo(self, orientation: int) -> None:
        upright = scene(800, 608)
        twin = read_photo(saved(stored_as(upright, orientation), "PNG", exif=exif(orientation)), long_side=100)
        assert (twin.width, twin.height) == (800, 608)
        np.testing.assert_array_equal(twin.pixels, read_photo(saved(upright, "PNG"), long_side=100).pixels)
        turned = read_photo(saved(stored_as(upright, orientation), "JPEG", exif=exif(orientation)), long_side=100)
        assert (turned.width, turned.height) == (800, 608)
        assert noise_ratio(turned.pixels, twin.pixels) > 28

    @pytest.mark.parametrize("orientation", [0, 9, 1000])
    def test_an_orientation_that_is_none_is_upright(self, orientation: int) -> None:
        pixels = scene(20, 30)
        np.testing.assert_array_equal(read_photo(saved(pixels, "PNG", exif=exif(orientation))).pixels, pixels)

    @pytest.mark.parametrize("broken", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0" + bytes(range(250))])
    def test_broken_exif_is_upright(self, broken: bytes) -> None:
        pixels = scene(48, 32)
        whole = read_photo(saved(pixels, "JPEG"))
        np.testing.assert_array_equal(read_photo(saved(pixels, "JPEG", exif=broken)).pixels, whole.pixels)


class TestReduced:
    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    @pytest.mark.parametrize("size", [(1600, 1200), (1601, 1203), (1203, 2405), (1999, 1001)])
    def test_shrinking_the_reduced_photo_is_shrinking_the_whole(self, kind: str, size: tuple[int, int]) -> None:
        long_side = 256
        data = saved(sharp(*size), kind, **({"compress_level": 1} if kind == "PNG" else {}))
        whole, reduced = read_photo(data), read_photo(data, long_side=long_side)
        assert whole.pixels.shape == (size[1], size[0], 3)
        assert (reduced.width, reduced.height) == size
        assert MARGIN * long_side <= max(reduced.pixels.shape) < max(size)
        share = long_side / max(size)
        target = round(size[0] * share), round(size[1] * share)
        one, other = (
            np.asarray(Image.fromarray(photo.pixels).resize(target, Image.Resampling.LANCZOS))
            for photo in (whole, reduced)
        )
        assert noise_ratio(one, other) > 43

    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    def test_a_photo_that_is_not_much_larger_is_left_whole(self, kind: str) -> None:
        data = saved(scene(399, 200), kind)
        np.testing.assert_array_equal(read_photo(data, long_side=100).pixels, read_photo(data).pixels)
        assert max(read_photo(saved(scene(400, 200), kind), long_side=100).pixels.shape) == 200

    def test_a_very_large_jpeg_is_reduced_beyond_what_its_decoder_does(self) -> None:
        photo = read_photo(saved(scene(6400, 64), "JPEG"), long_side=20)
        assert photo.pixels.shape[1] == 6400 // (8 * 20)
        assert (photo.width, photo.height) == (6400, 64)


class TestContentHash:
    @given(st.binary(max_size=200))
    def test_it_is_the_sha_256_of_the_bytes(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x")
            path.write_bytes(data)
            assert content_hash(path) == hashlib.sha256(data).hexdigest()

    def test_a_file_that_is_gone_says_so(self, tmp_path: Path) -> None:
        with raises("no-access"):
            content_hash(tmp_path / "gone.jpg")
        with raises("not-a-file"):
            content_hash(str(tmp_path))
