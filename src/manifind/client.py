"""`Client`: a service of manifind, searched as an `Index` is.

>>> client = Client("http://127.0.0.1:8765")
>>> result = client.search("shot.jpg", box=(40, 60, 220, 310), top=20)
>>> result.n_matches, result[0].key, result[0].score, result[0].box
>>> client.explain(result[0]).keys

It needs the standard library alone. Photos of the collection are named by their keys; others are sent to the service,
which keeps them in memory for a while. No redirect is followed, responses are bounded, and every error is a
`ManifindError`.
"""

import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, overload
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from manifind.errors import InvalidInputError, ManifindError
from manifind.iiif.fetch import retry_after
from manifind.index import Chain, Grade, Link, Match, Outline, Place, RegionShare, SearchOptions, Source
from manifind.index.index import Example
from manifind.io import upright_pixels
from manifind.types import Box

LONGEST_WAIT = 10.0
"""Seconds that a client waits at most before it tries again, where the service asks for that."""
MAX_JSON_BYTES = 2**26
MAX_ERROR_BYTES = 2**16
MAX_FILE_BYTES = 2**30
"""The longest responses that are read: to JSON, errors, and files of photos."""
CHUNK_BYTES = 2**18


class ServiceUnavailableError(ManifindError):
    """The service cannot be reached, or has too much to do; the message says which."""

    code = "unavailable"


