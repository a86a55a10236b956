"""The deadline of a search."""

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Deadline:
    """A moment at which a search must return what it has."""

    at: float | None = None
    """By `time.monotonic`; None is never."""

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline so many seconds from now; None is never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float:
        """How many seconds are left, infinity without a deadline; negative once it has passed."""
        return float("inf") if self.at is None else self.at - time.monotonic()

    @property
    def has_passed(self) -> bool:
        """Whether the moment has passed."""
        return self.seconds_left < 0

    def check(self) -> None:
        """Raise `TimeoutError` if it has passed."""
        if self.has_passed:
            raise TimeoutError("the search was cut short by its deadline.")


NO_DEADLINE = Deadline()
