"""A log that cannot be flooded: of messages that are alike, only some are written, and how many were not."""

import logging
import time
from collections import OrderedDict

FEW = 5
"""Messages of a kind in a row."""
SECONDS = 60.0
KINDS = 200
LOGGERS = ("asyncio", "uvicorn", "uvicorn.error", "manifind.serve")
"""Loggers that anybody on the network can make write."""


class RateLimitFilter(logging.Filter):
    """Lets a few messages of each kind through in a minute; a kind is what stands in the program."""

    def __init__(self, few: int = FEW, seconds: float = SECONDS) -> None:
        super().__init__()
        self._few = few
        self._seconds = seconds
        self._kinds: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When each kind's minute began, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether to write a message; the first after some that were not says how many those were."""
        snapshot = time.monotonic()
        # Words that were put together before they came here differ in their figures and in their ends.
        words = "".join(letter for letter in str(record.msg)[:60] if not letter.isdigit())
        kind = f"{record.name} {record.levelno} {words}"
        began, count = self._kinds.pop(kind, (snapshot, 0))
        if snapshot - began > self._seconds:
            missed = max(0, count - self._few)
            if missed:
                record.msg = f"{record.msg} (and {missed} like it that were not written)"
            began, count = snapshot, 0
        self._kinds[kind] = began, count + 1
        if len(self._kinds) > KINDS:
            self._kinds.popitem(last=False)
        return count < self._few


def limit_logs() -> None:
    """Limit the rate of what the `LOGGERS` write, once."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, RateLimitFilter) for one in logger.filters):
            logger.addFilter(RateLimitFilter())
