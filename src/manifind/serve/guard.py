"""Who may ask, and how much at once: what every request passes before anything else looks at it.

- The name by which the service was called must be one that it has: a page elsewhere may point its own name here.
- Where there is a token, a client must show it: ``Authorization: Bearer …``, or the cookie that the address with
  ``?token=…`` leaves. Comparing takes equally long whatever is wrong with it.
- A request that changes something must not come from another site's page.
- A body larger than what the route takes is refused, whether its length was announced or not.
- Every answer carries headers that keep a browser from running, framing, guessing or telling on anything.
"""

import hashlib
import hmac
import time
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manifind.serve.metrics import Metrics
from manifind.serve.problems import Problem, sentence_response
from manifind.serve.settings import Settings

COOKIE = "manifind"
OPEN = ("/api/health", "/api/ready")
"""Answered without a token: they tell nothing."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._cookie = None if settings.token is None else _cookie_value(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        answered: dict[str, Any] = {"status": 499, "over": False}
        limit = self._settings.upload_bytes if _takes_a_photo(scope["path"]) else self._settings.json_bytes
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit and not answered["over"]:
                await _too_large(limit)(scope, receive, guarded)
                answered["over"] = True
                raise Problem(413, "The body is too large.")
            return message

        async def guarded(message: Message) -> None:
            if answered["over"]:
                return
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope, limit)
        try:
            if refusal is not None:
                await refusal(scope, receive, guarded)
            else:
                await self._app(scope, counted, guarded)
        except Problem:
            if not answered["over"]:
                raise
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, answered["status"]).observe(time.perf_counter() - start)

    def _refusal(self, scope: Scope, limit: int) -> Response | None:
        headers = Headers(scope=scope)
        if not self._called_rightly(headers.get("host", "")):
            return sentence_response(421, "The service does not go by this name; use the address that it printed.")
        method = scope["method"]
        if method not in ("GET", "HEAD", "OPTIONS") and not self._same_site(headers):
            return sentence_response(403, "The request comes from a page of another site; serve with --cors to let it.")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > limit):
            return _too_large(limit)
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
        return origin is None or urlsplit(origin).netloc == headers.get("host")

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        token = self._settings.token
        if token is None or self._cookie is None or scope["path"] in OPEN or scope["method"] == "OPTIONS":
            return None
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(shown.encode(), token.encode()):
            return None
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except Exception:  # a broken cookie is none
            cookies.clear()
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        if hmac.compare_digest(kept.encode(), self._cookie.encode()):
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in asked if name == "token"), "")
        if scope["method"] == "GET" and hmac.compare_digest(given.encode(), token.encode()):
            # The token leaves the address bar, and with it histories and screenshots.
            rest = urlencode([(name, value) for name, value in asked if name != "token"])
            answer = RedirectResponse(f"{scope['path']}{'?' if rest else ''}{rest}", 303)
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="strict", path="/")
            return answer
        if scope["path"] == "/":
            return HTMLResponse(REFUSAL, 401)
        return sentence_response(401, "The service needs its token; send it as Authorization: Bearer TOKEN.")


def _takes_a_photo(path: str) -> bool:
    return path in ("/api/uploads", "/api/search/photo")


def _too_large(limit: int) -> Response:
    return sentence_response(413, f"The body is larger than {limit / 1e6:g} million bytes; send less.")


def _cookie_value(token: str) -> str:
    """Return what the cookie holds: not the token, but what only who knows it can make."""
    return hashlib.sha256(b"manifind cookie " + token.encode()).hexdigest()
