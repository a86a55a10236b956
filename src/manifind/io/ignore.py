r"""Which files of a folder count: patterns by the rules of gitignore, in a file or as an option.

A folder may hold a file ``.manifindignore``, a pattern a line. It says what is left out of that folder and of those
below it, as git reads a ``.gitignore``: ``raw/`` a folder of this name anywhere, ``/raw/`` this folder's own,
``*.png``, ``scans/**/back-*``, ``!keep.png`` to take back what an earlier line left out; the last line that matches
decides. What lies in a folder that is left out cannot be taken back. Lines of deeper folders count more than those
above, patterns given as an option more than any line, and `DEFAULT_EXCLUDE` less than any.

The rules are written out here, and compared with git's own answers in the tests, because a listing reads the ignore
files of folders from anybody: a pattern becomes regular expressions without nested repetition, one for each part of a
path, and its file has at most `MAX_BYTES`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io.files import open_regular

IGNORE_FILE = ".manifindignore"

DEFAULT_EXCLUDE = (
    *("@eaDir/", "@SynoResource/", "@__thumb/", "#recycle/", "@Recycle/", "@Recently-Snapshot/"),
    *("$RECYCLE.BIN/", "System Volume Information/", "lost+found/", "__MACOSX/", "*.lrdata/"),
)
"""Folders that network disks, systems and photo programs keep for themselves: thumbnails, deleted files, previews."""

MAX_BYTES = 65_536
"""Of an ignore file."""
MAX_PATTERNS = 1_000
"""Patterns that may count in one folder: its own, those of the folders above, and those given as an option."""
MAX_PATTERN = 1_000
"""Characters of a pattern given as an option."""

_NAMED = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True)
class FileRules:
    """Which files below a folder count, besides what its ignore files say."""

    exclude: tuple[str, ...] = ()
    """Patterns of what is left out, as in an ignore file of the folder."""
    follow_links: bool = True
    """Whether links to files and folders count, inside the folder or outside."""

    @classmethod
    def of(cls, exclude: Sequence[str] = (), *, follow_links: bool = True) -> "FileRules":
        """Return rules as they are given; empty patterns are left out."""
        if isinstance(exclude, str):
            raise InvalidInputError(f"exclude is one string, {exclude[:80]!r}; give a list of patterns.")
        kept = tuple(pattern for pattern in exclude if pattern)
        if not all(
            isinstance(pattern, str) and len(pattern) <= MAX_PATTERN and not set(pattern) & set("\n\r\0")
            for pattern in kept
        ):
            raise InvalidInputError(f"exclude has a pattern that is no line of up to {MAX_PATTERN} characters.")
        if len(kept) > MAX_PATTERNS // 2:
            raise InvalidInputError(f"exclude has {len(kept)} patterns; the most are {MAX_PATTERNS // 2}.")
        if not isinstance(follow_links, bool):
            raise InvalidInputError(f"follow_links is {follow_links!r}; give True or False.")
        return cls(kept, follow_links)


ALL_FILES = FileRules()
"""Leave out what ignore files say, and no more."""


@dataclass(frozen=True)
class Pattern:
    """A line of an ignore file."""

    text: str
    negative: bool
    """Whether it takes back what it matches."""
    folders_only: bool
    parts: tuple[re.Pattern[str] | None, ...]
    """A regular expression for each part of the path; None stands for any number of parts."""

    @classmethod
    def of(cls, text: str) -> "Pattern | None":
        """Read a pattern; None for one that matches nothing."""
        negative = text.startswith("!")
        body = text[negative:]
        folders_only = body.endswith("/")
        body = body[: len(body) - folders_only]
        floating = "/" not in body
        parts = _compiled(body[body.startswith("/") :])
        if parts is None:
            return None
        if parts[-1] is None:
            parts = [*parts[:-1], re.compile(""), None]  # a/** is what lies in a, and not a itself
        return cls(text, negative, folders_only, tuple([None, *parts] if floating else parts))

    def matches(self, parts: Sequence[str], is_folder: bool) -> bool:
        """Say whether it matches a path below the folder of the pattern."""
        if self.folders_only and not is_folder:
            return False
        if len(self.parts) == 2 and self.parts[0] is None and self.parts[1] is not None:  # by far the most
            return self.parts[1].match(parts[-1]) is not None
        at = expected = 0
        after: tuple[int, int] | None = None  # where to go on if what follows the last None does not match
        while at < len(parts):
            if expected < len(self.parts) and self.parts[expected] is None:
                expected += 1
                after = (at + 1, expected)
            elif expected < len(self.parts) and self._match_part(expected, parts[at]):
                at, expected = at + 1, expected + 1
            elif after is not None:
                at, expected = after
                after = (at + 1, expected)
            else:
                return False
        return all(part is None for part in self.parts[expected:])

    def _match_part(self, place: int, name: str) -> bool:
        pattern = self.parts[place]
        return pattern is not None and pattern.match(name) is not None


@dataclass(frozen=True)
class Rules:
    """What is left out of one folder."""

    parts: tuple[str, ...] = ()
    """The names that lead to the folder from the one that the first rules are of."""
    levels: tuple[tuple[int, tuple[Pattern, ...]], ...] = ()
    """How many of the names lead to the folder of the patterns, and the patterns; those that count most come last."""
    option: tuple[Pattern, ...] = ()
    """Patterns that count more than all others."""
    follow_links: bool = True

    def excludes(self, name: str, is_folder: bool) -> bool:
        """Say whether a file or folder in the folder is left out."""
        path = (*self.parts, name)
        for depth, patterns in (*self._strongest_first(),):
            for pattern in reversed(patterns):
                if pattern.matches(path[depth:], is_folder):
                    return not pattern.negative
        return False

    def below(self, name: str) -> "Rules":
        """Return the rules of a folder in this one, but for its own ignore file."""
        return Rules((*self.parts, name), self.levels, self.option, self.follow_links)

    def with_file(self, folder: Path) -> "Rules":
        """Return the rules with those of the folder's ignore file; raise `InvalidInputError` if that is off."""
        patterns = read_patterns(folder)
        if not patterns:
            return self
        count = len(patterns) + len(self.option) + sum(len(level) for _, level in self.levels)
        if count > MAX_PATTERNS:
            raise InvalidInputError(
                f"{IGNORE_FILE} and those above have {count:,} patterns; the most are {MAX_PATTERNS:,}"
            )
        levels = (*self.levels, (len(self.parts), patterns))
        return Rules(self.parts, levels, self.option, self.follow_links)

    def _strongest_first(self) -> Iterator[tuple[int, tuple[Pattern, ...]]]:
        yield 0, self.option
        yield from reversed(self.levels)


