"""SQLite databases that may come from anybody: read only where their tables are ours, no more and no other.

What a database says of its own tables is run when it is read: a view or a trigger could do whatever its maker wrote.
"""

import sqlite3
from contextlib import closing
from functools import cache

LISTED = "SELECT type, name, sql FROM sqlite_schema"
"""What to ask a database before anything else: it must answer as `tables_of` its schema says."""


def in_memory(schema: str) -> sqlite3.Connection:
    """Return an empty database of these tables, which several threads may use."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.executescript(schema)
    return database


@cache
def tables_of(schema: str) -> list[tuple[str, str, str | None]]:
    """Return what a database of these tables, and of no others, answers to `LISTED`, in order."""
    with closing(in_memory(schema)) as database:
        return sorted(database.execute(LISTED).fetchall())
