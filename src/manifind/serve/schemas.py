"""What goes over the wire, checked at the edge."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from manifind.index.search.filters import DATE

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
EXPAND = "Let regions of verified photos expand the query, which is then searched once more."
LONGEST_KEY = 4096
LONGEST_BOX = 200
LONGEST_SHORT = 2 + LONGEST_KEY + 1 + LONGEST_BOX
"""Characters of a key, of a box in words, and of a view in words: what is longer is refused unread."""

_IN_NUMBERS = frozenset("0123456789.,+-eE")


def corners(text: str) -> list[float] | None:
    """Read ``x0,y0,x1,y1``; None where it is something else."""
    if len(text) > LONGEST_BOX or not _IN_NUMBERS.issuperset(text):
        return None
    try:
        read = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return read if len(read) == 4 else None


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


class SearchRequest(Strict):
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
    method: Method = "regional"
    top: int = Field(default=60, ge=1, le=1000)
    verify: int | None = Field(default=None, ge=0, le=200, description=VERIFY)
    expand: bool = Field(default=True, description=EXPAND)
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

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.views and not self.vectors:
            raise ValueError("the query is empty; give at least one view, or vectors")
        return self


class ExplainRequest(Strict):
    """What was looked for, and the photo whose place in the ranking is to be explained."""

    views: list[ViewRequest] = Field(default=[], max_length=64)
    negatives: list[ViewRequest] = Field(default=[], max_length=64)
    vectors: list[list[Finite]] | None = Field(default=None, max_length=4096)
    key: str = Field(max_length=LONGEST_KEY)

    def search(self) -> SearchRequest:
        """Return the search that it is about."""
        return SearchRequest(views=self.views, negatives=self.negatives, vectors=self.vectors)

    @model_validator(mode="after")
    def _something(self) -> Self:
        self.search()
        return self


class GeometryRequest(Strict):
    """Views of one object, and the photo of the collection in which their points are looked for."""

    views: list[ViewRequest] = Field(min_length=1, max_length=8)
    key: str = Field(max_length=LONGEST_KEY)


class ResponseModel(BaseModel):
    """What the service answers: nothing besides what is named."""

    model_config = ConfigDict(extra="forbid")


class RegionResponse(ResponseModel):
    """A part of a photo and its share of the photo's score."""

    box: Box
    share: float


class ResultResponse(ResponseModel):
    """A photo that was found."""

    rank: int
    key: str
    score: float
    box: Box | None = Field(description="One box round what matched; null where the method does not know.")
    is_match: bool | None = Field(description="Whether it is believed to show the object; null without a cutoff.")
    verified: bool | None = Field(description="Whether spatial verification confirms it; null where it did not run.")
    outline: list[list[float]] | None = Field(description="Four corners of the object in the photo.")
    inliers: int | None = Field(description="Keypoints that agree on the transform.")
    other_outlines: list[list[list[float]]] = Field(description="Outlines of the object's further instances.")
    expanded: bool = Field(description="True if only query expansion found this photo.")
    duplicates: list[str] = Field(description="Keys of files that are byte for byte the same.")
    regions: list[RegionResponse] = Field(description="The regions with the largest shares, best first.")
    date: str | None = Field(default=None, description="When it was taken, where the search asked by date.")
    width: int
    height: int
    version: str = Field(description="Changes with the photo's content.")


class ConfidenceResponse(ResponseModel):
    """What speaks for the results."""

    similarity: float = Field(description="The largest resemblance of the query to one of the best photos.")
    null_similarity: float = Field(description="The resemblance that a query without a match hardly exceeds here.")
    cutoff: float = Field(description="Lower scores are no matches; 0 where nothing matches.")


class QueryResponse(ResponseModel):
    """The query as the service read it."""

    views: list[ViewRequest]
    negatives: list[ViewRequest]
    vectors: int = Field(description="How many descriptors the client sent.")


class SearchResponse(ResponseModel):
    """Photos in rank order. Scores at or below zero are left out."""

    query: QueryResponse
    method: Method
    config: str = Field(description="Names the configuration: equal ones have equal names.")
    complete: bool = Field(description="False where the deadline cut the search short.")
    n_unchecked: int = Field(description="How many photos were to be verified next where it did.")
    n_matches: int | None = Field(description="How many of the first are believed to show the object.")
    n_verified: int | None = Field(description="How many are verified; null where none was to be.")
    generation: int
    results: list[ResultResponse]
    confidence: ConfidenceResponse | None
    milliseconds: dict[str, float]


class PlaceResponse(ResponseModel):
    """A region of a photo of the collection, or of the query where `key` is null."""

    key: str | None
    box: Box
    view: int = Field(description="Which view of the query.")


class LinkResponse(ResponseModel):
    """Two regions that look alike."""

    source: PlaceResponse
    target: PlaceResponse
    similarity: float
    flow: float
    verified: bool | None = Field(description="Whether local features match; null where they were not compared.")
    inliers: int | None = Field(description="Points that match, where it does.")


class ExplainResponse(ResponseModel):
    """The chain of photos from the query to a result, and what each region of it contributes."""

    key: str
    rank: int
    score: float
    box: Box | None
    width: int
    height: int
    version: str
    links: list[LinkResponse]
    regions: list[RegionResponse]


class GeometryResponse(ResponseModel):
    """The points that match in a view and in a photo, and the transform from the one to the other."""

    view: int = Field(description="Which view has most of them.")
    verified: bool | None = Field(description="Whether they are enough; null for too little texture.")
    inliers: int = Field(description="How many of the points lie at places of their own.")
    transform: list[list[float]] | None = Field(
        description="Takes x, y, 1 of the view's photo to x, y, 1, up to a factor."
    )
    points: list[list[float]] = Field(description="x and y in the view's photo, x and y in the other.")


class PhotoResponse(ResponseModel):
    """A photo of the collection."""

    key: str
    width: int
    height: int
    version: str


class PhotosResponse(ResponseModel):
    """A stretch of the collection, in order of keys."""

    total: int
    start: int
    generation: int
    photos: list[PhotoResponse]


class FolderResponse(ResponseModel):
    """A folder of the collection and how many photos lie in it and below."""

    folder: str
    photos: int


class FoldersResponse(ResponseModel):
    """The folders of the collection."""

    folders: list[FolderResponse]


class UploadResponse(ResponseModel):
    """A photo that was uploaded; it is kept in memory until newer ones need the room."""

    upload: str
    width: int
    height: int


class CollectionResponse(ResponseModel):
    """The collection that is searched."""

    name: str
    photos: int
    generation: int


class BuildingProgress(ResponseModel):
    """How far an index is that is being made."""

    folder: str
    stage: str = Field(description='"files", "photos", "whitening" or "graph".')
    done: int
    total: int
    seconds_left: float | None = Field(description="Of this stage.")


class BuildingResponse(ResponseModel):
    """The index that is being made, if there is one."""

    building: BuildingProgress | None
    error: str | None = Field(description="Why it could not be made.")


class HealthResponse(ResponseModel):
    """Whether the service is alive, or ready."""

    status: Literal["ok"]


class ErrorResponse(ResponseModel):
    """What is wrong and what to do."""

    error: str = Field(description="One sentence for people.")
    code: str = Field(description="A stable name for programs.")