def rules_of(base: Path, files: FileRules, folder: Path | None = None) -> Rules:
    """Return the rules of `base`, or of a folder below it."""
    rules = Rules((), ((0, _patterns(DEFAULT_EXCLUDE)),), _patterns(files.exclude), files.follow_links).with_file(base)
    path = base
    for name in () if folder is None else folder.relative_to(base).parts:
        path = path / name
        rules = rules.below(name).with_file(path)
    return rules


def excluded_part(base: Path, path: Path, files: FileRules) -> Path | None:
    """Return the first folder on the way from `base` to a path, or the path itself, that the rules leave out."""
    rules, at = rules_of(base, files), base
    for name in path.relative_to(base).parts:
        at = at / name
        is_folder = at.is_dir()
        if (not rules.follow_links and at.is_symlink()) or rules.excludes(name, is_folder):
            return at
        if is_folder:
            rules = rules.below(name).with_file(at)
    return None


def read_patterns(folder: Path) -> tuple[Pattern, ...]:
    """Return the patterns of a folder's ignore file; none where there is no file."""
    file = folder / IGNORE_FILE
    if not os.path.lexists(file):
        return ()
    try:
        with open_regular(file) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (UnreadableImageError, OSError) as error:
        reason = error.reason if isinstance(error, UnreadableImageError) else str(error.strerror).lower()
        raise InvalidInputError(f"{IGNORE_FILE} cannot be read: {reason}") from error
    if len(data) > MAX_BYTES:
        raise InvalidInputError(f"{IGNORE_FILE} has more than {MAX_BYTES:,} bytes")
    lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n")
    return _patterns(_trimmed(line.removesuffix("\r")) for line in lines if line and not line.startswith("#"))


