"""The terminal of every command: output, progress bars, errors and exit codes, pages.

Exit codes: 0 done, 1 nothing found or a check that failed, 2 the user's words are off, 3 the machine's fault. An error
is one sentence on standard error; the traceback comes with ``--debug``.
"""

import errno
import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from manifind.errors import DamagedError, InvalidInputError, ManifindError
from manifind.reports.text import visible
from manifind.types import StageProgress

NOTHING_FOUND = CHECK_FAILED = 1
WRONG_WORDS, MACHINE_FAULT, INTERRUPTED = 2, 3, 130

REMEDIES = {
    errno.ENOSPC: "; free some space, or choose another disk",
    errno.EROFS: "; choose a place that can be written",
    errno.EACCES: "; ask for the right to it, or choose another place",
}
"""Remedies of the system's errors."""

# Keys are printed as they are: nothing in them is markup, an emoji's name, or something to colour or to break.
out = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
err = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def shown_box(box: tuple[float, ...]) -> str:
    """Return a box as the command line takes it."""
    return ",".join(f"{corner:.0f}" for corner in box)


def show_skipped(skipped: list[dict[str, str | None]]) -> None:
    """Print the skipped files, and apart from them the duplicates, which are listed with their twins."""
    copies = [file for file in skipped if file.get("duplicate_of")]
    others = [file for file in skipped if not file.get("duplicate_of")]
    _show_files(f"skipped {len(others)}:", others)
    _show_files(f"copies of others, listed with their twins, {len(copies)}:", copies)


def _show_files(heading: str, files: list[dict[str, str | None]]) -> None:
    """Print the first few of some files, each with the reason."""
    if files:
        out.print(heading)
        for file in files[:10]:
            out.print(visible(f"  {file['key']}: {file['reason']}"))
        if len(files) > 10:
            out.print(f"  and {len(files) - 10} more; manifind info --json lists them")


def write_page(file: Path, text: str) -> None:
    """Write a page where the user wants it."""
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise InvalidInputError(
            f"{file} is a folder or lies in none; give the name of a file to write, report.html say."
        )
    file.write_text(text, encoding="utf-8")


@contextmanager
def progress_bars(*, hidden: bool) -> Iterator[StageProgress]:
    """Show a bar for each stage, with the rate and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=hidden or not err.is_terminal, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, rate="")
            speed = bars.tasks[tasks[stage]].speed
            bars.update(tasks[stage], completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")

        yield progress


@contextmanager
def devices_named(*, hidden: bool) -> Iterator[None]:
    """Print what the log says of devices, each sentence once."""
    log, printed = logging.getLogger("manifind.device"), set[str]()

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sentence = record.getMessage()
            if sentence not in printed:
                printed.add(sentence)
                err.print(sentence)

    handler, level = Printer(), log.level
    if not hidden:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def plain_errors(
    debug: bool, interrupted: str = "interrupted; extracted photos are saved, and the same command goes on from there."
) -> Iterator[None]:
    """Turn an error into one sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(interrupted)
        sys.exit(INTERRUPTED)
    except (ManifindError, FileNotFoundError, NotADirectoryError) as error:
        if debug:
            raise
        err.print(_sentence(error))
        named = isinstance(error, FileNotFoundError | NotADirectoryError)
        sys.exit(MACHINE_FAULT if isinstance(error, DamagedError | OSError) and not named else WRONG_WORDS)
    except (OSError, sqlite3.Error, MemoryError) as error:
        if debug:
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        remedy = REMEDIES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
        err.print(_sentence(f"{where}{getattr(error, 'strerror', None) or error or 'out of memory'}{remedy}."))
        sys.exit(MACHINE_FAULT)


def _sentence(error: object) -> str:
    """Return an error without what would steer a terminal: files from anybody may be quoted in it."""
    return "\n".join(map(visible, str(error).splitlines()))


def check_formats(*, as_json: bool, as_csv: bool) -> None:
    """Raise `InvalidInputError` if two formats are given."""
    if as_json and as_csv:
        raise InvalidInputError("--json and --csv are both given; give one of them.")
