"""Whatever the bytes are, there is a photo or a reason."""

import io
import os
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from manifind.errors import InvalidInputError, ManifindError, UnreadableImageError
from manifind.io import content_hash
from manifind.io.image import Photo, read_photo
from tests.errors import raises
from tests.features.photo_files import FORMATS, SMALL, outcome_of, reason_of, saved, scene, sharp


def read_or_refused(data: bytes) -> None:
    """Read, and hold the outcome to the contract: a photo, or an `UnreadableImageError` with a reason."""
    outcome = outcome_of(data, max_pixels=10**6, long_side=8)
    if isinstance(outcome, UnreadableImageError):
        assert 0 < len(outcome.reason) < 100
        assert outcome.reason.isprintable()
    else:
        assert outcome.pixels.dtype == np.uint8
        assert outcome.pixels.ndim == 3
        assert outcome.pixels.shape[2] == 3
        assert outcome.width * outcome.height >= outcome.pixels[:, :, 0].size > 0


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
        data = saved(sharp(120, 90), kind)
        thumbnail = saved(scene(16, 12), "JPEG")
        for cut in range(1024, len(data) - 1, 512):
            assert reason_of(data[:cut] + bytes(len(data) - cut)) == "truncated"
        if kind == "JPEG":  # the end mark of a thumbnail inside is not the photo's
            with_thumbnail = saved(sharp(120, 90), kind, exif=b"Exif\0\0" + thumbnail)
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
        with raises("not-a-file"):
            content_hash(tmp_path / "pipe.jpg")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_forbidden_file_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "secret.png"
        path.write_bytes(saved(scene(4, 4), "PNG"))
        path.chmod(0)
        assert reason_of(path) == "permission denied"

    @pytest.mark.parametrize("source", [3, None, io.StringIO("text")])
    def test_a_source_that_is_none_is_the_callers_mistake(self, source: Any) -> None:
        with pytest.raises(InvalidInputError, match="source"):
            read_photo(source)

    def test_the_error_names_the_photo_and_survives_a_pickle(self, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"caf\xe9.jpg")
        path.write_bytes(b"")
        with pytest.raises(UnreadableImageError) as caught:
            read_photo(path)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert str(again) == str(caught.value) == rf"{tmp_path}/caf\xe9.jpg cannot be read: empty file."
        assert again.reason == "empty file"
        assert isinstance(again, ManifindError)


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
        monkeypatch.setattr("manifind.io.colour.to_srgb", fail)
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
