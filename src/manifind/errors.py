"""What can go wrong, by whose fault.

::

    ManifindError
    ├── InvalidInput  (ValueError)      what was given cannot be used: the sentence says what to give
    │   └── NotFitted                   asked before ``fit``
    └── Damaged       (ValueError)      a saved file is cut short, altered or not ours

    ManifindWarning   (UserWarning)     the work went on, but not quite as asked
"""


class ManifindError(Exception):
    """The root of every error that manifind raises on purpose."""


class InvalidInput(ManifindError, ValueError):
    """An argument cannot be used; the message names it, what is wrong and what to do."""


class NotFitted(InvalidInput):
    """A fitted estimator is needed and ``fit`` has not been called."""


class Damaged(ManifindError, ValueError):
    """A saved file or folder is incomplete, altered, or of another format."""


class ManifindWarning(UserWarning):
    """The work went on, but not quite as asked; the message says what was done instead."""
