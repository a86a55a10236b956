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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from manifind.errors import InvalidInput, ManifindError
from manifind.index import Chain, Link, Match, Outline, Place, RegionShare, Source
from manifind.types import Box

LONGEST_WAIT = 10.0
"""Seconds that a client waits at most when the service asks it to come back."""

Boxed = tuple[Source, Sequence[float] | None]


class NotAnswered(ManifindError):
    """The service cannot be reached, or has too much to do; the message says which."""


class RemoteAnswer(Sequence[Match]):
    """The photos that a service found, best first.

    Parameters
    ----------
    told : mapping
        What the service answered.
    query : mapping
        What it was asked, which is what explaining a photo takes.
    """

    def __init__(self, told: Mapping[str, Any], query: Mapping[str, Any]) -> None:
        self.likely: int | None = told["likely"]
        """How many of the first are believed to show the object; None for methods that do not know."""
        self.verified: int | None = told["verified"]
        """How many of the first geometry confirms; None where it was not asked."""
        self.method: str = told["method"]
        self.generation: int = told["generation"]
        """The number of the state of the index that was searched."""
        self._query = query
        self._hits = tuple(self._match(one) for one in told["results"])

    def _match(self, one: Mapping[str, Any]) -> Match:
        return Match(
            rank=one["rank"],
            key=one["key"],
            score=one["score"],
            box=None if one["box"] is None else _corners(one["box"]),
            regions=tuple(RegionShare(_corners(region["box"]), region["share"]) for region in one["regions"]),
            also_at=tuple(one["also_at"]),
            verified=one["verified"],
            outline=None if one["outline"] is None else _outline(one["outline"]),
            inliers=one["inliers"],
            others=tuple(map(_outline, one["others"])),
            refined=one["refined"],
            _answer=self,
        )

    @overload
    def __getitem__(self, place: int) -> Match: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Match]: ...
    def __getitem__(self, place: int | slice) -> Match | Sequence[Match]:
        return self._hits[place]

    def __len__(self) -> int:
        return len(self._hits)

    def __repr__(self) -> str:
        likely = "" if self.likely is None else f", {self.likely} of them likely"
        return f"RemoteAnswer({len(self)} photos by {self.method!r}{likely})"


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
        folder: str | None = None,
    ) -> RemoteAnswer:
        """Find the photos that contain what is in the box: see `Index.search`.

        `folder` confines the search to photos below it. Where the service has several collections, keys and folders
        begin with the name of theirs, and a name alone is the folder that is a whole collection.
        """
        query = {
            "views": [self._view(*one) for one in [(image, box), *also]],
            "not_this": [self._view(*one) for one in not_this],
        }
        asked = {**query, "top": top, "method": method, "verify": verify, "folder": folder}
        return RemoteAnswer(self._sent("/api/search", asked), query)

    def explain(self, hit: Match) -> Chain:
        """Return the chain of photos that led from the query to this one: see `Index.explain`."""
        if not isinstance(hit._answer, RemoteAnswer):
            raise InvalidInput("the hit is an index's own; explain it with Index.explain.")
        told = self._sent("/api/explain", {**hit._answer._query, "key": hit.key})
        return Chain(told["key"], tuple(_link(one) for one in told["links"]))

    def repeats(self, *, top: int = 30) -> dict[str, Any]:
        """Return what occurs in several photos, as JSON has it: see `Index.repeats`."""
        return self._asked(f"/api/repeats?{urlencode({'top': top})}")

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and the health of the graph: see `Index.info`."""
        return self._asked("/api/info")

    def collections(self) -> list[str]:
        """Return the names of the collections that the service has."""
        return [one["name"] for one in self._asked("/api/collections")["collections"]]

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


def _link(one: Mapping[str, Any]) -> Link:
    source, target = (Place(end["key"], _corners(end["box"]), end["view"]) for end in (one["source"], one["target"]))
    return Link(source, target, one["similarity"], one["flow"], one["verified"], one["inliers"])


def _corners(given: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(corner) for corner in given)
    return x0, y0, x1, y1


def _outline(given: Sequence[Sequence[float]]) -> Outline:
    a, b, c, d = ((float(x), float(y)) for x, y in given)
    return a, b, c, d
