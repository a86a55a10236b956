"""Names that others chose, made safe: in a cell of a spreadsheet, on a line of text, and as the name of a file.

The key of a photo is the name of a file, and a file can be named by somebody who means harm. `cell` keeps a spreadsheet
from running a name as a formula. `visible` writes out the characters that nobody can see, or that turn the rest of the
line round: ``invoice\u202egpj.exe`` instead of what looks like ``invoiceexe.jpg``. `archive_name` keeps to characters
that every system takes in the name of a file.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

_FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=['\"]*[=+\-@\t\r\n＝＋－＠])")
"""Where a formula would begin: at the start, or after what a spreadsheet of another country ends a cell with."""

_WRITTEN_OUT = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of characters without a look of their own: controls, formats, halves of characters, ends of lines."""

_BLANK = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)
"""Characters of other categories that take no room or leave it empty, first and last of each stretch."""

LONGEST_PART = 120
"""Characters of a folder's or a file's name in an archive."""

_NON_JOINER, _JOINER, _AS_EMOJI = "\u200c", "\u200d", "\ufe0f"


def cell(text: str) -> str:
    """Return text as it can stand in a cell of a CSV file: an apostrophe goes before what would be run as a formula.

    A text that had apostrophes there gets one more, so that whoever takes one away has what was meant.
    """
    return _FORMULA.sub("'", text)


def visible(text: str) -> str:
    r"""Return text with every invisible character written out as ``\u202e``.

    Joiners stay where a script or an emoji needs them: Persian names and families are written with them.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escaped(here) if _is_invisible(here) and not _belongs(before, here) else here
        for before, here in zip(("", *text), text, strict=False)
    )


def archive_name(key: str) -> str:
    """Return the name of a photo in an archive: its key, in characters that every system can unpack."""
    return "/".join(plain_name(part) for part in PurePosixPath(key).parts)


def plain_name(name: str) -> str:
    """Return the name of a file or a folder in characters that every system takes; nothing in it leads elsewhere."""
    plain = "".join(letter if letter.isalnum() or letter in " ._-()" else "_" for letter in name)[-LONGEST_PART:]
    return plain.rstrip(" .").lstrip(" ") or "_"


def _is_invisible(character: str) -> bool:
    code = ord(character)
    return unicodedata.category(character) in _WRITTEN_OUT or any(first <= code <= last for first, last in _BLANK)


def _belongs(before: str, here: str) -> bool:
    """Say whether a joiner stands after a letter of a script that joins (Arabic to Sinhala), or within an emoji."""
    if not before or here not in (_NON_JOINER, _JOINER, _AS_EMOJI):
        return False
    if here != _AS_EMOJI and 0x0620 <= ord(before) <= 0x0DFF and not _is_invisible(before):
        return True
    return here != _NON_JOINER and (before == _AS_EMOJI or unicodedata.category(before) in ("So", "Sk"))


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def as_csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, the names of the columns first."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()


def yes_or_no(flag: bool | None) -> str:
    """Return a flag as a cell says it; nothing where it is not known."""
    return "" if flag is None else "yes" if flag else "no"