class UnexpectedResponseError(ManifindError):
    """What answers is no service of manifind, or one of another version."""

    code = "unexpected-response"


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
        self.stage: str = payload["stage"]
        """The last step of the pipeline: retrieved, verified, expanded or full resolution."""
        self.method: str = payload["method"]
        self.generation: int = payload["generation"]
        """The number of the snapshot that was searched."""
        self._query = query
        self._hits = tuple(self._hit(hit) for hit in payload["results"])

    def _hit(self, hit: Mapping[str, Any]) -> RemoteHit:
        return RemoteHit(
            rank=hit["rank"],
            key=hit["key"],
            score=hit["score"],
            box=None if hit["box"] is None else _corners(hit["box"]),
            regions=tuple(RegionShare(_corners(region["box"]), region["share"]) for region in hit["regions"]),
            duplicates=tuple(hit["duplicates"]),
            is_match=hit["is_match"],
            verified=hit["verified"],
            grade=None if hit["grade"] is None else Grade(hit["grade"]),
            outline=None if hit["outline"] is None else _outline(hit["outline"]),
            part=None if hit["part"] is None else _outline(hit["part"]),
            inliers=hit["inliers"],
            other_outlines=tuple(map(_outline, hit["other_outlines"])),
            expanded=hit["expanded"],
            mirrored=hit.get("mirrored"),
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
        The service's token.
    timeout : float
        Seconds that a response may take.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        try:
            parts = urlsplit(address)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # half a bracket, or a port that is no number
            usable = False
        if not usable:  # not repeated: it may hold the token
            raise InvalidInputError(
                "address is no address of a service; give what manifind serve prints, http://127.0.0.1:8765 say.",
                code="address",
            )
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._token = token or dict(parse_qsl(parts.query)).get("token")
        if self._token is not None and not self._token.isprintable():
            raise InvalidInputError("token has unseen characters; give it as the service got it.", code="token")
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects)

    def search(
        self, image: Source, box: Sequence[float] | None = None, **options: Unpack[SearchOptions]
    ) -> RemoteSearchResult:
        """Find the photos that contain what is in the box: see `Index.search`."""
        query, request = self._request_of(image, box, options)
        payload = self._post_json("/api/search", request)
        with _expected_fields():
            return RemoteSearchResult(payload, query)

    def search_steps(
        self, image: Source, box: Sequence[float] | None = None, **options: Unpack[SearchOptions]
    ) -> Iterator[RemoteSearchResult]:
        """Yield the results of a search as they come, each surer than the one before: see `Index.search_steps`."""
        query, request = self._request_of(image, box, options)
        body = json.dumps(request).encode()
        with self._open("/api/search/stream", body, "application/json") as (response, deadline):
            for line in _lines(response, deadline):
                step = _parse_json(line)
                if "error" in step:
                    raise ServiceUnavailableError(str(step["error"]), code=str(step.get("code", "unavailable")))
                if step.get("result") is not None:
                    with _expected_fields():
                        result = RemoteSearchResult(step["result"], query)
                    yield result

    def explain(self, hit: RemoteHit) -> Chain:
        """Return the chain of photos that led from the query to this one: see `Index.explain`."""
        if not isinstance(hit, RemoteHit):
            raise InvalidInputError("the hit is an index's own; explain it with Index.explain.", code="hit-of-index")
        payload = self._post_json("/api/explain", {**hit.query, "key": hit.key})
        with _expected_fields():
            return Chain(str(payload["key"]), tuple(_link(link) for link in payload["links"]))

    def repeats(self, *, top: int = 30) -> dict[str, Any]:
        """Return what occurs in several photos, as JSON has it: see `Index.repeats`."""
        return self._get_json(f"/api/repeats?{urlencode({'top': top})}")

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and the health of the graph: see `Index.info`."""
        return self._get_json("/api/info")

    def photo(self, key: str) -> bytes:
        """Return the file of a photo as it is, of at most `MAX_FILE_BYTES`."""
        return self._request(f"/api/original?key={quote(key, safe='')}", max_bytes=MAX_FILE_BYTES)

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def _request_of(
        self, image: Source, box: Sequence[float] | None, options: SearchOptions
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query of a search, which explaining its results takes, and all of the request."""
        examples: dict[str, Sequence[Example]] = {
            "views": [(image, box), *options.get("positives", ())],
            "negatives": options.get("negatives", ()),
        }
        query: dict[str, Any] = {name: [self._view(*example) for example in given] for name, given in examples.items()}
        if options.get("mirrored"):
            query["mirrored"] = True
        others = {name: value for name, value in options.items() if name not in ("positives", "negatives", "mirrored")}
        return query, {**query, **others}

    def _view(self, image: Source, box: Sequence[float] | None) -> dict[str, Any]:
        part = None if box is None else [float(corner) for corner in box]
        if isinstance(image, Image.Image):
            image = upright_pixels(image)
        if isinstance(image, np.ndarray):
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            image = buffer.getvalue()
        elif isinstance(image, str | os.PathLike):
            if not Path(image).is_file():
                return {"key": os.fspath(image), "box": part}
            image = Path(image).read_bytes()
        elif not isinstance(image, bytes):
            raise InvalidInputError(
                f"image is a {type(image).__name__}; give a path, a key, bytes, pixels or an image of Pillow's."
            )
        upload = _parse_json(self._request("/api/uploads", image, "application/octet-stream"))
        with _expected_fields():
            return {"upload": str(upload["upload"]), "box": part}

    def _get_json(self, path: str) -> dict[str, Any]:
        return _parse_json(self._request(path))

    def _post_json(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _parse_json(self._request(path, json.dumps(body).encode(), "application/json"))

    def _request(
        self, path: str, body: bytes | None = None, kind: str | None = None, max_bytes: int = MAX_JSON_BYTES
    ) -> bytes:
        with self._open(path, body, kind) as (response, deadline):
            return _read(response, max_bytes, deadline)

    @contextmanager
    def _open(self, path: str, body: bytes | None, kind: str | None) -> Iterator[tuple[Any, float]]:
        """Hold the response to a request, and its deadline; a busy service is tried once more."""
        headers = {"Content-Type": kind} if kind else {}
        if self._token:
            # Headers are Latin-1 to the standard library; the service reads UTF-8.
            headers["Authorization"] = f"Bearer {self._token}".encode("utf-8", "surrogateescape").decode("latin-1")
        request = urllib.request.Request(self.address + path, body, headers)  # noqa: S310 (http or https: checked)
        deadline = time.monotonic() + self._timeout
        try:
            try:
                response = self._opener.open(request, timeout=self._timeout)
            except urllib.error.HTTPError as busy:
                if busy.code != 503:
                    raise
                with busy:
                    time.sleep(min(LONGEST_WAIT, retry_after(busy.headers.get("Retry-After"), default=1.0)))
                response = self._opener.open(request, timeout=self._timeout)
            with response:
                yield response, deadline
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(error, deadline) from None
        except ManifindError:
            raise
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceUnavailableError(
                f"{self.address} does not answer ({reason}); is the service running?"
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            raise UnexpectedResponseError(
                f"{self.address} does not answer as a service of manifind does ({error!r}); is the address right?"
            ) from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the service alone."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes an error of the redirect."""


def _read(response: Any, max_bytes: int, deadline: float) -> bytes:
    """Return the body of a response, of at most `max_bytes`, before the deadline."""
    pieces, size = [], 0
    while piece := response.read1(CHUNK_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            raise UnexpectedResponseError(
                f"the response is longer than {max_bytes / 1e6:.0f} million bytes; ask for less.", code="too-large"
            )
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    expected = response.headers.get("Content-Length")
    if expected is not None and expected.isdecimal() and int(expected) != size:
        raise http.client.IncompleteRead(b"", int(expected) - size)
    return b"".join(pieces)


def _lines(response: Any, deadline: float) -> Iterator[bytes]:
    """Yield the lines of a response, each of at most `MAX_JSON_BYTES`, before the deadline."""
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(CHUNK_BYTES):
        *ended, rest = piece.split(b"\n")
        for end in ended:
            yield b"".join((*pieces, end))
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_JSON_BYTES:
            raise UnexpectedResponseError(
                f"a line of the response is longer than {MAX_JSON_BYTES / 1e6:.0f} million bytes; ask for less.",
                code="too-large",
            )
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    if size:
        raise http.client.IncompleteRead(b"")


def _parse_json(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise UnexpectedResponseError("the response is no JSON of manifind; is the address right?")
    return parsed


@contextmanager
def _expected_fields() -> Iterator[None]:
    """Make one error of all that a response of another shape raises."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnexpectedResponseError(
            f"the response is not what this version of manifind expects ({error!r}); update the service or the client."
        ) from error


def _error_of(response: urllib.error.HTTPError, deadline: float) -> ManifindError:
    if 300 <= response.code < 400:
        return UnexpectedResponseError(
            "the service redirects to another address, which is not followed; give that address.", code="redirect"
        )
    try:
        body = json.loads(_read(response, MAX_ERROR_BYTES, deadline))
        sentence, code = str(body["error"]), str(body["code"])
    except (ManifindError, ValueError, KeyError, TypeError, OSError, RecursionError, http.client.HTTPException):
        return UnexpectedResponseError(f"the service answered {response.code}; is the address right?")
    kind = InvalidInputError if response.code < 500 else ServiceUnavailableError
    return kind(sentence, code=code)


def _link(link: Mapping[str, Any]) -> Link:
    source, target = (Place(end["key"], _corners(end["box"]), end["view"]) for end in (link["source"], link["target"]))
    return Link(source, target, link["similarity"], link["flow"], link["verified"], link["inliers"])


def _corners(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(corner) for corner in values)
    return x0, y0, x1, y1


def _outline(corners: Sequence[Sequence[float]]) -> Outline:
    a, b, c, d = ((float(x), float(y)) for x, y in corners)
    return a, b, c, d
