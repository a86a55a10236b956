"""What the service answers when it cannot answer: one sentence, and a status."""

import json
from typing import Any

from starlette.responses import Response


class Problem(Exception):
    """An answer other than 200: ``{"error": sentence}``."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}


def busy() -> Problem:
    """Say that there is too much to do right now."""
    sentence = "The service has more searches than it can answer; try again in a second."
    return Problem(503, sentence, {"Retry-After": "1"})


def first_sentence(errors: Any) -> str:
    """Return the first of pydantic's findings as one sentence that names the field."""
    found = errors[0]
    where = ".".join(str(part) for part in found["loc"] if part not in ("body", "query"))
    what = str(found["msg"]).removeprefix("Value error, ").rstrip(".")
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where or 'The request'}: {what[:300]}{more}."


def sentence_response(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    """Return a sentence as the service answers it; characters that are no text are escaped."""
    return Response(json.dumps({"error": sentence}), status, headers, media_type="application/json")
