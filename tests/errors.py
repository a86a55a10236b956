"""What a test expects of an error: its type and its code. One test of each error holds the sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from manifind.errors import ManifindError


@contextmanager
def raises(code: str, kind: type[ManifindError] = ManifindError) -> Iterator[pytest.ExceptionInfo[ManifindError]]:
    """Expect an error of this type and code; the value is the ``excinfo`` of pytest."""
    with pytest.raises(kind) as excinfo:
        yield excinfo
    assert excinfo.value.code == code, excinfo.value
