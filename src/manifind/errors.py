"""What can go wrong, by whose fault.

::

    ManifindError
    ├── InvalidInput  (ValueError)      what was given cannot be used: the sentence says what to give
    │   ├── NotFitted                   asked before ``fit``
    │   └── InUse                       another process is writing just now: wait for it
    ├── Damaged       (ValueError)      a saved file is cut short, altered or not ours
    │   └── OtherFormat                 it is whole, and of another version of manifind
    ├── Unreadable                      a file is no photo that can be read whole
    └── MissingExtra  (ImportError)     an optional package is not installed: the sentence says what to type

    ManifindWarning   (UserWarning)     the work went on, but not quite as asked
"""

import os
import shlex
import subprocess


def typed(path: object) -> str:
    """Return a path as one types it into a shell: a sentence that says what to type can be copied."""
    return subprocess.list2cmdline([str(path)]) if os.name == "nt" else shlex.quote(str(path))


class ManifindError(Exception):
    """The root of every error that manifind raises on purpose."""


class InvalidInput(ManifindError, ValueError):
    """An argument cannot be used; the message names it, what is wrong and what to do."""


class NotFitted(InvalidInput):
    """A fitted estimator is needed and ``fit`` has not been called."""


class InUse(InvalidInput):
    """Another process is writing what is to be written; the message has its number."""


class Damaged(ManifindError, ValueError):
    """A saved file or folder is incomplete, altered, or of another format."""


class OtherFormat(Damaged):
    """A saved thing is whole, and of a format that this manifind does not read."""


class Unreadable(ManifindError):
    """A file is no photo that can be read whole; `reason` says why in a few words.

    It is `temporary` where the same file may be read another time: once a package is installed, or with more memory.
    """

    def __init__(self, reason: str, name: str = "", *, temporary: bool = False) -> None:
        super().__init__(reason, name)
        self.reason = reason
        self.name = name
        self.temporary = temporary

    def __str__(self) -> str:
        return f"{self.name or 'The photo'} cannot be read: {self.reason}."


class MissingExtra(ManifindError, ImportError):
    """An optional package is needed and not installed; the message has the line that installs it."""


class ManifindWarning(UserWarning):
    """The work went on, but not quite as asked; the message says what was done instead."""
