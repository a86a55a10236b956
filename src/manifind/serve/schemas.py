"""Requests, checked at the edge."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError
from manifind.index.search.filters import DATE
from manifind.index.sets import MAX_NAME

Finite = Annotated[float, Field(allow_inf_nan=False)]
Box = Annotated[
    list[Finite], Field(min_length=4, max_length=4, description="x0, y0, x1, y1 in pixels of the upright photo")
]
Method = Literal["regional", "global", "match", "plain"]

UPLOAD = r"^[0-9a-f]{32}$"
SHORT_VIEW = (
    "A photo and a box in short: `k:KEY` or `u:UPLOAD`, and after it `@x0,y0,x1,y1` where only that part is meant."
)
VERIFY = "How many of the first photos to verify by local features; without it, what the index does by itself."
DEADLINE = "Seconds after which the result so far is returned; the service sets its own, and a highest one."
DEFAULT_TOP, MAX_TOP = 20, 1000
LONGEST_KEY = 4096
LONGEST_BOX = 200
LONGEST_SHORT = 2 + LONGEST_KEY + 1 + LONGEST_BOX
"""Characters of a key, of a box in words, and of a view in words: what is longer is refused unread."""

ShortView = Annotated[str, Field(max_length=LONGEST_SHORT)]

_IN_NUMBERS = frozenset("0123456789.,+-eE")


def corners(text: str) -> list[float] | None:
    """Read ``x0,y0,x1,y1``; None where it is something else."""
    if len(text) > LONGEST_BOX or not _IN_NUMBERS.issuperset(text):
        return None
    try:
        return list(parse_box(text))
    except InvalidInputError:
        return None


class Strict(BaseModel):
    """What a client sends: nothing besides what is named."""

    model_config = ConfigDict(extra="forbid")


class ViewRequest(Strict):
    """A photo, or a part of it: one of the collection by its key, or one that was uploaded."""

    key: str | None = Field(default=None, max_length=LONGEST_KEY)
    upload: str | None = Field(default=None, pattern=UPLOAD)
    box: Box | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.key is None) == (self.upload is None):
            raise ValueError("give either the key of a photo of the collection or the id of an upload")
        return self

    @classmethod
    def short(cls, text: str) -> Self:
        """Read a view as it stands in an address."""
        if len(text) > LONGEST_SHORT:
            raise ValueError(f"{text[:20]!r}… is longer than any view; give at most {LONGEST_SHORT} characters")
        kind, _, name = text.partition(":")
        if kind not in ("k", "u") or not name:
            raise ValueError(f"{text[:100]!r} is no view; write k:KEY or u:UPLOAD, and @x0,y0,x1,y1 for a part of it")
        before, _, after = name.rpartition("@")
        box = corners(after) if before else None  # without a box, what stands behind an @ belongs to the key
        return cls.model_validate({"key" if kind == "k" else "upload": name if box is None else before, "box": box})


class SearchParameters(Strict):
    """How to search, and among which photos."""

    method: Method = "regional"
    top: int = Field(default=DEFAULT_TOP, ge=1, le=MAX_TOP)
    verify: int | None = Field(default=None, ge=0, le=200, description=VERIFY)
    expand: bool = Field(
        default=True, description="Let regions of verified photos expand the query, which is then searched once more."
    )
    mirrored: bool = Field(
        default=False,
        description="Look for the mirrored object too: in reversed slides, prints, photos by front cameras.",
    )
    deadline: Annotated[Finite, Field(gt=0)] | None = Field(default=None, description=DEADLINE)
    folder: str | None = Field(default=None, max_length=LONGEST_KEY, description="Only photos below this folder.")
    since: str | None = Field(
        default=None, pattern=DATE.pattern, description="Only photos taken then or later: 2019, 2019-07 …"
    )
    until: str | None = Field(default=None, pattern=DATE.pattern, description="Only photos taken then or earlier.")
    sort: Literal["score", "date"] = Field(default="score", description="In which order the results are told.")

    @property
    def filtered(self) -> bool:
        """Whether some photos are left out by their folder or date."""
        return any((self.folder, self.since, self.until))


class SearchRequest(SearchParameters):
    """What to look for."""

    views: list[ViewRequest] = Field(default=[], max_length=64, description="Photos and boxes of one object.")
    negatives: list[ViewRequest] = Field(
        default=[], max_length=64, description="Photos and boxes of what looks like it and is not meant."
    )
    vectors: list[list[Finite]] | None = Field(
        default=None,
        max_length=4096,
        description="Descriptors of the query's regions, made as the index's were.",
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.views and not self.vectors:
            raise ValueError("the query is empty; give at least one view, or vectors")
        if self.mirrored and self.vectors:
            raise ValueError("descriptors cannot be mirrored; give views, or mirrored=false")
        return self


class SearchAddress(SearchParameters):
    """A search as it stands in an address, which may have other parameters besides."""

    model_config = ConfigDict(extra="ignore")

    q: list[ShortView] = Field(default=[], max_length=64, description=SHORT_VIEW)
    negatives: list[ShortView] = Field(default=[], max_length=64, description=SHORT_VIEW)


class ExplainRequest(Strict):
    """What was looked for, and the photo whose place in the ranking is to be explained."""

    views: list[ViewRequest] = Field(default=[], max_length=64)
    negatives: list[ViewRequest] = Field(default=[], max_length=64)
    vectors: list[list[Finite]] | None = Field(default=None, max_length=4096)
    key: str = Field(max_length=LONGEST_KEY)
    mirrored: bool = Field(default=False, description="As of the search.")

    def search(self) -> SearchRequest:
        """Return the search that it is about."""
        return SearchRequest(
            views=self.views, negatives=self.negatives, vectors=self.vectors, verify=0, mirrored=self.mirrored
        )

    @model_validator(mode="after")
    def _something(self) -> Self:
        self.search()
        return self


class GeometryRequest(Strict):
    """Views of one object, and the photo of the collection in which their points are looked for."""

    views: list[ViewRequest] = Field(min_length=1, max_length=8)
    key: str = Field(max_length=LONGEST_KEY)
    mirrored: bool = Field(default=False, description="Whether the photo may show the object mirrored.")


Key = Annotated[str, Field(max_length=LONGEST_KEY)]
MAX_SET_CHANGES = 2000
"""Photos that one change of a set may name."""


class PhotoOfSet(Strict):
    """A photo for a set, and where the object is in it."""

    key: Key
    box: Box | None = None


class SearchOfSet(Strict):
    """A search to be stored with a set: photos of the collection, and the keys of its present matches."""

    views: list[ViewRequest] = Field(min_length=1, max_length=64)
    negatives: list[ViewRequest] = Field(default=[], max_length=64)
    method: Method = "regional"
    seen: list[Key] = Field(default=[], max_length=MAX_SET_CHANGES)


class SetChange(Strict):
    """What to do with a set; it is created if missing."""

    name: str = Field(max_length=MAX_NAME)
    add: list[PhotoOfSet] = Field(default=[], max_length=MAX_SET_CHANGES)
    verdict: Literal["yes", "no", "unsure"] = "yes"
    take: list[Key] = Field(default=[], max_length=MAX_SET_CHANGES)
    search: SearchOfSet | None = None
    rename: str | None = Field(default=None, max_length=MAX_NAME)
    delete: bool = False
