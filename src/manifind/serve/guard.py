"""Checks that every request passes first: the service's name, the token, the site, the size.

- The name by which the service was called must be one that it has: a page elsewhere may point its own name here.
- Where there is a token, a client must show it: ``Authorization: Bearer …``, or the cookie that the address with
  ``?token=…`` leaves. Comparing takes equally long whatever is wrong with it.
- A request that costs work must not come from another site's page, whatever its method.
- A head or a body larger than what the route takes is refused, whether its length was announced or not; bodies are
  counted together while they arrive, and must arrive in time.
- Every answer carries headers that keep a browser from running, framing, guessing or telling on anything.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manifind.serve.errors import ServiceError
from manifind.serve.resources import Settings
from manifind.serve.workers import Metrics

COOKIE = "manifind"
OPEN = ("/api/health", "/api/ready")
"""Answered without a token: they tell nothing."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

REFUSAL = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>manifind</title>"
    "<h1>This page needs its token</h1><p>Open the address that <code>manifind serve</code> printed: it ends in "
    "<code>?token=…</code></p>"
)


class BodyLimits:
    """The bodies of all requests that are under way, counted together while they arrive.

    A body takes memory from its first byte on. Where all would take more than `max_bytes`, the body that has been
    arriving for longest is given up: a client that means to send a photo sends it at once.

    Parameters
    ----------
    max_bytes : int
        What they may take together.
    seconds : float
        How long a body may take to arrive.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._bytes = 0
        self._arriving: dict[Body, None] = {}
        """In the order in which they began."""

    @contextmanager
    def body(self, limit: int) -> Iterator["Body"]:
        """Hold room for the body of a request, of at most `limit` bytes, until the request is answered."""
        body = Body(self, limit, asyncio.get_running_loop().time() + self._seconds)
        try:
            yield body
        finally:
            self.arrived(body)
            self._bytes -= body.bytes

    def arrived(self, body: "Body") -> None:
        """Note that a body is whole: it is no longer given up."""
        self._arriving.pop(body, None)

    def add(self, body: "Body", size: int) -> None:
        """Count bytes of a body; those that began before it make room."""
        self._arriving.setdefault(body)
        body.bytes += size
        self._bytes += size
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._arriving))
            self.arrived(oldest)
            if oldest is body:
                raise ServiceError(
                    503, "The service has more to take in than it can hold; try again.", {"Retry-After": "2"}
                )
            self._bytes -= oldest.bytes
            oldest.bytes = 0
            oldest.give_up()

    def late(self) -> ServiceError:
        """Say that a body did not arrive in time."""
        return ServiceError(408, f"The body did not arrive within {self._seconds:g} seconds; send it again.")


class Body:
    """The body of one request."""

    def __init__(self, limits: BodyLimits, limit: int, deadline: float) -> None:
        self.bytes = 0
        self._limits = limits
        self._limit = limit
        self._deadline = deadline
        self._received = 0
        self._whole = self._given_up = False
        self._clock: asyncio.Timeout | None = None

    def give_up(self) -> None:
        """Wait no longer for the body."""
        self._given_up = True
        if self._clock is not None:
            self._clock.reschedule(asyncio.get_running_loop().time())

    async def next(self, receive: Receive) -> Message:
        """Return the next message of a request; raise `ServiceError` where its body is too large, or late."""
        if self._whole:
            return await receive()
        if self._given_up:
            raise self._limits.late()
        try:
            async with asyncio.timeout_at(self._deadline) as self._clock:
                message = await receive()
        except TimeoutError:
            self._given_up = True
            raise self._limits.late() from None
        finally:
            self._clock = None
        size = len(message.get("body", b""))
        self._received += size
        if self._received > self._limit:
            raise too_large(self._limit)
        if self._given_up:
            raise self._limits.late()
        self._limits.add(self, size)
        if not message.get("more_body", False):
            self._whole = True
            self._limits.arrived(self)
        return message


def too_large(limit: int) -> ServiceError:
    """Say that a body is larger than what its route takes."""
    return ServiceError(413, f"The body is larger than {limit / 1e6:g} million bytes; send less.")


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._bodies = BodyLimits(settings.bodies_bytes, settings.body_seconds)
        self._token = None if settings.token is None else settings.token.encode("utf-8", "surrogateescape")
        self._cookie = None if self._token is None else _cookie_value(self._token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status, refused = 499, False
        limit = self._settings.upload_bytes if _takes_a_photo(scope["path"]) else self._settings.json_bytes

        async def guarded(message: Message) -> None:
            nonlocal status
            if refused:
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            refusal = self._refusal(scope, limit)
        except ServiceError as problem:
            refusal = problem.response()
        try:
            if refusal is not None:
                await refusal(scope, receive, guarded)
                return
            with self._bodies.body(limit) as body:

                async def counted() -> Message:
                    nonlocal refused
                    try:
                        return await body.next(receive)
                    except ServiceError as problem:
                        # Whoever reads the body would take this for a fault of the body's content.
                        await problem.response()(scope, receive, guarded)
                        refused = True
                        raise

                await self._app(scope, counted, guarded)
        except ServiceError:
            if not refused:
                raise
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, status).observe(time.perf_counter() - start)

    def _refusal(self, scope: Scope, limit: int) -> Response | None:
        head = sum(len(name) + len(value) for name, value in scope["headers"])
        if head + len(scope["path"]) + len(scope["query_string"]) > self._settings.head_bytes:
            raise ServiceError(431, "The head of the request is too large; send fewer or shorter headers.")
        headers = Headers(scope=scope)
        if not self._called_rightly(headers.get("host", "")):
            raise ServiceError(421, "The service does not go by this name; use the address that it printed.")
        if _costs_work(scope) and not self._same_site(headers):
            raise ServiceError(403, "The request comes from a page of another site; serve with --cors to let it.")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > limit):
            raise too_large(limit)
        return self._without_token(scope, headers)

    def _called_rightly(self, host: str) -> bool:
        if self._settings.hosts is None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name in self._settings.hosts

    def _same_site(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin in self._settings.origins:
            return True
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        try:
            return origin is None or urlsplit(origin).netloc == headers.get("host")
        except ValueError:  # an origin that is none
            return False

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        token = self._token
        if token is None or self._cookie is None or scope["path"] in OPEN or scope["method"] == "OPTIONS":
            return None
        # Headers are bytes: clients send a token beyond ASCII as UTF-8, and some as Latin-1.
        bearer = headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1", "replace")
        if _same(bearer, token) or _same(bearer.decode("latin-1").encode(), token):
            return None
        if any(_same(cookie.encode(), self._cookie.encode()) for cookie in _cookies(headers.get("cookie", ""))):
            return None
        parameters = parse_qsl(scope["query_string"].decode("utf-8", "replace"), keep_blank_values=True)
        token_parameter = next((value for name, value in parameters if name == "token"), "")
        if scope["method"] == "GET" and _same(token_parameter.encode("utf-8", "surrogateescape"), token):
            # The token leaves the address bar, and with it histories and screenshots.
            rest = urlencode([(name, value) for name, value in parameters if name != "token"])
            # One slash: two would lead to another host.
            answer = RedirectResponse(f"/{quote(scope['path'].lstrip('/'))}{'?' if rest else ''}{rest}", 303)
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="strict", path="/")
            return answer
        if scope["path"] == "/":
            return HTMLResponse(REFUSAL, 401)
        raise ServiceError(
            401, "The service needs its token; send it as Authorization: Bearer TOKEN, or Client(token=…)."
        )


def _takes_a_photo(path: str) -> bool:
    return path in ("/api/uploads", "/api/search/photo", "/mcp")


def _costs_work(scope: Scope) -> bool:
    """Say whether a request is more than a look at the page's own files, or at whether the service is alive."""
    if scope["method"] == "OPTIONS" or scope["path"] in OPEN:
        return False
    return scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(("/api/", "/metrics"))


def _same(given: bytes, wanted: bytes) -> bool:
    """Compare secrets in a time that does not tell where they differ."""
    return hmac.compare_digest(given, wanted)


def _cookies(header: str) -> list[str]:
    """Return the values of the service's cookie: usually none or one."""
    pairs = (pair.partition("=") for pair in header.split(";"))
    return [value.strip() for name, _, value in pairs if name.strip() == COOKIE]


def _cookie_value(token: bytes) -> str:
    """Return what the cookie holds: not the token, but what only who knows it can make."""
    return hashlib.sha256(b"manifind cookie " + token).hexdigest()
