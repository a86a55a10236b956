"""Listing the photos of a folder, and their keys."""

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manifind.errors import InvalidInputError
from manifind.io.image import read_photo
from manifind.io.scan import ListedFile, SkippedFile, key_of, key_to_path, list_photos
from tests.features.photo_files import photo_file


def keys(root: Path) -> list[str]:
    return [item.key for item in list_photos(root) if isinstance(item, ListedFile)]


def skipped(root: Path) -> dict[str, str]:
    return {item.key: item.reason for item in list_photos(root) if isinstance(item, SkippedFile)}


class TestListing:
    def test_keys_are_paths_below_the_root(self, tmp_path: Path) -> None:
        path = photo_file(tmp_path / "holiday" / "beach.jpg")
        photo_file(tmp_path / "shot.png")
        first, second = list_photos(tmp_path)
        assert isinstance(first, ListedFile)
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
        films = {one.key: one.reason for one in list_photos(tmp_path, films=True) if isinstance(one, SkippedFile)}
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
        assert next(list_photos(tmp_path)) == SkippedFile("closed", "permission denied")
        assert keys(tmp_path) == ["open/a.jpg"]

    def test_a_file_that_vanishes_meanwhile_is_reported(self, tmp_path: Path) -> None:
        for name in ("a.jpg", "b/c.jpg", "d.jpg"):
            photo_file(tmp_path / name)
        listing = list_photos(tmp_path)
        assert next(listing).key == "a.jpg"
        (tmp_path / "d.jpg").unlink()
        assert [type(item) for item in listing] == [ListedFile, SkippedFile]

    def test_a_folder_that_is_none_is_the_callers_mistake(self, tmp_path: Path) -> None:
        for wrong in (tmp_path / "nowhere", photo_file(tmp_path / "a.jpg")):
            with pytest.raises(InvalidInputError, match="not a folder"):
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
        with pytest.raises(InvalidInputError, match="below the root"):
            key_to_path("/photos", key)

    @pytest.mark.parametrize("key", ["a\\b", "a\\", "\\xZZ", "\\xe9", "\ud800"])
    def test_a_key_that_was_never_written_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidInputError, match="not valid"):
            key_to_path("/photos", key)

    def test_a_file_elsewhere_has_no_key(self) -> None:
        with pytest.raises(InvalidInputError, match="not below root"):
            key_of("/photos", "/elsewhere/a.jpg")
