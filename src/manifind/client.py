"""`Client`: a service of manifind, asked as an `Index` is.

>>> client = Client("http://127.0.0.1:8765")
>>> result = client.search("shot.jpg", box=(40, 60, 220, 310), top=20)
>>> result.n_matches, result[0].key, result[0].score, result[0].box
>>> client.explain(result[0]).keys

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from manifind.errors import InvalidInputError, ManifindError
from manifind.index import Chain, Link, Match, Outline, Place, RegionShare, Source
from manifind.types import Box

LONGEST_WAIT = 10.0
"""Seconds that a client waits at most when the service asks it to come back."""

Example = tuple[Source, Sequence[float] | None]


class ServiceUnavailableError(ManifindError):
    """The service cannot be reached, or has too much to do; the message says which."""


@dataclass(frozen=True, kw_only=True)
class RemoteHit(Match):
    """A result of a service."""

    query: Mapping[str, Any] = field(repr=False, compare=False)
    """What was searched for, which explaining the result takes."""


class RemoteSearchResult(Sequence[RemoteHit]):
    """The photos that a service found, best first.

    Parameters
    ----------
    payload : mapping
        The service's response.
    query : mapping
        What was searched for.
    """

    def __init__(self, payload: Mapping[str, Any], query: Mapping[str, Any]) -> None:
        self.n_matches: int | None = payload["n_matches"]
        """How many of the first are believed to show the object; None where the method has no cutoff."""
        self.n_verified: int | None = payload["n_verified"]
        """How many of the first are verified; None where none was to be verified."""
        self.complete: bool = payload["complete"]
        """False where the service's deadline cut the search short."""
        self.method: str = payload["method"]
        self.generation: int = payload["generation"]
        """The number of the snapshot that was searched."""
        self._query = query
        self._hits = tuple(self._hit(one) for one in payload["results"])

    def _hit(self, one: Mapping[str, Any]) -> RemoteHit:
        return RemoteHit(
            rank=one["rank"],
            key=one["key"],
            score=one["score"],
            box=None if one["box"] is None else _corners(one["box"]),
            regions=tuple(RegionShare(_corners(region["box"]), region["share"]) for region in one["regions"]),
            duplicates=tuple(one["duplicates"]),
            is_match=one["is_match"],
            verified=one["verified"],
            outline=None if one["outline"] is None else _outline(one["outline"]),
            inliers=one["inliers"],
            other_outlines=tuple(map(_outline, one["other_outlines"])),
            expanded=one["expanded"],
            query=self._query,
        )

    @overload
    def __getitem__(self, place: int) -> RemoteHit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[RemoteHit]: ...
    def __getitem__(self, place: int | slice) -> RemoteHit | Sequence[RemoteHit]:
        return self._hits[place]

    def __len__(self) -> int:
        return len(self._hits)

    def __repr__(self) -> str:
        matches = "" if self.n_matches is None else f", {self.n_matches} of them matches"
        return f"RemoteSearchResult({len(self)} photos by {self.method!r}{matches})"


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
            raise InvalidInputError(
                f"address is {address!r}; give what manifind serve prints, http://127.0.0.1:8765 say."
            )
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._token = token or dict(parse_qsl(parts.query)).get("token")
        self._timeout = timeout

    def search(
        self,
        image: Source,
        box: Sequence[float] | None = None,
        *,
        positives: Sequence[Example] = (),
        negatives: Sequence[Example] = (),
        top: int = 20,
        method: str = "regional",
        verify: int | None = None,
        expand: bool = True,
        folder: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> RemoteSearchResult:
        """Find the photos that contain what is in the box: see `Index.search`."""
        query = {
            "views": [self._view(*one) for one in [(image, box), *positives]],
            "negatives": [self._view(*one) for one in negatives],
        }
        options = {"top": top, "method": method, "verify": verify, "expand": expand}
        filters = {"folder": folder, "since": since, "until": until}
        return RemoteSearchResult(self._sent("/api/search", {**query, **options, **filters}), query)

    def explain(self, hit: RemoteHit) -> Chain:
        """Return the chain of photos that led from the query to this one: see `Index.explain`."""
        if not isinstance(hit, RemoteHit):
            raise InvalidInputError("the hit is an index's own; explain it with Index.explain.", code="hit-of-index")
        told = self._sent("/api/explain", {**hit.query, "key": hit.key})
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
            raise InvalidInputError(f"image is a {type(image).__name__}; give a path, a key, bytes or pixels.")
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
                raise ServiceUnavailableError(
                    f"{self.address} does not answer ({reason}); is the service running?"
                ) from error
        raise ServiceUnavailableError(f"{self.address} has too much to do; try again.")


def _refused(refusal: urllib.error.HTTPError) -> ManifindError:
    try:
        body = json.loads(refusal.read())
        sentence, code = str(body["error"]), str(body["code"])
    except (ValueError, KeyError, TypeError, OSError):
        sentence, code = f"The service answered {refusal.code}.", None
    kind = InvalidInputError if refusal.code < 500 else ServiceUnavailableError
    return kind(sentence, code=code)


def _link(one: Mapping[str, Any]) -> Link:
    source, target = (Place(end["key"], _corners(end["box"]), end["view"]) for end in (one["source"], one["target"]))
    return Link(source, target, one["similarity"], one["flow"], one["verified"], one["inliers"])


def _corners(given: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(corner) for corner in given)
    return x0, y0, x1, y1


def _outline(given: Sequence[Sequence[float]]) -> Outline:
    a, b, c, d = ((float(x), float(y)) for x, y in given)
    return a, b, c, d
