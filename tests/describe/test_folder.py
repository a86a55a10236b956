"""Listing the photos of a folder, and reading them ahead."""

import io
import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from manifind.describe import ahead
from manifind.describe.ahead import describe_ahead, read_ahead
from manifind.describe.folder import Found, Skipped, key_of, key_to_path, list_photos
from manifind.describe.photos import Photo, content_hash, read_photo
from manifind.errors import InvalidInput, Unreadable


def photo_file(path: Path, shade: int = 0) -> Path:
    """Write a small PNG of one grey, whatever the file is called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (shade, shade, shade)).save(file, "PNG")
    path.write_bytes(file.getvalue())
    return path


def keys(root: Path) -> list[str]:
    return [item.key for item in list_photos(root) if isinstance(item, Found)]


def skipped(root: Path) -> dict[str, str]:
    return {item.key: item.reason for item in list_photos(root) if isinstance(item, Skipped)}


class TestListing:
    def test_keys_are_paths_below_the_root(self, tmp_path: Path) -> None:
        path = photo_file(tmp_path / "holiday" / "beach.jpg")
        photo_file(tmp_path / "shot.png")
        first, second = list_photos(tmp_path)
        assert isinstance(first, Found)
        assert (first.key, first.path) == ("holiday/beach.jpg", path)
        assert (first.size, first.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)
        assert second.key == "shot.png"

    @given(st.sets(st.lists(st.text("ab!.0-é ", min_size=1, max_size=4), min_size=1, max_size=4).map("/".join)))
    def test_the_listing_is_sorted_by_key(self, names: set[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in sorted(names):
                parts = name.split("/")
                if any(part.startswith(".") for part in parts):
                    continue
                if any((root / Path(*parts[:i])).is_file() for i in range(1, len(parts))) or (root / name).is_dir():
                    continue
                photo_file(root / name)
            found = keys(root)
            written = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
            assert found == sorted(written)

    def test_a_photo_is_told_by_its_content(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "no extension")
        photo_file(tmp_path / "notes.txt")
        (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypisom\0\0\0\0mp42isom")
        (tmp_path / "readme").write_text("P5 is not always a photo")
        assert keys(tmp_path) == ["no extension", "notes.txt"]
        assert skipped(tmp_path) == {}

    def test_what_is_called_a_photo_and_is_none_gets_a_word(self, tmp_path: Path) -> None:
        (tmp_path / "empty.JPG").write_bytes(b"")
        (tmp_path / "page.png").write_text("<html></html>")
        (tmp_path / "empty.txt").write_bytes(b"")
        (tmp_path / "DSC_1.NEF").write_bytes(b"no preview of any kind")
        (tmp_path / "clip.mp4").write_text("#EXTM3U\nfile:///etc/passwd\n")
        words = {
            "DSC_1.NEF": "a raw file of a kind that is not read; export it as JPEG or TIFF",
            "empty.JPG": "empty file",
            "page.png": "not a photo",
        }
        assert skipped(tmp_path) == words
        films = {one.key: one.reason for one in list_photos(tmp_path, films=True) if isinstance(one, Skipped)}
        assert films == words | {"clip.mp4": "not a film"}

    def test_hidden_files_and_folders_are_passed_over(self, tmp_path: Path) -> None:
        for name in (".hidden.jpg", ".thumbnails/a.jpg", "seen/.also.jpg", "seen/a.jpg"):
            photo_file(tmp_path / name)
        assert keys(tmp_path) == ["seen/a.jpg"]

    def test_a_hidden_root_is_the_callers_choice(self, tmp_path: Path) -> None:
        photo_file(tmp_path / ".photos" / "a.jpg")
        assert keys(tmp_path / ".photos") == ["a.jpg"]

    def test_an_index_is_passed_over(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "photos.manifind" / "inside.jpg")
        assert keys(tmp_path) == ["photos.manifind/inside.jpg"]
        (tmp_path / "photos.manifind" / "manifest.json").write_text("{}")
        assert keys(tmp_path) == []

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
    def test_pipes_are_passed_over(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.jpg")
        assert list(list_photos(tmp_path)) == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_what_may_not_be_read_is_reported(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "closed" / "a.jpg")
        photo_file(tmp_path / "secret.jpg").chmod(0)
        (tmp_path / "closed").chmod(0)
        try:
            assert skipped(tmp_path) == {"closed": "permission denied", "secret.jpg": "permission denied"}
        finally:
            (tmp_path / "closed").chmod(0o700)

    def test_a_folder_that_cannot_be_listed_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        photo_file(tmp_path / "closed" / "a.jpg")
        photo_file(tmp_path / "open" / "a.jpg")
        scandir = os.scandir

        def guarded(path: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
            if os.fspath(path).endswith("closed"):
                raise PermissionError(13, "Permission denied")
            return scandir(path)

        monkeypatch.setattr(os, "scandir", guarded)
        assert next(list_photos(tmp_path)) == Skipped("closed", "permission denied")
        assert keys(tmp_path) == ["open/a.jpg"]

    def test_a_file_that_vanishes_meanwhile_is_reported(self, tmp_path: Path) -> None:
        for name in ("a.jpg", "b/c.jpg", "d.jpg"):
            photo_file(tmp_path / name)
        listing = list_photos(tmp_path)
        assert next(listing).key == "a.jpg"
        (tmp_path / "d.jpg").unlink()
        assert [type(item) for item in listing] == [Found, Skipped]

    def test_a_folder_that_is_none_is_the_callers_mistake(self, tmp_path: Path) -> None:
        for wrong in (tmp_path / "nowhere", photo_file(tmp_path / "a.jpg")):
            with pytest.raises(InvalidInput, match="not a folder"):
                list_photos(wrong)

    def test_a_very_deep_folder_is_listed(self, tmp_path: Path) -> None:
        folders = [tmp_path]
        for _ in range(1200):
            folders.append(folders[-1] / "d")
            folders[-1].mkdir()
        photo = photo_file(folders[-1] / "a.jpg")
        assert keys(tmp_path) == ["d/" * 1200 + "a.jpg"]
        photo.unlink()
        for folder in folders[:0:-1]:  # what clears up after tests gives up at such depth
            folder.rmdir()

    def test_copies_are_found_by_content(self, tmp_path: Path) -> None:
        for name, shade in (("a.jpg", 1), ("b/copy of a.png", 1), ("c.jpg", 2)):
            photo_file(tmp_path / name, shade)
        hashes = {item.key: content_hash(item.path) for item in list_photos(tmp_path) if isinstance(item, Found)}
        assert hashes["a.jpg"] == hashes["b/copy of a.png"] != hashes["c.jpg"]


class TestLinks:
    def test_links_to_files_are_followed(self, tmp_path: Path) -> None:
        target = photo_file(tmp_path / "outside" / "a.jpg")
        root = tmp_path / "root"
        root.mkdir()
        (root / "link").symlink_to(target)
        (root / "broken.jpg").symlink_to(tmp_path / "nowhere")
        (root / "itself.jpg").symlink_to("itself.jpg")
        assert keys(root) == ["link"]
        reasons = skipped(root)
        assert reasons.pop("broken.jpg") == "a link to nothing"
        assert list(reasons) == ["itself.jpg"]

    def test_a_linked_folder_is_listed_where_it_is_linked(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "outside" / "sub" / "a.jpg")
        root = tmp_path / "root"
        root.mkdir()
        (root / "z").symlink_to(tmp_path / "outside")
        (root / "y").symlink_to(tmp_path / "outside")
        assert keys(root) == ["y/sub/a.jpg"]
        assert skipped(root) == {"z": "a link to a folder that is listed at another place"}

    def test_a_folder_below_the_root_is_listed_at_its_own_place(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "z" / "sub" / "a.jpg")
        (tmp_path / "a").symlink_to("z")
        (tmp_path / "b").symlink_to("z/sub")
        assert keys(tmp_path) == ["z/sub/a.jpg"]
        assert set(skipped(tmp_path)) == {"a", "b"}

    def test_links_near_the_root_come_first(self, tmp_path: Path) -> None:
        photo_file(tmp_path / "outside" / "a.jpg")
        root = tmp_path / "root"
        (root / "b" / "c").mkdir(parents=True)
        (root / "b" / "c" / "deep").symlink_to(tmp_path / "outside")
        (root / "z").symlink_to(tmp_path / "outside")
        assert keys(root) == ["z/a.jpg"]

    def test_loops_end(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        photo_file(root / "a.jpg")
        photo_file(root / "sub" / "b.jpg")
        photo_file(tmp_path / "beside.jpg")
        (root / "here").symlink_to(".")
        (root / "sub" / "up").symlink_to("..")
        (root / "sub" / "out").symlink_to(tmp_path)
        assert keys(root) == ["a.jpg", "sub/b.jpg"]
        assert skipped(root)["sub/out"] == "a link to a folder that holds this one"

    def test_folders_that_all_link_to_each_other_are_listed_once(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        root.mkdir()
        for one in range(8):
            photo_file(tmp_path / "outside" / str(one) / "photo.jpg")
            for other in range(8):
                (tmp_path / "outside" / str(one) / f"to {other}").symlink_to(tmp_path / "outside" / str(other))
        (root / "way in").symlink_to(tmp_path / "outside" / "3")
        began = time.process_time()
        found = keys(root)
        assert time.process_time() - began < 2
        assert len(found) == 8
        assert "way in/photo.jpg" in found
        assert "way in/to 5/photo.jpg" in found


NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..")
)


class TestKeys:
    @given(st.lists(NAMES, min_size=1, max_size=4))
    @example([b"caf\xe9.jpg"])
    @example([b"line\nbreak\\x0A", "naïve \u2028\x85 \U0001f600\u200d".encode()])
    def test_a_key_is_text_and_leads_back_to_the_file(self, names: list[bytes]) -> None:
        path = Path("/photos", *map(os.fsdecode, names))
        key = key_of("/photos", path)
        assert key_to_path("/photos", key) == path
        assert json.loads(json.dumps(key)) == key
        assert key.encode("utf-8").decode("utf-8") == key
        assert len(key.splitlines()) == 1
        with sqlite3.connect(":memory:") as database:
            assert database.execute("select ?", (key,)).fetchone() == (key,)
        database.close()

    @given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3))
    def test_different_files_have_different_keys(self, one: list[bytes], other: list[bytes]) -> None:
        paths = [Path("/photos", *map(os.fsdecode, names)) for names in (one, other)]
        assert (key_of("/photos", paths[0]) == key_of("/photos", paths[1])) == (paths[0] == paths[1])

    @pytest.mark.parametrize(
        "name", ["holiday/Strandfoto ä.jpg", "100% [1] #2.jpg", "日本/写真.jpg", "5.00\u202fPM.png"]
    )
    def test_ordinary_names_are_their_own_keys(self, name: str) -> None:
        assert key_of("/photos", f"/photos/{name}") == name

    def test_what_cannot_be_printed_is_escaped(self) -> None:
        assert key_of("/p", "/p/" + os.fsdecode(b"caf\xe9\n\\.jpg")) == r"caf\xE9\x0A\\.jpg"

    def test_a_name_that_is_not_utf8_is_listed_and_read(self, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"d\xff") / os.fsdecode(b"caf\xe9\n.jpg")
        try:
            photo_file(path)
        except OSError:
            pytest.skip("this file system has only UTF-8 names")
        (item,) = list_photos(tmp_path)
        assert item.key == r"d\xFF/caf\xE9\x0A.jpg"
        assert read_photo(key_to_path(tmp_path, item.key)).width == 4

    @pytest.mark.parametrize(
        "key", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a/", "a\\x2Fb", "\\x2E\\x2E/a", "a\\x00", "\0"]
    )
    def test_a_key_that_leads_out_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidInput, match="below the root"):
            key_to_path("/photos", key)

    @pytest.mark.parametrize("key", ["a\\b", "a\\", "\\xZZ", "\\xe9", "\ud800"])
    def test_a_key_that_was_never_written_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidInput, match="not valid"):
            key_to_path("/photos", key)

    def test_a_file_elsewhere_has_no_key(self) -> None:
        with pytest.raises(InvalidInput, match="not below root"):
            key_of("/photos", "/elsewhere/a.jpg")


def found_in(root: Path) -> list[Found]:
    return [item for item in list_photos(root) if isinstance(item, Found)]


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


class TestReadAhead:
    @pytest.fixture
    def found(self, tmp_path: Path) -> list[Found]:
        for shade in range(40):
            photo_file(tmp_path / f"{shade:02}.png", shade)
        return found_in(tmp_path)

    @pytest.mark.parametrize(("threads", "depth"), [(1, 1), (2, 8), (4, 3), (3, 100)])
    def test_photos_come_in_order(self, found: list[Found], threads: int, depth: int) -> None:
        outcomes = list(read_ahead(found, threads=threads, depth=depth))
        assert [one for one, _ in outcomes] == found
        shades = [int(photo.pixels[0, 0, 0]) for _, photo in outcomes if isinstance(photo, Photo)]
        assert shades == list(range(40))
        assert not reading_threads()

    def test_photos_that_cannot_be_read_come_with_their_reason(self, found: list[Found]) -> None:
        found[3].path.unlink()
        found[5].path.write_bytes(found[5].path.read_bytes()[:-30])
        outcomes = [outcome for _, outcome in read_ahead(found)]
        bad = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, Unreadable)}
        assert {i: error.reason for i, error in bad.items()} == {3: "no such file", 5: "truncated"}
        # A traceback would keep the photo's bytes for as long as the reason is kept.
        assert all(error.__traceback__ is None and error.__context__ is None for error in bad.values())

    @pytest.mark.parametrize("depth", [1, 3, 10])
    def test_no_more_than_depth_photos_are_read_ahead(
        self, found: list[Found], depth: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[Path] = []

        def counted(path: Path, **options: int | None) -> Photo:
            begun.append(path)
            return Photo(np.zeros((1, 1, 3), np.uint8), 1, 1)

        monkeypatch.setattr(ahead, "read_photo", counted)
        most = 0
        for taken, _ in enumerate(read_ahead(found, threads=4, depth=depth), start=1):
            deadline = time.perf_counter() + (1 if most == depth else 30)
            while len(begun) < min(taken + depth, len(found)) and time.perf_counter() < deadline:
                time.sleep(0.001)
            assert len(begun) <= taken + depth
            most = max(most, len(begun) - taken)
        assert most == depth

    def test_nothing_is_taken_before_it_is_asked_for(self, found: list[Found]) -> None:
        taken: list[Found] = []

        def endless() -> Iterator[Found]:
            while True:
                taken.append(found[0])
                yield found[0]

        reader = read_ahead(endless(), depth=5)
        assert not taken
        next(reader)
        assert len(taken) == 6
        reader.close()
        assert not reading_threads()

    @pytest.mark.parametrize("fatal", [KeyboardInterrupt, RuntimeError])
    def test_leaving_early_stops_the_reading(self, found: list[Found], fatal: type[BaseException]) -> None:
        def take() -> None:
            reader = read_ahead(found * 100, threads=3, depth=20)
            try:
                for number, _ in enumerate(reader):
                    if number == 5:
                        raise fatal
            finally:
                reader.close()

        began = time.perf_counter()
        with pytest.raises(fatal):
            take()
        assert time.perf_counter() - began < 60
        assert not reading_threads()

    def test_an_interrupt_while_it_waits_ends_it(self, found: list[Found], monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object, **__: object) -> Photo:
            raise KeyboardInterrupt

        monkeypatch.setattr(ahead, "read_photo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(read_ahead(found))
        assert not reading_threads()

    def test_an_error_of_the_listing_ends_it(self, found: list[Found]) -> None:
        def failing() -> Iterator[Found]:
            yield from found[:3]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            list(read_ahead(failing()))
        assert not reading_threads()

    @pytest.mark.parametrize("threads", [1, 3])
    def test_descriptions_come_in_order_each_with_its_photo(self, found: list[Found], threads: int) -> None:
        found[4].path.write_bytes(b"no photo")
        workers = set[str]()

        def shade(pixels: Any) -> int:
            workers.add(threading.current_thread().name)
            time.sleep(0.002 * (int(pixels[0, 0, 0]) % 3))  # some take longer than those after them
            return int(pixels[0, 0, 0])

        outcomes = list(describe_ahead(found, shade, threads=threads))
        assert [one for one, _, _ in outcomes] == found
        assert [made for _, _, made in outcomes] == [None if i == 4 else i for i in range(40)]
        assert [i for i, (_, photo, _) in enumerate(outcomes) if isinstance(photo, Unreadable)] == [4]
        assert 1 <= len(workers) <= threads
        assert not reading_threads()

    def test_what_describing_raises_is_raised_in_its_turn(self, found: list[Found]) -> None:
        def failing(pixels: Any) -> int:
            return 1 // (int(pixels[0, 0, 0]) - 7)

        outcomes = describe_ahead(found, failing, threads=2)
        assert [next(outcomes)[0] for _ in range(7)] == found[:7]
        with pytest.raises(ZeroDivisionError):
            next(outcomes)
        assert not reading_threads()

    def test_the_options_of_reading_are_passed_on(self, found: list[Found]) -> None:
        ((_, refused),) = read_ahead(found[:1], max_pixels=11)
        assert isinstance(refused, Unreadable)
        ((_, reduced),) = read_ahead(found[:1], long_side=1)
        assert isinstance(reduced, Photo)
        assert reduced.pixels.shape == (1, 2, 3)

    @pytest.mark.parametrize(("memory", "at_once"), [(100, 1), (250, 2), (999, 4)])
    def test_no_more_photos_are_decoded_at_once_than_the_memory_holds(
        self, found: list[Found], memory: int, at_once: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        guard, inside, most = threading.Condition(), 0, 0

        def counted(path: Path, admit: Callable[[int], None], **options: int | None) -> Photo:
            nonlocal inside, most
            admit(100 if path != found[7].path else 5000)  # one is larger than all there is
            with guard:
                inside += 1
                most = max(most, inside)
                guard.notify_all()
                guard.wait_for(lambda: most >= at_once, 30)
            time.sleep(0.003)
            with guard:
                inside -= 1
            return Photo(np.zeros((1, 1, 3), np.uint8), 1, 1)

        monkeypatch.setattr(ahead, "read_photo", counted)
        outcomes = list(read_ahead(found, threads=4, depth=10, memory=memory))
        assert [one for one, _ in outcomes] == found
        assert most == at_once

    def test_what_is_read_counts_until_the_next_is_asked_for(
        self, found: list[Found], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[Path] = []

        def counted(path: Path, admit: Callable[[int], None], **options: int | None) -> Photo:
            admit(300)
            begun.append(path)
            return Photo(np.zeros((10, 10, 3), np.uint8), 1, 1)

        monkeypatch.setattr(ahead, "read_photo", counted)
        reader = read_ahead(found, threads=4, depth=10, memory=1000)
        for taken, _ in enumerate(reader, start=1):
            time.sleep(0.005)
            # Three of 300 bytes fit into 1000, the one that was handed out among them.
            assert len(begun) <= taken + 2
        assert len(begun) == len(found)

    @pytest.mark.parametrize("argument", ["threads", "depth", "long_side", "max_pixels", "max_bytes", "memory"])
    def test_the_numbers_must_be_whole(self, found: list[Found], argument: str) -> None:
        with pytest.raises(InvalidInput, match=argument):
            read_ahead(found, **{argument: 0})
