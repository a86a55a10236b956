"""Files are opened once, never waited for, and never by a link that leads out of their folder."""

import os
import socket
import threading
from pathlib import Path

import pytest

from manifind.errors import UnreadableImageError
from manifind.index.search.filters import date_of
from manifind.io import content_hash, open_regular, read_photo
from manifind.io.exif import ExifData, read_exif
from manifind.io.files import read_head
from tests.features.photo_files import saved, scene

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")


@pytest.mark.parametrize("read", [open_regular, read_head, content_hash, read_photo])
def test_a_pipe_or_a_device_is_refused_at_once(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "link.jpg").symlink_to("pipe.jpg")
    for path in (tmp_path / "pipe.jpg", tmp_path / "link.jpg", Path("/dev/zero")):
        with pytest.raises(UnreadableImageError) as caught:
            read(path)
        assert (caught.value.reason, caught.value.name) == ("not a regular file", str(path))


def test_a_socket_and_a_folder_are_no_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s.jpg")
        reasons = []
        for path in ("s.jpg", ".", "none.jpg", "a\0b"):
            with pytest.raises(UnreadableImageError) as caught:
                open_regular(path)
            reasons.append(caught.value.reason)
    assert reasons == ["not a regular file", "a folder", "no such file", "no such file"]


def test_dates_are_read_past_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    dates: list[object] = []

    class Record:
        key = "pipe.jpg"
        mtime_ns = 0

    reader = threading.Thread(
        target=lambda: dates.extend((read_exif(tmp_path / "pipe.jpg"), date_of(tmp_path, Record()))),  # type: ignore[arg-type]
        daemon=True,
    )
    reader.start()
    reader.join(10)
    assert dates == [ExifData(), "1970-01-01T00:00:00"]


def test_a_link_may_lead_within_the_folder_and_not_out_of_it(tmp_path: Path) -> None:
    root, outside = tmp_path / "photos", tmp_path / "photos-private"
    for folder in (root / "a", outside):
        folder.mkdir(parents=True)
        (folder / "x.png").write_bytes(saved(scene(4, 4), "PNG"))
    (root / "inside.png").symlink_to("a/x.png")
    (root / "out.png").symlink_to(outside / "x.png")
    (root / "below").symlink_to(outside)
    (tmp_path / "photos-link").symlink_to(root)
    assert read_photo(root / "inside.png", root=tmp_path / "photos-link").width == 4
    assert read_photo(root / "out.png").width == 4
    for path in (root / "out.png", root / "below" / "x.png", root / "a" / ".." / ".." / "photos-private" / "x.png"):
        with pytest.raises(UnreadableImageError) as caught:
            open_regular(path, root=root)
        assert caught.value.code == "outside-root"


@pytest.mark.parametrize("swapped", ["a", "a/x.png"])
def test_a_link_put_on_the_path_after_it_was_resolved_is_not_followed(
    swapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "photos", tmp_path / "outside"
    for folder in (root / "a", outside):
        folder.mkdir(parents=True)
        (folder / "x.png").write_bytes(folder.name.encode())
    resolve = Path.resolve

    def then_swap(path: Path, strict: bool = False) -> Path:
        real = resolve(path, strict=strict)
        if path.name == "x.png":
            (root / swapped).rename(tmp_path / "moved")
            (root / swapped).symlink_to(outside / swapped[2:])
        return real

    monkeypatch.setattr(Path, "resolve", then_swap)
    with pytest.raises(UnreadableImageError):
        open_regular(root / "a" / "x.png", root=root)
    assert (root / "a" / "x.png").read_bytes() == b"outside"  # what a second look at the path finds
