"""What every table that is written as CSV shares."""

import csv
import io
from collections.abc import Iterable, Sequence


def as_csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, the names of the columns first."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()


def yes_or_no(flag: bool | None) -> str:
    """Return a flag as a cell says it; nothing where it is not known."""
    return "" if flag is None else "yes" if flag else "no"
