"""``manifind evaluate`` as it is typed, and the figures that it should print, by hand."""

import json
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import numpy.typing as npt
from click.testing import Result

from manifind.evaluation import average_precision
from tests import commands
from tests.evaluation.conftest import Laid

FEW = ("--method", "nearest", "--method", "global-diffusion:k=10", "--method", "regional-diffusion:k=20,query_k=10")
"""Methods that take no time."""


def run(*words: object) -> Result:
    """Evaluate by these words."""
    return commands.run("evaluate", *words)


def on(laid: Laid, *words: object) -> Result:
    """Evaluate on a collection by these words."""
    return run(laid.vectors, "--truth", laid.truth, "--queries", laid.queries, *words)


def printed(result: Result) -> Any:
    """Return the JSON that was printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def by_hand(laid: Laid, estimator: Any, definition: str) -> list[float]:
    """Average precision of each query, in percent, from the estimator itself and the truth's own file."""
    estimator.fit(laid.planted.vectors, laid.planted.image_of)
    return counted(laid, [estimator.search(vectors).images for vectors in laid.planted.queries], definition)


def counted(laid: Laid, rankings: Iterable[npt.NDArray[np.integer]], definition: str = "trapezoid") -> list[float]:
    """Average precision of each query's ranking, in percent, by the truth's own file."""
    found = []
    for query, ranking in zip(json.loads(laid.truth.read_text())["queries"], rankings, strict=True):
        wanted = [laid.names.index(one["image"]) for one in query["positives"]]
        junk = [laid.names.index(one) for one in query["junk"]]
        found.append(100 * average_precision(ranking, wanted, junk, definition=definition))
    return found


class Resources(HTMLParser):
    """What a browser would fetch for a page, and the tags of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def resources(text: str) -> Resources:
    parser = Resources()
    parser.feed(text)
    return parser
