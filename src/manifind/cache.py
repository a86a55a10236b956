"""What was used recently, kept in memory up to a total size; what was not used for longest makes room."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """A dictionary of bounded total size; any number of threads may use it.

    `max_size` is the largest total of the sizes of the values: bytes, or a count where each has size 1.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, if it is still there."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def pop(self, key: Hashable) -> Value | None:
        """Return the value of a key and forget it, if it is still there."""
        with self._lock:
            if key not in self._values:
                return None
            value, size = self._values.pop(key)
            self._size -= size
            return value

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of this size; a value that is larger than `max_size` is not kept."""
        with self._lock:
            if key in self._values:
                self._size -= self._values.pop(key)[1]
            if size > self._max_size:
                return
            self._values[key] = value, size
            self._size += size
            while self._size > self._max_size:
                self._size -= self._values.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._values)
