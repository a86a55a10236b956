"""`Client`: a service of manifind, asked as an `Index` is.

>>> client = Client("http://127.0.0.1:8765")
>>> answer = client.search("shot.jpg", box=(40, 60, 220, 310), top=20)
>>> answer.likely, answer[0].key, answer[0].score, answer[0].box
>>> client.explain(answer[0]).keys

It needs nothing that the package does not have already. Photos of the collection are named by their keys; others are
sent to the service, which keeps them in memory for a while.
"""

import io
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from manifind.errors import InvalidInput, ManifindError
from manifind.index import Chain, Link, Place, RegionShare, Source
from manifind.types import Box

LONGEST_WAIT = 10.0
"""Seconds that a client waits at most when the service asks it to come back."""

Boxed = tuple[Source, Sequence[float] | None]


class NotAnswered(ManifindError):
    """The service cannot be reached, or has too much to do; the message says which."""


@dataclass(frozen=True)
class RemoteHit:
    """A photo that was found: what `manifind.index.Hit` says, but for what explaining it takes."""

    rank: int
    key: str
    score: float
    box: Box | None
    regions: tuple[RegionShare, ...]
    also_at: tuple[str, ...]
    likely: bool | None
    verified: bool | None
    outline: tuple[tuple[float, float], ...] | None
    inliers: int | None
    _query: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class RemoteAnswer(Sequence[RemoteHit]):
    """The photos of a ranking, best first."""

    hits: tuple[RemoteHit, ...]
    likely: int | None
    """How many of the first are believed to show the object; None for methods that do not know."""
    method: str
    generation: int
    """The number of the state of the index that was searched."""

    @overload
    def __getitem__(self, place: int) -> RemoteHit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[RemoteHit]: ...
    def __getitem__(self, place: int | slice) -> RemoteHit | Sequence[RemoteHit]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[RemoteHit]:
        return iter(self.hits)


class Client:
    """A service of manifind.

    Parameters
    ----------
    address : str
        As ``manifind serve`` prints it; a ``?token=…`` in it is used.
    token : str, optional
        What the service wants to be shown.
    timeout : float
        Seconds that an answer may take.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"address is {address!r}; give what manifind serve prints, http://127.0.0.1:8765 say.")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._token = token or dict(parse_qsl(parts.query)).get("token")
        self._timeout = timeout

    def search(
        self,
        image: Source,
        box: Sequence[float] | None = None,
        *,
        also: Sequence[Boxed] = (),
        not_this: Sequence[Boxed] = (),
        top: int = 20,
        method: str = "regional",
        verify: int | None = None,
    ) -> RemoteAnswer:
        """Find the photos that contain what is in the box: see `Index.search`."""
        query = {
            "views": [self._view(*one) for one in [(image, box), *also]],
            "not_this": [self._view(*one) for one in not_this],
        }
        told = self._sent("/api/search", {**query, "top": top, "method": method, "verify": verify})
        hits = tuple(_hit(one, query) for one in told["results"])
        return RemoteAnswer(hits, told["likely"], told["method"], told["generation"])

    def explain(self, hit: RemoteHit) -> Chain:
        """Return the chain of photos that led from the query to this one: see `Index.explain`."""
        told = self._sent("/api/explain", {**hit._query, "key": hit.key})
        return Chain(told["key"], tuple(_link(one) for one in told["links"]))

    def repeats(self, *, top: int = 30) -> dict[str, Any]:
        """Return what occurs in several photos, as JSON has it: see `Index.repeats`."""
        return self._asked(f"/api/repeats?{urlencode({'top': top})}")

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and the health of the graph: see `Index.info`."""
        return self._asked("/api/info")

    def photo(self, key: str) -> bytes:
        """Return the file of a photo as it is."""
        return self._request(f"/api/original?key={quote(key, safe='')}")

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def _view(self, image: Source, box: Sequence[float] | None) -> dict[str, Any]:
        part = None if box is None else [float(corner) for corner in box]
        if isinstance(image, np.ndarray):
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            image = buffer.getvalue()
        elif isinstance(image, str | os.PathLike):
            if not Path(image).is_file():
                return {"key": os.fspath(image), "box": part}
            image = Path(image).read_bytes()
        elif not isinstance(image, bytes):
            raise InvalidInput(f"image is a {type(image).__name__}; give a path, a key, bytes or pixels.")
        kept = json.loads(self._request("/api/uploads", image, "application/octet-stream"))
        return {"upload": kept["upload"], "box": part}

    def _asked(self, path: str) -> dict[str, Any]:
        return dict(json.loads(self._request(path)))

    def _sent(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(json.loads(self._request(path, json.dumps(body).encode(), "application/json")))

    def _request(self, path: str, body: bytes | None = None, kind: str | None = None) -> bytes:
        headers = {"Content-Type": kind} if kind else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.address + path, body, headers)  # noqa: S310 (http or https: checked)
        for last in (False, True):
            try:
                with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                    content: bytes = answer.read()
                    return content
            except urllib.error.HTTPError as refusal:
                with refusal:
                    if refusal.code != 503 or last:
                        raise _refused(refusal) from None
                    time.sleep(min(LONGEST_WAIT, float(refusal.headers.get("Retry-After", 1))))
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                reason = getattr(error, "reason", error)
                raise NotAnswered(f"{self.address} does not answer ({reason}); is the service running?") from error
        raise NotAnswered(f"{self.address} has too much to do; try again.")


def _refused(refusal: urllib.error.HTTPError) -> ManifindError:
    try:
        sentence = str(json.loads(refusal.read())["error"])
    except (ValueError, KeyError, TypeError, OSError):
        sentence = f"The service answered {refusal.code}."
    return InvalidInput(sentence) if refusal.code < 500 else NotAnswered(sentence)


def _hit(one: Mapping[str, Any], query: Mapping[str, Any]) -> RemoteHit:
    outline = one["outline"]
    return RemoteHit(
        one["rank"],
        one["key"],
        one["score"],
        _box(one["box"]),
        tuple(RegionShare(_corners(region["box"]), region["share"]) for region in one["regions"]),
        tuple(one["also_at"]),
        one["likely"],
        one["verified"],
        None if outline is None else tuple((float(x), float(y)) for x, y in outline),
        one["inliers"],
        query,
    )


def _link(one: Mapping[str, Any]) -> Link:
    source, target = (Place(end["key"], _corners(end["box"]), end["view"]) for end in (one["source"], one["target"]))
    return Link(source, target, one["similarity"], one["flow"])


def _box(corners: Sequence[float] | None) -> Box | None:
    return None if corners is None else _corners(corners)


def _corners(given: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(corner) for corner in given)
    return x0, y0, x1, y1
