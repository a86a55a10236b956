"""Which files of a folder count, compared with what git says of the same patterns."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from manifind.errors import InvalidInputError
from manifind.io.ignore import DEFAULT_EXCLUDE, MAX_BYTES, MAX_PATTERNS, FileRules, rules_of
from manifind.io.scan import ListedFile, SkippedFile, list_photos
from tests.features.photo_files import photo_file

FILES = (
    *("a", "b", "ab", "aab", "a.b", "b.a", "a b", "a ", "[", "]", "a]", "\\", "a\\b", "-", "!a", "#a", "a*", "?"),
    *("x/a", "x/b", "x/a.b", "x/x/a", "x/x/b", "x/x/x/a", "x/y/a", "x/y/x/b", "y/a", "y/x/a", "y/ab/a", "y/ab/x/b"),
    *("z/a/b", "z/b/a", "z z/a", "zz/x/y/a", "zz/x/b"),
)
git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the other side")


def keys(root: Path, files: FileRules | None = None) -> list[str]:
    return [item.key.replace("\\\\", "\\") for item in list_photos(root, files=files) if isinstance(item, ListedFile)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos, in a repository of git."""
    root = tmp_path_factory.mktemp("tree")
    for name in FILES:
        photo_file(root / name)
    subprocess.run(["git", "init", "-q", root], check=True)  # noqa: S603, S607
    return root


def by_git(root: Path, *options: str) -> list[str]:
    program = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "--others",
        "-z",
        "--exclude-per-directory=.manifindignore",
        *options,
    ]
    listed = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split("\0")  # noqa: S603
    return sorted(name for name in listed if name and not name.split("/")[-1].startswith("."))


LINES = st.lists(st.text("ab*?/x![]\\- .#^:y", min_size=1, max_size=9), min_size=1, max_size=4)


@git
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(LINES, LINES)
@example(["a", "!x/a", "/b", "x/", "!y/"], ["a"])
@example(["*.b", "a\\ ", "\\#a", "\\!a", "#b", "a b  "], ["!*.b"])
@example(["**/a", "x/**", "!x/x/", "z/**/b", "**"], ["!*"])
@example(["x/**/a", "y/*/a", "/*/a", "***/b", "a**"], [""])
@example(["[a-b]", "[!a]", "[]]", "[", "a[", "[[:alpha:]]", "[[:nope:]]", "[a-", "\\"], ["[^x]/"])
@example(["x\\/a", "x//a", "/", "//", "!", "a/", "y/ab/"], ["/a", "\\a", "\\*"])
def test_the_same_is_left_out_as_by_git(tree: Path, lines: list[str], below: list[str]) -> None:
    (tree / ".manifindignore").write_text("\n".join(lines))
    (tree / "x" / ".manifindignore").write_text("\r\n".join(below))
    assert keys(tree) == by_git(tree), (lines, below)


@git
def test_patterns_given_as_an_option_count_more_than_lines(tree: Path) -> None:
    (tree / ".manifindignore").write_text("*.b\n!x/\n")
    (tree / "x" / ".manifindignore").write_text("!a.b\n")
    options = ["x/x/", "/a", "!a.b"]
    expected = by_git(tree, *(f"--exclude={one}" for one in options))
    assert keys(tree, FileRules.of(options)) == expected
    assert "a.b" in expected
    assert "x/x/a" not in expected


def test_folders_that_systems_make_are_left_out_unless_a_line_takes_them_back(tmp_path: Path) -> None:
    for name in ("a.jpg", "@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "sub/#recycle/b.jpg", "Old.lrdata/c.jpg", "@eaDir.jpg"):
        photo_file(tmp_path / name)
    assert keys(tmp_path) == ["@eaDir.jpg", "a.jpg"]
    (tmp_path / ".manifindignore").write_text("!#recycle/\n\\#recycle/old\n!\\#recycle/")
    assert keys(tmp_path) == ["@eaDir.jpg", "a.jpg", "sub/#recycle/b.jpg"]
    assert all(one.endswith("/") for one in DEFAULT_EXCLUDE)


def test_links_are_left_out_where_they_do_not_count(tmp_path: Path) -> None:
    photo_file(tmp_path / "outside" / "a.jpg")
    photo_file(tmp_path / "root" / "b.jpg")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "outside" / "a.jpg")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    assert keys(tmp_path / "root") == ["b.jpg", "file", "folder/a.jpg"]
    assert keys(tmp_path / "root", FileRules(follow_links=False)) == ["b.jpg"]


def test_a_folder_that_is_left_out_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo_file(tmp_path / "raw" / "deep" / "a.jpg")
    photo_file(tmp_path / "b.jpg")
    seen: list[str] = []
    scandir = os.scandir

    def watched(path: str) -> Iterator[os.DirEntry[str]]:
        seen.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    assert keys(tmp_path, FileRules.of(["raw/"])) == ["b.jpg"]
    assert not any("raw" in path for path in seen)


@pytest.mark.parametrize("content", [b"a\n" * (MAX_PATTERNS + 1), b"#" * (MAX_BYTES + 1), None])
def test_a_folder_whose_ignore_file_is_off_is_named_and_not_listed(tmp_path: Path, content: bytes | None) -> None:
    photo_file(tmp_path / "sub" / "a.jpg")
    photo_file(tmp_path / "z.jpg")
    file = tmp_path / "sub" / ".manifindignore"
    file.write_bytes(content) if content is not None else os.mkfifo(file)
    skipped, listed = list_photos(tmp_path)
    assert isinstance(skipped, SkippedFile)
    assert (skipped.key, listed.key) == ("sub", "z.jpg")
    assert skipped.reason.startswith(".manifindignore ")
    with pytest.raises(InvalidInputError, match=r"cannot be listed: \.manifindignore"):
        list_photos(tmp_path / "sub")


@pytest.mark.parametrize("line", ["*a" * 30 + "b", "*" + "a" * 60 + "b", "[a-z]*" * 10 + "B", "a/**/" * 20 + "b"])
def test_no_pattern_takes_long(tmp_path: Path, line: str) -> None:
    (tmp_path / ".manifindignore").write_text(f"{line}\n" * (MAX_PATTERNS // 2))
    rules = rules_of(tmp_path, FileRules())
    for _ in range(60):
        rules = rules.below("a")
    began = time.process_time()
    for _ in range(4):
        assert not rules.excludes("a" * 255, is_folder=False)
    assert time.process_time() - began < 4 * 0.1


@pytest.mark.parametrize("wrong", [["a\nb"], ["a" * 2000], ["a"] * MAX_PATTERNS, "a", [3]])
def test_patterns_that_are_none_are_refused(wrong: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="exclude"):
        FileRules.of(wrong)
