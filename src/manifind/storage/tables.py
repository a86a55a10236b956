"""SQLite databases that may come from anybody: read only where their tables are ours, no more and no other.

What a database says of its own tables is run when it is read: a view or a trigger could do whatever its maker wrote.
"""

import itertools
import sqlite3
from contextlib import closing
from functools import cache

LISTED = "SELECT type, name, sql FROM sqlite_schema"
"""What to ask a database before anything else: it must answer as `tables_of` its schema says."""

STEPS_AT_A_TIME = 10_000
STEPS_A_BYTE = 8
"""Steps of SQLite's machine that checking a database may take for each of its bytes; an honest one takes fewer."""


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


def load_tables(database: sqlite3.Connection, content: bytes, schema: str) -> None:
    """Load the bytes of a database into an empty one in memory; `sqlite3.Error` unless they are whole and of `schema`.

    Every page is checked, so that later queries end and find the rows that are there.
    """
    calls, most = itertools.count(1), 1 + STEPS_A_BYTE * len(content) // STEPS_AT_A_TIME
    database.set_progress_handler(lambda: next(calls) > most, STEPS_AT_A_TIME)
    database.deserialize(content)
    if sorted(database.execute(LISTED)) != tables_of(schema):
        raise sqlite3.DatabaseError("it has other tables than it should have")
    (problem,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(f"SQLite finds it damaged: {problem}")
    database.set_progress_handler(None, 0)
