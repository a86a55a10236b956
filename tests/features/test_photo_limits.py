"""What would take too much is refused before it is decoded."""

import io
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io.exif import ExifData, read_exif
from manifind.io.image import read_photo, upright_pixels
from tests.attack.photos import crowded, divided, jpeg_2000, long_values, previews, run_lengths, tiff_values
from tests.features.photo_files import FORMATS, SMALL, outcome_of, png, png_chunk, reason_of, saved, scene, tiff


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
            "from manifind.io.image import read_photo\n"
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
        with pytest.raises(InvalidInputError, match=argument):
            read_photo(saved(scene(4, 4), "PNG"), **options)


class TestParts:
    @pytest.mark.parametrize("name", sorted(crowded(0)))
    def test_a_file_of_millions_of_empty_parts_is_refused_before_it_is_parsed(self, name: str, tmp_path: Path) -> None:
        data = crowded(3_000_000)[name]
        with pytest.raises(UnreadableImageError) as caught:
            read_photo(data)
        assert caught.value.code == "too-many-parts"
        (tmp_path / "a").write_bytes(data)
        assert taken_bytes(lambda: read_exif(tmp_path / "a")) < 2**21

    @pytest.mark.parametrize("name", sorted(crowded(0)))
    def test_some_parts_more_than_usual_are_no_reason(self, name: str) -> None:
        assert read_photo(crowded(600)[name]).width in (24, 640, 1)

    @pytest.mark.parametrize("name", sorted(long_values(0)))
    def test_metadata_that_a_decoder_would_keep_as_millions_of_numbers_is_refused(
        self, name: str, tmp_path: Path
    ) -> None:
        data = long_values(8_000_000)[name]
        assert taken_bytes(lambda: outcome_of(data)) < 2**21
        with pytest.raises(UnreadableImageError) as caught:
            read_photo(data)
        assert caught.value.code == "too-many-parts"
        (tmp_path / "a").write_bytes(data)
        assert taken_bytes(lambda: read_exif(tmp_path / "a")) < len(data) + 2**21

    @pytest.mark.parametrize("name", ["avif-exif", "bigtiff-fractions", "tiff-fractions", "tiff-numbers"])
    def test_metadata_of_usual_length_are_no_reason(self, name: str) -> None:
        assert read_photo(long_values(200)[name]).width in (16, 64)

    def test_a_tiff_of_many_strips_is_read(self) -> None:
        rows = 60_000
        entries = {256: 8, 257: rows, 258: 8, 259: 1, 262: 1, 273: 8 + 8 * rows, 277: 1, 278: 1, 279: 8 + 12 * rows}
        counts = {273: rows, 279: rows}
        table = (struct.pack("<HHII", tag, 4, counts.get(tag, 1), value) for tag, value in entries.items())
        lists = struct.pack(f"<{rows}I", *range(8, 8 + 8 * rows, 8)) + struct.pack("<I", 8) * rows
        begin = struct.pack("<I", 8 + 16 * rows)
        data = b"II*\0" + begin + bytes(8 * rows) + lists + struct.pack("<H", 9) + b"".join(table) + bytes(4)
        assert read_photo(data).height == rows

    def test_exif_too_long_to_be_a_cameras_turns_nothing(self) -> None:
        whole, size = SMALL["PNG"], 8_000_000
        orientation = tiff_values(0x112, 3, size // 2)
        data = whole[:33] + png_chunk(b"eXIf", orientation) + whole[33:]
        assert taken_bytes(lambda: read_photo(data)) < 8 * size
        assert read_photo(data).width == 24

    @pytest.mark.parametrize("name", sorted(divided()))
    def test_a_photo_of_very_many_tiles_or_blocks_is_refused_before_it_is_decoded(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("PIL.Jpeg2KImagePlugin.Jpeg2KImageFile.load", pytest.fail)
        with pytest.raises(UnreadableImageError) as caught:
            read_photo(divided()[name])
        assert caught.value.code in ("too-many-parts", "undecodable")

    @pytest.mark.parametrize("precincts", [b"", b"\xff", b"\x88"])
    def test_a_photo_of_usual_tiles_and_blocks_is_read(self, precincts: bytes) -> None:
        for tile in (100, 1024):
            assert read_photo(jpeg_2000(1000, 800, tile=tile, block=32, precincts=precincts)).width == 1000

    def test_encoders_divide_photos_no_further(self) -> None:
        options = {"precinct_size": (64, 64), "codeblock_size": (16, 16), "tile_size": (256, 256), "num_resolutions": 6}
        data = io.BytesIO()
        Image.fromarray(scene(900, 700)).save(data, "JPEG2000", **options)
        assert read_photo(data.getvalue()).width == 900

    def test_run_lengths_are_bounded_for_python_decodes_them(self) -> None:
        rows = b"\x64\7\0\0"
        assert read_photo(run_lengths(100, 60, rows * 60 + b"\0\1")).height == 60
        began = time.process_time()
        for data, code in (
            (run_lengths(60_000, 3_000, b"\1\0\0\0" * 3_000), "too-large"),
            (run_lengths(1000, 1000, b"\0\2\0\0" * 2_000_000), "too-many-parts"),
        ):
            with pytest.raises(UnreadableImageError) as caught:
                read_photo(data)
            assert caught.value.code == code
        assert time.process_time() - began < 1

    @pytest.mark.parametrize("white", [1, 3, 100, 254, 256, 4095, 65_534, 65_535])
    @pytest.mark.parametrize("magic", ["P5", "P6"])
    def test_values_of_any_scale_are_those_of_pillows_own_decoder_and_sooner(self, magic: str, white: int) -> None:
        size, bands = (37, 23), 1 if magic == "P5" else 3
        values = np.random.default_rng(white).integers(0, 2**16 if white > 255 else 256, (*size, bands))
        header = f"{magic}\n{size[0]} {size[1]} {white}\n".encode()
        data = header + values.astype(">u2" if white > 255 else "u1").tobytes()
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(read_photo(data).pixels, upright_pixels(image))
        assert reason_of(data[:-1]) == "truncated"
        began = time.process_time()
        read_photo(f"{magic} 1000 1000 {white}\n".encode() + bytes(6_000_000))
        assert time.process_time() - began < 1

    @pytest.mark.parametrize("raw", [True, False])
    @pytest.mark.parametrize("same", [True, False])
    def test_places_of_previews_are_looked_at_not_copied(self, same: bool, raw: bool) -> None:
        data = previews(300_000, same=same, raw=raw)
        began = time.process_time()
        assert taken_bytes(lambda: outcome_of(data)) < 2**21
        assert time.process_time() - began < 1

    def test_exif_is_read_without_the_pixels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        decoded: list[object] = []
        monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", lambda image: decoded.append(image))
        (tmp_path / "a.png").write_bytes(SMALL["PNG"])
        assert read_exif(tmp_path / "a.png") == ExifData()
        assert decoded == []
        outcome_of(SMALL["PNG"])
        assert decoded

    def test_exif_whose_entries_share_their_values_is_read_within_bounds(self, tmp_path: Path) -> None:
        """Every entry claims nearly all of the EXIF as its value."""
        count, size = 40_000, 2**20 - 8
        entries = b"".join(struct.pack("<HHII", tag, 2, size // 2, 8) for tag in range(count))
        tags = b"II*\0" + struct.pack("<IH", 8, count) + entries
        whole = SMALL["PNG"]
        (tmp_path / "a.png").write_bytes(whole[:33] + png_chunk(b"eXIf", tags.ljust(size, b"a")) + whole[33:])
        assert taken_bytes(lambda: read_exif(tmp_path / "a.png")) < 2**22


def taken_bytes(call: Callable[[], object]) -> int:
    """Return the most memory that Python's objects took during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
