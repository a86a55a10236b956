"""Errors of the service: a status, one sentence for people, and a code for programs."""

import json
import logging
from typing import Any

from starlette.responses import Response

from manifind.errors import DamagedError, InvalidInputError, UnreadableImageError
from manifind.index.search.filters import DATE
from manifind.serve.schemas import UPLOAD

log = logging.getLogger("manifind.serve")

PATTERNS = {
    UPLOAD: "is no upload; upload the photo again",
    DATE.pattern: "is no date; write 2019, 2019-07 or 2019-07-04",
}
"""What is wrong with a text that a pattern refuses, and what to do."""

CODES = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "timeout",
    413: "too-large",
    415: "media-type",
    421: "wrong-host",
    422: "invalid-input",
    431: "head-too-large",
    499: "client-left",
    500: "internal",
    503: "unavailable",
    504: "timeout",
}
"""The code of an error by its status, where the error has no code of its own."""


class ServiceError(Exception):
    """An answer other than 200: ``{"error": sentence, "code": code}``."""

    def __init__(
        self, status: int, sentence: str, headers: dict[str, str] | None = None, *, code: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}
        self.code = code or CODES.get(status, "error")

    def response(self) -> Response:
        """Return the answer; characters that are no text are escaped."""
        body = json.dumps({"error": self.sentence, "code": self.code})
        return Response(body, self.status, self.headers, media_type="application/json")


def service_error(error: Exception) -> ServiceError:
    """Return what the service answers where an error was raised; the log gets what is not the client's to mend."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, InvalidInputError | UnreadableImageError):
        return ServiceError(422, str(error), code=error.code)
    if isinstance(error, DamagedError):
        log.error("the index cannot be read: %s", error)
        sentence = "The index is damaged; see what manifind check says of it."
        return ServiceError(503, sentence, {"Retry-After": "5"}, code=error.code)
    log.error("a request could not be answered", exc_info=error)
    return ServiceError(500, "The service failed; its log has the reason.")


def too_busy() -> ServiceError:
    """Say that there is too much to do right now."""
    sentence = "The service has more searches than it can answer; try again in a second."
    return ServiceError(503, sentence, {"Retry-After": "1"})


def first_sentence(errors: Any) -> str:
    """Return the first of pydantic's findings as one sentence that names the field."""
    error = errors[0]
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    # A validator of ours raised the sentence itself; pydantic's message puts words before it.
    what = str(error["ctx"]["error"] if error["type"] == "value_error" else error["msg"]).rstrip(".")
    if error["type"] == "string_pattern_mismatch":
        what = f"{str(error['input'])[:80]!r} {PATTERNS.get(error['ctx']['pattern'], 'is written otherwise')}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where or 'The request'}: {what[:300]}{more}."
