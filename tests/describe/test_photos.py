"""Reading photos as they are in the wild, and refusing what is none."""

import hashlib
import io
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, ImageCms

from manifind.describe.photos import MARGIN, Photo, content_hash, photo_format, read_photo
from manifind.errors import InvalidInput, ManifindError, Unreadable

Pixels = npt.NDArray[np.uint8]

LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "BMP": {},
    "PPM": {},
    "TIFF": {},
    "TIFF LZW": {"compression": "tiff_lzw"},
    "TIFF deflate": {"compression": "tiff_adobe_deflate"},
    "WEBP": {"lossless": True},
    "JPEG2000": {"irreversible": False},
}
LOSSY: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "JPEG progressive": {"quality": 95, "progressive": True},
    "WEBP lossy": {"quality": 95},
    "AVIF": {"quality": 95},
    "GIF": {},
    "TIFF jpeg": {"compression": "jpeg", "quality": 95},
}
FORMATS = LOSSLESS | LOSSY


def scene(width: int, height: int, seed: int = 0) -> Pixels:
    """Draw smooth light with a few boxes: something that every codec keeps, and that no turn or flip maps to itself."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    channels = [255 * x / max(1, width - 1), 255 * y / max(1, height - 1), 128 + 60 * np.sin(x / 9 + y / 13)]
    pixels = np.stack(channels, axis=-1)
    for _ in range(6):
        top, left = rng.integers(0, height), rng.integers(0, width)
        pixels[top : top + height // 4, left : left + width // 4] = rng.integers(0, 256, 3)
    return pixels.astype(np.uint8)


def saved(pixels: Pixels | Image.Image, kind: str, **options: Any) -> bytes:
    """Return the file of a photo; `kind` is a format with its options in `FORMATS`."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind.split(" ", maxsplit=1)[0], **(FORMATS.get(kind, {}) | options))
    return file.getvalue()


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, rows: bytes, *, bits: int = 8, colour: int = 2) -> bytes:
    """Write a PNG by hand; each row of `rows` begins with its filter, 0."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(name, data) for name, data in chunks)


def tiff(width: int, height: int, data: bytes, **tags: int) -> bytes:
    """Write an uncompressed grey TIFF by hand, with the tags given by number as ``t254=1``."""
    entries = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    entries |= {int(name[1:]): value for name, value in tags.items()}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    body = data + b"\0" * (len(data) % 2)
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", len(entries)) + directory + bytes(4)


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


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


def difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


def noise_ratio(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / np.square(a.astype(float) - b).mean()))


def reason_of(source: Any, **options: Any) -> str:
    with pytest.raises(Unreadable) as error:
        read_photo(source, **options)
    return error.value.reason


def outcome_of(source: Any, **options: Any) -> Photo | Unreadable:
    try:
        return read_photo(source, **options)
    except Unreadable as error:
        return error


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
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        header = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)
        assert reason_of(header) == "needs manifind[heic]: pip install 'manifind[heic]'"

    def test_a_heic_photo_is_read_with_the_extra(self) -> None:
        heif = pytest.importorskip("pillow_heif")
        pixels = scene(128, 96)
        file = io.BytesIO()
        heif.from_pillow(Image.fromarray(pixels)).save(file, quality=95)
        assert photo_format(file.getvalue()) == "HEIF"
        assert noise_ratio(read_photo(file.getvalue()).pixels, pixels) > 28

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


class TestModes:
    GREY: Pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    GREY3: Pixels = np.repeat(GREY[:, :, None], 3, axis=2)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "JPEG", "PPM", "JPEG2000"])
    def test_grey_is_rgb_of_equal_channels(self, kind: str) -> None:
        photo = read_photo(saved(Image.fromarray(self.GREY), kind))
        assert difference(photo.pixels, self.GREY3) <= (3 if kind == "JPEG" else 0)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM"])
    def test_one_bit_is_black_and_white(self, kind: str) -> None:
        image = Image.fromarray(self.GREY).convert("1")
        expected = np.asarray(image.convert("RGB"))
        assert set(np.unique(expected)) == {0, 255}
        np.testing.assert_array_equal(read_photo(saved(image, kind)).pixels, expected)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF", "BMP"])
    def test_a_palette_is_looked_up(self, kind: str) -> None:
        colours: Pixels = np.random.default_rng(0).integers(0, 256, (256, 3), dtype=np.uint8)
        image = Image.fromarray(self.GREY).convert("P")
        image.putpalette(colours.tobytes())
        np.testing.assert_array_equal(read_photo(saved(image, kind)).pixels, colours[self.GREY])

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
    def test_what_is_transparent_is_laid_on_white(self, kind: str) -> None:
        rng = np.random.default_rng(1)
        pixels: Pixels = rng.integers(0, 256, (16, 16, 4), dtype=np.uint8)
        share = pixels[:, :, 3:] / 255
        expected = np.rint(pixels[:, :, :3] * share + 255 * (1 - share))
        photo = read_photo(saved(Image.fromarray(pixels), kind, **({"exact": True} if kind == "WEBP" else {})))
        assert difference(photo.pixels, expected) <= 1

    def test_grey_with_alpha_is_laid_on_white(self) -> None:
        pixels: Pixels = np.random.default_rng(2).integers(0, 256, (16, 16, 2), dtype=np.uint8)
        share = pixels[:, :, 1:] / 255
        expected = np.repeat(np.rint(pixels[:, :, :1] * share + 255 * (1 - share)), 3, axis=2)
        image = Image.merge("LA", [Image.fromarray(pixels[:, :, channel]) for channel in range(2)])
        assert difference(read_photo(saved(image, "PNG")).pixels, expected) <= 1

    def test_a_transparent_colour_of_a_palette_is_white(self) -> None:
        image = Image.new("P", (4, 4), 1)
        image.putpalette([255, 0, 0, 0, 0, 255])
        image.putpixel((2, 1), 0)
        for kind in ("PNG", "GIF"):
            pixels = read_photo(saved(image, kind, transparency=1)).pixels
            assert pixels[1, 2].tolist() == [255, 0, 0]
            assert pixels[0, 0].tolist() == [255, 255, 255]

    def test_the_inks_of_a_jpeg_are_not_inverted(self) -> None:
        inks = Image.fromarray(scene(64, 48)).convert("CMYK")
        expected = np.asarray(inks.convert("RGB"))
        np.testing.assert_array_equal(read_photo(saved(inks, "TIFF")).pixels, expected)
        assert noise_ratio(read_photo(saved(inks, "JPEG", subsampling=0)).pixels, expected) > 28
        white = Image.new("CMYK", (16, 16), (0, 0, 0, 0))
        assert read_photo(saved(white, "JPEG")).pixels.min() >= 250

    def test_cielab_becomes_rgb(self) -> None:
        pixels = scene(64, 48)
        srgb, lab = (ImageCms.createProfile(space) for space in ("sRGB", "LAB"))
        image = ImageCms.profileToProfile(Image.fromarray(pixels), srgb, lab, outputMode="LAB")
        assert image is not None
        assert noise_ratio(read_photo(saved(image, "TIFF")).pixels, pixels) > 35

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "TIFF LZW", "PPM"])
    def test_sixteen_bits_keep_their_scale(self, kind: str) -> None:
        deep = Image.fromarray(self.GREY.astype(np.uint16) * 257)
        assert deep.mode == "I;16"
        np.testing.assert_array_equal(read_photo(saved(deep, kind)).pixels, self.GREY3)

    def test_sixteen_bits_of_colour_keep_their_scale(self) -> None:
        pixels = scene(20, 10)
        deep = (pixels.astype(">u2") * 257).astype(">u2")
        rows = b"".join(b"\0" + row.tobytes() for row in deep)
        np.testing.assert_array_equal(read_photo(png(20, 10, rows, bits=16)).pixels, pixels)

    def test_twelve_bits_keep_their_scale(self) -> None:
        photo = read_photo(tiff(2, 1, bytes([0xFF, 0xF8, 0x00]), t258=12))
        assert photo.pixels[0, :, 0].tolist() == [255, round(0x800 * 255 / 4095)]

    @pytest.mark.parametrize("white", [1, 255, 65535])
    def test_floating_point_runs_to_the_first_white_that_holds_it(self, white: int) -> None:
        values = self.GREY.astype(np.float32) / 255 * white
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(values), "TIFF")).pixels, self.GREY3)

    def test_greys_of_no_known_scale_are_stretched(self) -> None:
        values = (self.GREY.astype(np.int32) - 100) * 1000
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(values), "TIFF")).pixels, self.GREY3)
        whole = self.GREY.astype(np.int32) * 257
        np.testing.assert_array_equal(read_photo(saved(Image.fromarray(whole), "TIFF")).pixels, self.GREY3)

    @pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38, -3e38])
    def test_wild_values_do_not_stop_a_photo(self, odd: float) -> None:
        values = self.GREY.astype(np.float32) / 255
        values[3, 4] = odd
        assert read_photo(saved(Image.fromarray(values), "TIFF")).pixels.shape == (16, 16, 3)
        values[:] = odd
        assert read_photo(saved(Image.fromarray(values), "TIFF")).pixels.shape == (16, 16, 3)


class TestProfiles:
    @staticmethod
    def swapped() -> bytes:
        """Return a profile of a space like sRGB but for red and blue, which change places."""
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        for old, new in ((b"rXYZ", b"____"), (b"bXYZ", b"rXYZ"), (b"____", b"bXYZ")):
            assert profile.count(old) == 1
            profile = profile.replace(old, new)
        return profile.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
    def test_the_profile_is_applied(self, kind: str) -> None:
        pixels = scene(40, 30)
        photo = read_photo(saved(pixels, kind, icc_profile=self.swapped()))
        assert difference(photo.pixels, pixels[:, :, ::-1]) <= 2

    @pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
    def test_the_profile_is_applied_where_codecs_lose(self, kind: str) -> None:
        pixels = scene(160, 120)
        photo = read_photo(saved(pixels, kind, icc_profile=self.swapped()))
        assert noise_ratio(photo.pixels, pixels[:, :, ::-1]) > 28

    def test_srgb_changes_nothing(self) -> None:
        pixels = scene(40, 30)
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        np.testing.assert_array_equal(read_photo(saved(pixels, "PNG", icc_profile=profile)).pixels, pixels)

    @pytest.mark.parametrize("cut", [1, 100, 200, 400])
    def test_a_broken_profile_is_passed_over(self, cut: int) -> None:
        pixels = scene(40, 30)
        broken = self.swapped()[:cut] + b"\xa5" * 50
        photo = read_photo(saved(pixels, "PNG", icc_profile=broken))
        assert difference(photo.pixels, pixels) == 0

    def test_a_profile_for_other_pixels_is_passed_over(self) -> None:
        grey = Image.fromarray(TestModes.GREY)
        photo = read_photo(saved(grey, "PNG", icc_profile=self.swapped()))
        np.testing.assert_array_equal(photo.pixels, TestModes.GREY3)


class TestReduced:
    @staticmethod
    def sharp(width: int, height: int) -> Image.Image:
        """Draw edges and texture down to single pixels."""
        rng = np.random.default_rng(3)
        pixels = np.repeat(np.repeat(rng.integers(0, 256, (height // 40 + 1, width // 40 + 1, 3)), 40, 0), 40, 1)
        noisy = pixels[:height, :width] + rng.normal(0, 12, (height, width, 3))
        return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))

    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    @pytest.mark.parametrize("size", [(1600, 1200), (1601, 1203), (1203, 2405), (1999, 1001)])
    def test_shrinking_the_reduced_photo_is_shrinking_the_whole(self, kind: str, size: tuple[int, int]) -> None:
        long_side = 256
        data = saved(self.sharp(*size), kind, **({"compress_level": 1} if kind == "PNG" else {}))
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


class TestLimits:
    def test_a_header_that_claims_too_much_is_refused_before_decoding(self) -> None:
        bomb = png(50_000, 50_000, b"\0")
        began = time.process_time()
        assert reason_of(bomb) == "too large: 50000 × 50000 pixels, the limit is 200 million"
        assert time.process_time() - began < 1

    def test_a_bomb_that_is_what_it_claims_is_refused_before_decoding(self) -> None:
        bomb = png(20_000, 20_000, bytes(2501 * 20_000), bits=1, colour=0)
        assert len(bomb) < 100_000
        assert reason_of(bomb).startswith("too large: 20000 × 20000")

    @pytest.mark.parametrize("kind", FORMATS)
    def test_the_limit_is_the_last_size_that_passes(self, kind: str) -> None:
        data = saved(scene(50, 40), kind)
        assert read_photo(data, max_pixels=2000).width == 50
        assert reason_of(data, max_pixels=1999).startswith("too large: 50 × 40")

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "AVIF", "JPEG2000"])
    def test_the_limit_is_ours_not_pillows(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        data = saved(scene(50, 40), kind)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
        assert read_photo(data).width == 50

    def test_pillows_limit_is_a_reason_where_it_strikes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def strike(*_: object) -> None:
            raise Image.DecompressionBombError("Image size (2000 pixels) exceeds limit")

        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", strike, raising=False)
        assert reason_of(saved(scene(50, 40), "PNG")) == "too large: more pixels than Pillow's own limit"

    def test_a_file_too_long_for_its_limit_is_not_read(self) -> None:
        class Endless(io.RawIOBase):
            asked = 0

            def read(self, size: int = -1, /) -> bytes:
                assert size >= 0
                self.asked += size
                return (b"\xff\xd8\xff" + bytes(size))[:size]

        source = Endless()
        assert reason_of(source, max_pixels=1000).startswith("too large")
        assert source.asked < 2**27

    @pytest.mark.parametrize("size", [(34_000_000, 1), (1, 34_000_000), (65_536, 2)])
    @pytest.mark.parametrize("colour", [2, 6])
    def test_a_side_too_long_is_refused_before_decoding(self, size: tuple[int, int], colour: int) -> None:
        data = png(*size, b"", bits=16, colour=colour)
        assert len(data) < 80
        assert reason_of(data) == f"too large: {size[0]} × {size[1]} pixels, the limit of a side is 65535"

    def test_a_decoder_without_memory_is_a_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail, raising=False)
        assert reason_of(saved(scene(4, 4), "PNG")) == "too large: there was not enough memory to read it"

    def test_tiles_larger_than_the_photo_are_refused_before_decoding(self) -> None:
        data = tiff(16, 16, bytes(256), t322=60_000, t323=60_000, t324=8, t325=256)
        assert reason_of(data).startswith("too large: reading it takes too much memory: 13")

    @pytest.mark.parametrize("kind", FORMATS)
    def test_what_a_photo_takes_is_asked_for_before_it_is_decoded(self, kind: str) -> None:
        asked: list[int] = []
        data = saved(scene(500, 400), kind)
        read_photo(data, admit=asked.append)
        assert len(asked) == 1
        assert read_photo(data, max_bytes=asked[0]).width == 500
        assert reason_of(data, max_bytes=asked[0] - 1).startswith("too large: reading it takes too much memory")

    @pytest.mark.parametrize("mode", ["F", "I", "I;16", "RGBA", "P", "RGB", "CMYK"])
    def test_what_is_asked_for_is_what_is_taken(self, mode: str) -> None:
        """Run in a process of its own, whose highest memory is read before and after."""
        pixels = np.zeros((4000, 5000), {"F": np.float32, "I": np.int32, "I;16": np.uint16}.get(mode, np.uint8))
        image = Image.fromarray(pixels)
        image = image if image.mode == mode else image.convert(mode)
        if mode == "P":
            image.info["transparency"] = 0
        data = saved(image, "TIFF deflate" if mode in ("F", "I", "CMYK") else "PNG")
        program = (
            "import re, sys\n"
            "from manifind.describe.photos import read_photo\n"
            "data = sys.stdin.buffer.read()\n"
            "asked = []\n"
            "def highest(): return 1024 * int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
            "before = highest()\n"
            "read_photo(data, admit=asked.append)\n"
            "print(asked[0], highest() - before)\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True)  # noqa: S603
        asked, taken = map(int, ran.stdout.split())
        assert taken < asked + 2**25
        assert taken > asked / 4

    @pytest.mark.parametrize("argument", ["max_pixels", "max_bytes", "long_side"])
    def test_limits_must_be_whole_numbers(self, argument: str) -> None:
        options: dict[str, Any] = {argument: 0}
        with pytest.raises(InvalidInput, match=argument):
            read_photo(saved(scene(4, 4), "PNG"), **options)


class TestDamaged:
    @pytest.mark.parametrize("kind", FORMATS)
    def test_a_photo_cut_at_any_kilobyte_is_unreadable_or_whole(self, kind: str) -> None:
        rng = np.random.default_rng(4)
        pixels = np.clip(scene(120, 90) + rng.normal(0, 20, (90, 120, 3)), 0, 255).astype(np.uint8)
        data = saved(pixels, kind)
        whole = read_photo(data).pixels
        cuts = [*range(1024, len(data), 1024), len(data) // 2, len(data) - 40]
        assert len(cuts) >= 6
        for cut in cuts:
            outcome = outcome_of(data[:cut])
            if isinstance(outcome, Photo):
                np.testing.assert_array_equal(outcome.pixels, whole)
            elif kind in ("JPEG", "JPEG progressive", "PNG", "WEBP", "WEBP lossy", "BMP", "PPM"):
                assert outcome.reason == "truncated"

    @pytest.mark.parametrize("kind", ["JPEG", "JPEG progressive", "PNG"])
    def test_a_file_whose_end_was_never_written_is_truncated(self, kind: str) -> None:
        data = saved(TestReduced.sharp(120, 90), kind)
        thumbnail = saved(scene(16, 12), "JPEG")
        for cut in range(1024, len(data) - 1, 512):
            assert reason_of(data[:cut] + bytes(len(data) - cut)) == "truncated"
        if kind == "JPEG":  # the end mark of a thumbnail inside is not the photo's
            with_thumbnail = saved(TestReduced.sharp(120, 90), kind, exif=b"Exif\0\0" + thumbnail)
            assert reason_of(with_thumbnail[:-2000] + bytes(2000)) == "truncated"

    @pytest.mark.parametrize("kind", FORMATS)
    def test_what_follows_a_photo_does_not_matter(self, kind: str) -> None:
        data = saved(scene(40, 30), kind)
        for tail in (bytes(3000), np.random.default_rng(5).bytes(3000)):
            np.testing.assert_array_equal(read_photo(data + tail).pixels, read_photo(data).pixels)

    def test_what_is_no_photo_says_so(self, tmp_path: Path) -> None:
        assert reason_of(b"") == "empty file"
        assert reason_of(io.BytesIO()) == "empty file"
        for other in (b"hello", b"%PDF-1.7 ...", b"<svg></svg>", b"BM is how this begins, and it is text", b"P5 x"):
            assert reason_of(other) == "not a photo"
        assert reason_of(b"\0\0\0\x18ftypisom\0\0\0\0mp42isom" + bytes(100)) == "not a photo"
        assert reason_of(tmp_path) == "a folder"
        assert reason_of(tmp_path / "nowhere.jpg") == "no such file"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.jpg")
        assert reason_of(tmp_path / "pipe.jpg") == "not a regular file"
        with pytest.raises(Unreadable, match="not a regular file"):
            content_hash(tmp_path / "pipe.jpg")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_forbidden_file_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "secret.png"
        path.write_bytes(saved(scene(4, 4), "PNG"))
        path.chmod(0)
        assert reason_of(path) == "permission denied"

    @pytest.mark.parametrize("source", [3, None, io.StringIO("text")])
    def test_a_source_that_is_none_is_the_callers_mistake(self, source: Any) -> None:
        with pytest.raises(InvalidInput, match="source"):
            read_photo(source)

    def test_the_error_names_the_photo_and_survives_a_pickle(self, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"caf\xe9.jpg")
        path.write_bytes(b"")
        with pytest.raises(Unreadable) as caught:
            read_photo(path)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert str(again) == str(caught.value) == rf"{tmp_path}/caf\xe9.jpg cannot be read: empty file."
        assert again.reason == "empty file"
        assert isinstance(again, ManifindError)


SMALL = {kind: saved(scene(24, 17), kind) for kind in FORMATS} | {
    "MPO": saved(Image.fromarray(scene(24, 17)), "MPO", save_all=True, append_images=[Image.new("RGB", (24, 17))]),
    "PNG with much": saved(
        Image.fromarray(scene(24, 17)), "PNG", exif=exif(6), icc_profile=TestProfiles.swapped(), dpi=(72, 72)
    ),
    "JPEG with much": saved(
        Image.fromarray(scene(24, 17)), "JPEG", exif=exif(6), icc_profile=TestProfiles.swapped(), comment="hi"
    ),
    "TIFF tiled deep": saved(Image.fromarray(scene(24, 17)[:, :, 0].astype(np.uint16) * 257), "TIFF LZW"),
    "GIF frames": saved(
        Image.fromarray(scene(24, 17)), "GIF", save_all=True, append_images=[Image.new("RGB", (24, 17))]
    ),
    "PNG palette": saved(Image.fromarray(scene(24, 17)).quantize(7), "PNG", transparency=3),
}


def read_or_refused(data: bytes) -> None:
    """Read, and hold the outcome to the contract: a photo, or an `Unreadable` with a reason."""
    outcome = outcome_of(data, max_pixels=10**6, long_side=8)
    if isinstance(outcome, Unreadable):
        assert 0 < len(outcome.reason) < 100
        assert outcome.reason.isprintable()
    else:
        assert outcome.pixels.dtype == np.uint8
        assert outcome.pixels.ndim == 3
        assert outcome.pixels.shape[2] == 3
        assert outcome.width * outcome.height >= outcome.pixels[:, :, 0].size > 0


class TestHostile:
    @given(st.sampled_from(sorted(SMALL)), st.data())
    def test_one_wrong_byte_gives_a_photo_or_a_reason(self, kind: str, draw: st.DataObject) -> None:
        data = bytearray(SMALL[kind])
        # Most of what a decoder can trip over stands near the beginning, or (TIFF) near the end.
        place = draw.draw(
            st.integers(0, len(data) - 1) | st.integers(0, min(200, len(data) - 1)) | st.integers(-200, -1)
        )
        data[place % len(data)] = draw.draw(st.integers(0, 255))
        read_or_refused(bytes(data))

    @pytest.mark.parametrize("kind", sorted(SMALL))
    def test_many_wrong_bytes_give_a_photo_or_a_reason(self, kind: str) -> None:
        rng = np.random.default_rng(6)
        for count in (1, 1, 1, 1, 2, 4, 8, 32) * 8:
            data = bytearray(SMALL[kind])
            places = rng.integers(0, len(data), count) if count > 4 else rng.integers(0, min(300, len(data)), count)
            for place in places:
                data[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
            read_or_refused(bytes(data))

    @given(st.sampled_from([b"", *(data[:16] for data in SMALL.values())]), st.binary(max_size=300))
    @example(b"\xff\xd8\xff", b"")
    @example(b"II*\0", b"\x08\0\0\0\xff\xff")
    def test_random_bytes_give_a_photo_or_a_reason(self, head: bytes, tail: bytes) -> None:
        read_or_refused(head + tail)

    def test_pillows_warnings_stay_inside(self) -> None:
        odd = saved(
            scene(24, 17), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x02\0" + b"\x31\x01\x02\0\xff\0\0\0\xff\xff\0\0" * 2
        )
        with warnings.catch_warnings(record=True, action="always") as heard, Image.open(io.BytesIO(odd)) as image:
            image.getexif()
        assert heard
        before = list(warnings.filters)
        assert read_photo(odd).width == 24
        assert list(warnings.filters) == before

        def read_many() -> None:
            for _ in range(30):
                try:
                    read_photo(odd)
                except BaseException as error:
                    leaks.append(error)

        leaks: list[BaseException] = []
        readers = [threading.Thread(target=read_many) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert not leaks
        assert list(warnings.filters) == before

    def test_the_callers_own_warnings_are_left_alone(self) -> None:
        class Chatty(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                other = threading.Thread(target=warn)
                other.start()
                other.join()
                return super().read(size)

        def warn() -> None:
            try:
                warnings.warn("mine", UserWarning, stacklevel=1)
            except UserWarning as error:
                heard.append(str(error))

        heard: list[str] = []
        read_photo(Chatty(saved(scene(4, 4), "PNG")))
        assert heard
        assert set(heard) == {"mine"}

    @pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
    def test_what_is_not_the_photos_fault_passes_through(
        self, fatal: type[BaseException], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise fatal

        monkeypatch.setattr(Image.Image, "getexif", fail)
        monkeypatch.setattr("manifind.describe.colour.to_srgb", fail)
        with pytest.raises(fatal):
            read_photo(saved(scene(4, 4), "PNG"))

    @pytest.mark.parametrize(
        "strange", [RecursionError, ZeroDivisionError, AssertionError, NotImplementedError, OSError, SystemError]
    )
    def test_whatever_else_a_decoder_raises_is_a_reason(
        self, strange: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise strange("what is this?")

        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail, raising=False)
        assert reason_of(saved(scene(4, 4), "PNG")) == "damaged, or of a kind that is not read"


class TestContentHash:
    @given(st.binary(max_size=200))
    def test_it_is_the_sha_256_of_the_bytes(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x")
            path.write_bytes(data)
            assert content_hash(path) == hashlib.sha256(data).hexdigest()

    def test_copies_are_equal_and_others_are_not(self, tmp_path: Path) -> None:
        data = saved(scene(30, 20), "PNG")
        contents = {"a.jpg": data, "b.png": data, "c.png": data + b"x"}
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
        a, b, c = (content_hash(tmp_path / name) for name in contents)
        assert a == b != c

    def test_a_file_that_is_gone_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(Unreadable, match="no such file"):
            content_hash(tmp_path / "gone.jpg")
        with pytest.raises(Unreadable, match="a folder"):
            content_hash(str(tmp_path))