def _patterns(texts: Iterable[str]) -> tuple[Pattern, ...]:
    patterns = (Pattern.of(text) for text in texts if text)
    return tuple(pattern for pattern in patterns if pattern is not None)


def _trimmed(line: str) -> str:
    r"""Return a line without the spaces at its end; one after a backslash stays."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


def _compiled(body: str) -> list[re.Pattern[str] | None] | None:
    """Return the parts of a pattern, None for ``**``; None in place of all where nothing can match."""
    parts: list[re.Pattern[str] | None] = []
    chunks = [""]  # of one part, between its asterisks
    stars, at, begin = 0, 0, 0

    def close(end: int) -> bool:
        name = body[begin:end]
        if not name:
            return False
        if len(name) > 1 and not name.strip("*"):
            if not (parts and parts[-1] is None):
                parts.append(None)
        else:
            parts.append(re.compile(_expression(chunks), re.DOTALL))
        return True

    while at < len(body):
        character = body[at]
        if character == "/" or body.startswith("\\/", at):
            if not close(at):
                return None
            at += 1 if character == "/" else 2
            begin, chunks, stars = at, [""], 0
            continue
        if character == "*":
            if not stars:
                chunks.append("")
            stars, at = stars + 1, at + 1
            continue
        stars = 0
        if character == "[":
            read = _bracket(body, at)
            if read is None:
                return None
            expression, at = read
            chunks[-1] += expression
            continue
        if character == "\\":
            at += 1
            if at == len(body):
                return None
            character = body[at]
            chunks[-1] += re.escape(character)
        else:
            chunks[-1] += "." if character == "?" else re.escape(character)
        at += 1
    return parts if close(len(body)) else None


def _expression(chunks: Sequence[str]) -> str:
    """Join what stands between asterisks: each is found where it first can be, and never sought again."""
    if len(chunks) == 1:
        return chunks[0] + r"\Z"
    first, *between, last = chunks
    return first + "".join(f"(?>.*?{chunk})" for chunk in between if chunk) + f".*{last}" + r"\Z"


def _bracket(body: str, at: int) -> tuple[str, int] | None:
    """Return the expression of a set of characters, and where it ends; None where it does not end."""
    at += 1
    negative = body[at : at + 1] in ("!", "^") and at < len(body)
    at += negative
    ranges: list[str] = []
    previous: str | None = None
    first = True
    while True:
        if at >= len(body):
            return None
        character = body[at]
        if character == "]" and not first:
            at += 1
            break
        first = False
        if character == "[" and body.startswith("[:", at):
            # As git reads it: up to the next bracket, which a colon must precede.
            end = body.find("]", at + 2)
            if end < 0:
                return None
            if end - 1 < at + 2 or body[end - 1] != ":":
                ranges.append(r"\[")
                previous, at = "[", at + 1
                continue
            named = _NAMED.get(body[at + 2 : end - 1])
            if named is None:
                return None
            ranges.append(named)
            previous, at = None, end + 1
            continue
        if character == "-" and previous is not None and at + 1 < len(body) and body[at + 1] != "]":
            at += 1
            if body[at] == "\\":
                at += 1
                if at >= len(body):
                    return None
            if previous <= body[at]:
                ranges.append(f"{re.escape(previous)}-{re.escape(body[at])}")
            previous, at = None, at + 1
            continue
        if character == "\\":
            at += 1
            if at >= len(body):
                return None
            character = body[at]
        ranges.append(re.escape(character))
        previous, at = character, at + 1
    if not ranges:
        return ("." if negative else "(?!)"), at
    return f"[{'^' if negative else ''}{''.join(ranges)}]", at
