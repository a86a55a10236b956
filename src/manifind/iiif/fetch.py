"""Bounded requests to hosts that the user named, and to no other.

A document names addresses, and anybody may have written it. So only http and https to the named hosts are asked; a host
is resolved once, its address must be a public one unless private ones are allowed, and that one is connected to.
Redirects lead to the same hosts alone. Bodies, times and the number of tries are bounded.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from manifind.errors import InvalidInputError, ManifindError
from manifind.version import VERSION

AGAIN = frozenset((429, 500, 502, 503, 504))
"""Statuses after which a request is tried again."""
PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))
REDIRECTS = frozenset((301, 302, 303, 307, 308))


class FetchError(ManifindError):
    """An address could not be read; the message says which and why."""

    code = "fetch"


@dataclass(frozen=True)
class FetchConfig:
    """How much is asked of a server, and how patiently."""

    max_document_bytes: int = 2**26
    """Of a manifest, a collection, or the facts of an image."""
    max_image_bytes: int = 2**27
    tries: int = 4
    """How often a request is sent at most, where the server has too much to do or the network fails."""
    first_wait: float = 1.0
    """Seconds before the second try; each further wait is twice as long. Retry-After counts where it is given."""
    longest_wait: float = 60.0
    timeout: float = 30.0
    """Seconds without an answer, or without more of it."""
    max_redirects: int = 4
    at_once: int = 2
    """Requests at a time."""


def is_web_address(text: object) -> bool:
    """Return whether a text is an address of the web."""
    return isinstance(text, str) and text.lower().startswith(("http://", "https://"))


class Fetcher:
    """Reads addresses on some hosts.

    Parameters
    ----------
    hosts : frozenset of str
        Names of hosts, in lower case; ports do not count.
    allow_private : bool
        Whether a host may be on this machine or a private network.
    max_bytes : int
        What all images together may take.
    config : FetchConfig
    """

    def __init__(self, hosts: frozenset[str], *, allow_private: bool, max_bytes: int, config: FetchConfig) -> None:
        self._hosts, self._allow_private, self._config = hosts, allow_private, config
        self._left = max_bytes
        self._lock = threading.Lock()

    def document(self, address: str) -> bytes:
        """Return the body of a document."""
        return self._read(address, self._config.max_document_bytes, "application/json")

    def image(self, address: str) -> bytes:
        """Return the body of an image, counted among all images."""
        with self._lock:
            left = self._left
        try:
            body = self._read(address, min(self._config.max_image_bytes, left), "image/*")
        except FetchError as error:
            if error.code == "size" and left < self._config.max_image_bytes:
                raise _over_limit() from None
            raise
        with self._lock:
            if len(body) > self._left:  # another thread has had the rest
                raise _over_limit()
            self._left -= len(body)
        return body

    def check(self, address: str) -> SplitResult:
        """Return the parts of an address; raise `FetchError` where it may not be asked."""
        try:
            parts = urlsplit(address)
            name, _ = (parts.hostname or "").lower(), parts.port
        except ValueError:
            raise FetchError(f"{address[:200]!r} is no address.", code="address") from None
        if parts.scheme not in ("http", "https") or not name or parts.username is not None or not address.isprintable():
            raise FetchError(f"{address[:200]!r} is no address of the web.", code="address")
        if name not in self._hosts:
            raise FetchError(
                f"{address[:200]} is on another host; add --host {name} to let it be asked.", code="other-host"
            )
        return parts

    def _read(self, address: str, limit: int, accept: str) -> bytes:
        wait, why = self._config.first_wait, ""
        for attempt in range(self._config.tries):
            if attempt:
                time.sleep(min(wait, self._config.longest_wait))
                wait *= 2
            try:
                status, headers, body = self._follow(address, limit, accept)
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
                continue
            if status == 200:
                return body
            why = f"the server answered {status}"
            if status not in AGAIN:
                break
            wait = max(wait, retry_after(headers.get("Retry-After")))
        raise FetchError(f"{address[:200]} cannot be read: {why}; try again later.")

    def _follow(self, address: str, limit: int, accept: str) -> tuple[int, Any, bytes]:
        for _ in range(self._config.max_redirects + 1):
            status, headers, body = self._request(self.check(address), limit, accept)
            location = headers.get("Location")
            if status not in REDIRECTS or not location:
                return status, headers, body
            address = urljoin(address, location)
        raise FetchError(f"{address[:200]} redirects too often.", code="redirects")

    def _request(self, parts: SplitResult, limit: int, accept: str) -> tuple[int, Any, bytes]:
        connection = self._connection(parts)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            headers = {"User-Agent": f"manifind/{VERSION}", "Accept": accept, "Accept-Encoding": "identity"}
            connection.request("GET", _quoted(path), headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return answer.status, answer.headers, b""
            body = answer.read(limit + 1)
            if len(body) > limit:
                raise FetchError(f"{parts.geturl()[:200]} is longer than {limit / 1e6:.0f} million bytes.", code="size")
            if answer.length:
                raise OSError("the answer is cut short")
            return answer.status, answer.headers, body
        finally:
            connection.close()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        place = self._resolve(host, port)
        sock = socket.create_connection(place, timeout=self._config.timeout)
        if parts.scheme == "https":
            try:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            except BaseException:
                sock.close()
                raise
        connection = http.client.HTTPConnection(host, port, timeout=self._config.timeout)
        if parts.scheme == "https":
            connection.default_port = 443
        connection.sock = sock
        return connection

    def _resolve(self, host: str, port: int) -> tuple[str, int]:
        """Return the address to connect to: what was checked is what is asked."""
        addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in addresses:
            if not self._allow_private and not ipaddress.ip_address(address.partition("%")[0]).is_global:
                raise FetchError(
                    f"{host} is on this machine or a private network; add --allow-private to let it be asked.",
                    code="private",
                )
        return addresses[0], port


def _over_limit() -> InvalidInputError:
    return InvalidInputError(
        "the images take more than --max-bytes; give more, and the same command goes on from there.", code="max-bytes"
    )


def _quoted(path: str) -> str:
    """Return a path whose characters can stand in a request."""
    return quote(path, safe=PRINTABLE)


def retry_after(text: str | None, default: float = 0.0) -> float:
    """Return the seconds that the header Retry-After asks to wait, by a number or a date."""
    text = (text or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:6])
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return default
