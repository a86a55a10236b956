"""The errors that manifind raises on purpose, by whose fault they are.

::

    error                                           code
    ManifindError                                   error
    ├── InvalidInputError       (ValueError)        invalid-input       an argument cannot be used
    │   ├── NotFittedError                          not-fitted          called before ``fit``
    │   └── InUseError                              in-use              another process is writing: wait for it
    ├── DamagedError            (ValueError)        damaged             a saved file is cut short, altered or not ours
    │   └── FormatVersionError                      format-version      it is whole, and of another version of manifind
    ├── MissingFileError        (FileNotFoundError) missing-file        a file or folder that was named does not exist
    ├── DiskFullError           (OSError)           disk-full           the disk has too little space for what is asked
    ├── UnreadableImageError                        unreadable-image    a file is no photo that can be read whole
    └── MissingExtraError       (ImportError)       missing-extra       an optional package is not installed

    ManifindWarning             (UserWarning)       the work went on, but not quite as asked
    └── ConvergenceWarning                          a solver reached `max_iter` before `tol`

The message is one sentence for people: what is wrong, then what to do. Programs and tests read the type, the `code`
and the fields, never the message. A raise may give a code of its own, more exact than that of its class.
"""

import os
import shlex
import subprocess
from errno import ENOSPC
from typing import Any


def shell_quote(path: object) -> str:
    """Return a path as one types it into a shell: a sentence that says what to type can be copied."""
    return subprocess.list2cmdline([str(path)]) if os.name == "nt" else shlex.quote(str(path))


class ManifindError(Exception):
    """The root of every error that manifind raises on purpose.

    Parameters
    ----------
    *args
        The message; only what is wrong, without a full stop, where `remedy` says the rest.
    remedy : str, optional
        What to do.
    code : str, optional
        A stable name of what went wrong, in kebab case; that of the class by default.
    """

    code: str = "error"
    remedy: str | None = None

    def __init__(self, *args: object, remedy: str | None = None, code: str | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if remedy is not None:
            self.remedy = remedy
        if code is not None:
            self.code = code

    @property
    def problem(self) -> str:
        """What is wrong, without the remedy where that was given apart."""
        return super().__str__()

    def __str__(self) -> str:
        return self.problem if self.remedy is None else f"{self.problem}; {self.remedy}."


class InvalidInputError(ManifindError, ValueError):
    """An argument cannot be used; the message names it, what is wrong and what to do."""

    code = "invalid-input"


class NotFittedError(InvalidInputError):
    """A fitted estimator is needed and ``fit`` has not been called."""

    code = "not-fitted"


class InUseError(InvalidInputError):
    """Another process is writing what is to be written; the message has its number."""

    code = "in-use"


class DamagedError(ManifindError, ValueError):
    """A saved file or folder is incomplete, altered, or of another format."""

    code = "damaged"


class FormatVersionError(DamagedError):
    """A saved thing is whole, and of a format that this manifind does not read."""

    code = "format-version"


class MissingFileError(ManifindError, FileNotFoundError):
    """A file or folder that was named does not exist; the message says what to give."""

    code = "missing-file"


class DiskFullError(ManifindError, OSError):
    """The disk has too little space for what is asked; the message has both numbers."""

    code = "disk-full"
    errno = ENOSPC


class UnreadableImageError(ManifindError):
    """A file is no photo that can be read whole; `reason` says why in a few words.

    It is `temporary` where the same file may be read another time: once a package is installed, or with more memory.
    """

    code = "unreadable-image"

    def __init__(self, reason: str, name: str = "", *, temporary: bool = False, code: str | None = None) -> None:
        super().__init__(reason, name, code=code)
        self.reason = reason
        self.name = name
        self.temporary = temporary

    def __str__(self) -> str:
        return f"{self.name or 'The photo'} cannot be read: {self.reason}."


class MissingExtraError(ManifindError, ImportError):
    """An optional package is needed and not installed; the message has the line that installs it."""

    code = "missing-extra"


class ManifindWarning(UserWarning):
    """The work went on, but not quite as asked; the message says what was done instead."""


class ConvergenceWarning(ManifindWarning):
    """A solver that is meant to converge reached `max_iter` before `tol`."""
