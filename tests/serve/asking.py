"""What tests of the service ask it, and what they read out of its answers."""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

PATIENCE = 120.0
"""Seconds that a test waits for what should come at once: the machine may be busy, and a test that hangs must end."""
BOX = (20, 12, 148, 140)
"""Where the first thing is in first-0.png."""
VIEW = {"key": "first-0.png", "box": list(BOX)}
SEARCH = "/?q=k:first-0.png@20,12,148,140"
FIRST = {f"first-{i}.png" for i in range(6)}
"""The photos that show the first thing."""

get, post = partial(httpx.get, timeout=PATIENCE), partial(httpx.post, timeout=PATIENCE)


def client_of(address: str) -> httpx.Client:
    """Return a client of a service."""
    return httpx.Client(base_url=address, timeout=PATIENCE)


def ranked(answer: httpx.Response) -> list[tuple[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [(one["key"], pytest.approx(one["score"], rel=1e-3, abs=1e-7)) for one in answer.json()["results"]]


def counted(client: httpx.Client, name: str) -> float:
    """A figure of the metrics, all labels together."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return sum(map(float, found))


def refused(answer: httpx.Response, *statuses: int) -> str:
    """The one sentence of a refusal."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    sentence, code = answer.json()["error"], answer.json()["code"]
    assert isinstance(sentence, str)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code), code
    assert sentence.endswith((".", "…"))
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    return sentence


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
