"""Requests of all kinds, made from the service's own schema: ``python -m tests.attack.schema COUNT``.

Half of them are allowed by the schema, half forbidden. No answer may be a fault of the service: of 5xx only 503 and
504, with a sentence and a code. Memory and open files stay as they were after the first quarter.
"""

import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.attack import Place, broken
from tests.attack.service import Target, serving

REAL = {"key": "01.jpg", "name": "a", "q": "k:01.jpg"}
"""Values that lead further than random ones: every other request has them where its operation takes them."""
MAX_GROWTH = 150e6
MAX_FILES = 20


def attack(target: Target, count: int) -> str:
    """Send requests and return what was measured."""
    schema = schemathesis.openapi.from_url(f"{target.address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    statuses: Counter[int] = Counter()
    quarter: tuple[int, int] | None = None
    seed = 0
    while sum(statuses.values()) < count:
        for operation in operations:
            for mode in GenerationMode:
                with suppress(Unsatisfiable):  # where there is nothing to say, nothing forbidden can be said
                    _send(operation.as_strategy(generation_mode=mode), seed, target, statuses)
        seed += 1
        if quarter is None and sum(statuses.values()) >= count / 4:
            quarter = target.memory, target.files
    assert quarter is not None
    target.alive()
    grown, files = target.memory - quarter[0], target.files - quarter[1]
    shown = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    told = f"{sum(statuses.values()):,} requests: {shown}; {grown / 1e6:+.0f} MB, {files:+d} files"
    if grown > MAX_GROWTH or files > MAX_FILES or "Traceback" in target.log.read_text():
        broken(f"{told}; log: {target.log.read_text()[-500:]}")
    return told


def _send(strategy: Any, seed: int, target: Target, statuses: Counter[int]) -> None:
    number = 0

    @given(case=strategy)
    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        nonlocal number
        number += 1
        if number % 2 and case.query:
            case.query = {name: REAL.get(name, value) for name, value in case.query.items()}
        try:
            answer = case.call(base_url=target.address, timeout=60)
        except requests.exceptions.InvalidHeader:  # never sent
            return
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            body = answer.json() if answer.status_code in (503, 504) else {}
            if not (body.get("error") and body.get("code")):
                broken(f"{case.method} {case.formatted_path} {case.query}: {answer.status_code} {answer.text[:300]}")

    hypothesis.seed(seed)(send)()


def main() -> None:
    """Make an index, serve it, attack it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), sys.executable)
        with serving(place) as target:
            print(attack(target, int(sys.argv[1])))


if __name__ == "__main__":
    main()
