"""Frames of films: the right one at every time, from every kind of file, and one line for what is broken."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.errors import UnreadableImageError
from manifind.io import content_hash, list_photos, read_photo
from manifind.io.video import frame_key, locate_frame, read_frame, split_frame_key, video_format, video_length
from tests.errors import raises
from tests.films import film, program, shades


@given(st.text(min_size=1, max_size=30), st.integers(0, 36_000_000 - 1))
def test_a_name_tells_its_film_and_its_time(name: str, tenths: int) -> None:
    assert split_frame_key(frame_key(name, tenths)) == (name, tenths)


def test_names_are_as_people_write_times() -> None:
    assert frame_key("film.mp4", 124) == "film.mp4#00:12.4"
    assert frame_key("a/film.mp4", 36_000 + 1_234) == "a/film.mp4#1:02:03.4"
    for other in ("film.mp4", "film.mp4#", "film.mp4#12.4", "film.mp4#00:61.0", "#00:12.4", "film#00:12.45", ""):
        assert split_frame_key(other) is None


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "mpeg4"), ("a.mov", "mpeg4"), ("a.mkv", "mpeg4"), ("a.avi", "mpeg4"), ("a.mpg", "mpeg2video")],
)
def test_a_frame_is_the_one_that_is_shown_then(name: str, codec: str, tmp_path: Path) -> None:
    fps = 25 if codec == "mpeg2video" else 10
    made = film(tmp_path / name, shades(60), fps=fps, codec=codec)
    assert video_length(made) == pytest.approx(600 / fps, abs=2)
    for tenths in (0, 1, 7, 20):
        pixels = read_photo(tmp_path / frame_key(name, tenths)).pixels
        assert pixels.shape == (48, 64, 3)
        shade = 20 + 2 * -(-tenths * fps // 10)  # the first frame at or after that time
        # Times in an MPEG file are those of its packets: the frame may be the one beside.
        assert float(pixels.mean()) == pytest.approx(shade, abs=4.5 if name == "a.mpg" else 2.5)


def test_a_frame_beyond_the_end_is_none(tmp_path: Path) -> None:
    film(tmp_path / "a.avi", shades(10))
    with raises("no-frame") as error:
        read_photo(tmp_path / "a.avi#01:00.0")
    assert str(error.value) == f"{tmp_path}/a.avi cannot be read: the film shows nothing at that time."
    with raises("no-access"):
        read_photo(tmp_path / "b.avi#00:00.0")


def test_a_photo_may_be_called_like_a_frame(tmp_path: Path) -> None:
    made = film(tmp_path / "a.avi", shades(10))
    other = tmp_path / "a.avi#00:00.0"
    other.write_bytes(made.read_bytes())
    assert locate_frame(other) is None


def test_films_are_listed_only_where_they_are_asked_for(tmp_path: Path) -> None:
    film(tmp_path / "a.avi", shades(10))
    (tmp_path / "song.m4a").write_bytes(b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(100))
    (tmp_path / "text.ts").write_text("export const a = 1;")
    assert list(list_photos(tmp_path)) == []
    assert [(one.key, getattr(one, "film", None)) for one in list_photos(tmp_path, films=True)] == [("a.avi", True)]
    assert video_format(b"\x47" + bytes(63), "clip.MTS") == "mpegts"


def test_what_is_broken_is_told_in_a_few_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = film(tmp_path / "a.mp4", shades(10)).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[:200])
    (tmp_path / "noise.mkv").write_bytes(b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 20)
    for name in ("cut.mp4", "noise.mkv"):
        with raises("undecodable-film") as error:
            video_length(tmp_path / name)
        assert "damaged, or of a kind that ffmpeg does not read" in str(error.value)
    content_hash(tmp_path / "cut.mp4")  # it is a file all the same

    def slow(*command: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    with raises("film-time-limit") as error:
        read_frame(tmp_path / "a.mp4", 0)
    assert "more than 120 seconds" in str(error.value)


def test_a_pixel_far_wider_than_high_is_clamped_and_memory_admitted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(tmp_path / "plain.mp4", shades(2))
    wide = ["-c", "copy", "-aspect", "120:1", str(tmp_path / "a.mp4")]  # of 64 × 48 pixels, each 90 times as wide
    subprocess.run([program(), "-loglevel", "error", "-i", str(tmp_path / "plain.mp4"), *wide], check=True)  # noqa: S603
    events: list[object] = []
    run = subprocess.run

    def record(command: list[str], **options: Any) -> object:
        events.append("ppm" in command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", record)
    photo = read_photo(tmp_path / "a.mp4#00:00.0", admit=events.append)
    assert (photo.width, photo.height) == (4 * 64, 48)
    decoded = events.index(True)
    admitted = [needed for needed in events[:decoded] if needed is not False]
    assert len(admitted) == 1
    assert isinstance(admitted[0], int)
    assert admitted[0] > photo.pixels.nbytes
    events.clear()
    with pytest.raises(UnreadableImageError) as caught:
        read_photo(tmp_path / "a.mp4#00:00.0", max_bytes=admitted[0] - 1)
    assert caught.value.temporary
    assert True not in events


def test_a_list_of_other_files_is_no_film(tmp_path: Path) -> None:
    """What is called a film and names other files in its text would make ffmpeg read them, here or elsewhere."""
    program()
    secret = film(tmp_path / "secret.ts", shades(10), codec="mpeg2video")
    for text in (f"#EXTM3U\n#EXTINF:1,\n{secret}\n#EXT-X-ENDLIST\n", f"ffconcat version 1.0\nfile {secret}\n"):
        (tmp_path / "list.mp4").write_text(text)
        with raises("not-a-film"):
            read_frame(tmp_path / "list.mp4", 0)
    # Not even where its first bytes are those of one.
    (tmp_path / "list.ts").write_bytes(b"G" + f"\n#EXTM3U\n#EXTINF:1,\n{secret}\n".encode())
    with pytest.raises(UnreadableImageError):
        read_frame(tmp_path / "list.ts", 0)


def test_without_ffmpeg_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = film(tmp_path / "a.avi", shades(10))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    from manifind.io import video as films

    films._program.cache_clear()
    try:
        with raises("missing-extra") as error:
            video_length(made)
        assert isinstance(error.value, UnreadableImageError)
        assert error.value.temporary
        assert "install it, or pip install 'manifind[video]'" in str(error.value)
    finally:
        films._program.cache_clear()
