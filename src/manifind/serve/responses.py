"""Responses: what each field means, and how a response is made of results, explanations and photos."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from manifind.index import Hit, MatchingPoints, PendingChanges, Retrieval, SearchResult, explain_result
from manifind.index.sets import VERDICTS, PhotoSet
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.reports.results import hit_data, links_data, points_data, regions_data, result_data, set_data
from manifind.serve.schemas import Box, Method, SearchRequest, ViewRequest


class ResponseModel(BaseModel):
    """What the service answers: nothing besides what is named."""

    model_config = ConfigDict(extra="forbid")


class PhotoResponse(ResponseModel):
    """A photo of the collection."""

    key: str
    width: int
    height: int
    version: str = Field(description="Changes with the photo's content.")

    @classmethod
    def of(cls, record: ImageRecord) -> Self:
        """Return the response for a photo."""
        return cls(**_photo(record))


class RegionResponse(ResponseModel):
    """A part of a photo and its share of the photo's score."""

    box: Box
    share: float


class ResultResponse(PhotoResponse):
    """A photo that was found."""

    rank: int
    score: float
    box: Box | None = Field(description="One box round what matched; null where the method does not know.")
    is_match: bool | None = Field(description="Whether it is believed to show the object; null without a cutoff.")
    verified: bool | None = Field(description="Whether spatial verification confirms it; null where it did not run.")
    grade: Literal["verified", "shares a part", "likely", "not likely"] | None = Field(
        description="What is known of it: verified, shares a part, likely or not likely; null without a cutoff."
    )
    outline: list[list[float]] | None = Field(description="Four corners of the object in the photo.")
    part: list[list[float]] | None = Field(description="Four corners of the part that it shares with the query.")
    inliers: int | None = Field(description="Keypoints that agree on the transform, of the object or of the part.")
    other_outlines: list[list[list[float]]] = Field(description="Outlines of the object's further instances.")
    expanded: bool = Field(description="True if only query expansion found this photo.")
    mirrored: bool | None = Field(
        default=None, description="Whether a verified photo shows it mirrored, where the search asked for that."
    )
    duplicates: list[str] = Field(description="Keys of files that are byte for byte the same.")
    regions: list[RegionResponse] = Field(description="The regions with the largest shares, best first.")
    date: str | None = Field(default=None, description="When it was taken, where the search asked by date.")

    @classmethod
    def of_hit(cls, hit: Hit, record: ImageRecord, date: str | None = None) -> Self:
        """Return the response for one result."""
        return cls(**{**hit_data(hit), **_photo(record), "date": date})


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

    @classmethod
    def of(cls, request: SearchRequest) -> Self:
        """Return the query of a request."""
        vectors = 0 if request.vectors is None else len(request.vectors)
        return cls(views=request.views, negatives=request.negatives, vectors=vectors)


class SearchResponse(ResponseModel):
    """Photos in rank order. Scores at or below zero are left out."""

    query: QueryResponse
    method: Method
    config: str = Field(description="Names the configuration: equal ones have equal names.")
    stage: str = Field(description="The last step: retrieved, verified, expanded or full resolution.")
    complete: bool = Field(description="False where the deadline cut the search short.")
    n_unchecked: int = Field(description="How many photos were to be verified next where it did.")
    n_matches: int | None = Field(description="How many of the first are believed to show the object.")
    n_verified: int | None = Field(description="How many are verified; null where none was to be.")
    generation: int
    results: list[ResultResponse]
    confidence: ConfidenceResponse | None
    milliseconds: dict[str, float]

    @classmethod
    def of(
        cls,
        request: SearchRequest,
        result: SearchResult,
        record_of: Callable[[AnySnapshot, int], ImageRecord],
        dates: Sequence[str | None],
        seconds: Mapping[str, float],
    ) -> Self:
        """Return the response for a result; `record_of` returns an image's record, `dates` are those of the hits."""
        data = result_data({}, result)
        snapshot = result.retrieval.snapshot
        results = [
            ResultResponse(**{**fields, **_photo(record_of(snapshot, hit.image)), "date": date})
            for fields, hit, date in zip(data["results"], result, dates, strict=True)
        ]
        if request.sort == "date":
            results.sort(key=lambda photo: photo.date or "")
        return cls(
            **{
                **data,
                "query": QueryResponse.of(request),
                "results": results,
                "stage": result.stage.value,
                "n_verified": result.n_verified,
                "generation": result.generation,
                "confidence": None if result.confidence is None else ConfidenceResponse(**asdict(result.confidence)),
                "milliseconds": {name: round(1000 * value, 1) for name, value in seconds.items()},
            }
        )


class ProgressResponse(ResponseModel):
    """How far a step of a search is."""

    checked: int = Field(description="Photos that are verified or found not to match.")
    total: int = Field(description="Photos that the step verifies.")


class SearchStep(ResponseModel):
    """A line of a streamed search: a result, each surer than the one before, or the progress between two."""

    result: SearchResponse | None = None
    progress: ProgressResponse | None = None


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


class ExplainResponse(PhotoResponse):
    """The chain of photos from the query to a result, and what each region of it contributes."""

    rank: int
    score: float
    box: Box | None
    links: list[LinkResponse]
    regions: list[RegionResponse]

    @classmethod
    def of_hit(cls, retrieval: Retrieval, hit: Hit, record: ImageRecord) -> Self:
        """Return the response for a hit."""
        return cls(
            **{
                "rank": hit.rank,
                "score": hit.score,
                "box": hit.box,
                "links": links_data(explain_result(retrieval, record.number)),
                "regions": regions_data(retrieval.region_shares(record.number, None)),
                **_photo(record),
            }
        )


class GeometryResponse(ResponseModel):
    """The points that match in a view and in a photo, and the transform from the one to the other."""

    view: int = Field(description="Which view has most of them.")
    verified: bool | None = Field(description="Whether they are enough; null for too little texture.")
    inliers: int = Field(description="How many of the points lie at places of their own.")
    transform: list[list[float]] | None = Field(
        description="Takes x, y, 1 of the view's photo to x, y, 1, up to a factor."
    )
    points: list[list[float]] = Field(description="x and y in the view's photo, x and y in the other.")
    mirrored: bool | None = Field(default=None, description="Whether the transform mirrors, where that was asked.")

    @classmethod
    def of(cls, points: MatchingPoints) -> Self:
        """Return the response for matching points."""
        return cls(view=points.view, **points_data(points))


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
    stage: str = Field(description='"files", "photos", "learning", "whitening", "graph" or "writing".')
    done: int
    total: int
    seconds_left: float | None = Field(description="Of this stage.")


class PendingResponse(ResponseModel):
    """How many photos of the folder differ from the index."""

    new: int
    changed: int
    moved: int
    gone: int

    @classmethod
    def of(cls, pending: PendingChanges) -> Self:
        """Return the response for changes."""
        return cls(**asdict(pending))


class BuildingResponse(ResponseModel):
    """The index that is being made or brought up to date, if there is one, and what is new in its folder."""

    building: BuildingProgress | None
    error: str | None = Field(description="Why it could not be made.")
    generation: int | None = Field(default=None, description="Of the index that is served.")
    pending: PendingResponse | None = Field(
        default=None, description="What an update would do; null where this service does not change its index."
    )
    watching: Literal["events", "polling"] | None = Field(
        default=None, description="How new photos are noticed: by the system's events, or by looking every so often."
    )


class HealthResponse(ResponseModel):
    """Whether the service is alive, or ready."""

    status: Literal["ok", "degraded"] = "ok"
    stuck: list[str] = Field(default=[], description="Stages with threads that a disk or a network holds up.")


class ErrorResponse(ResponseModel):
    """What is wrong and what to do."""

    error: str = Field(description="One sentence for people.")
    code: str = Field(description="A stable name for programs.")


class OccurrenceResponse(ResponseModel):
    """An object in one photo."""

    key: str
    box: Box
    width: int
    height: int
    strength: float = Field(description="How strongly the photo is tied to the others of its object.")
    verified: bool | None


class RepeatResponse(ResponseModel):
    """An object that occurs in several photos."""

    rank: int
    score: float
    photos: int
    verified: int | None
    confirmed: bool | None
    occurrences: list[OccurrenceResponse]


class RepeatsResponse(ResponseModel):
    """What occurs in several photos, the surest and largest first."""

    found: int = Field(description="How many objects there are in all.")
    objects: list[RepeatResponse]
    near_duplicates: list[list[str]] = Field(description="Keys of photos that look alike all over.")
    generation: int


class FactsResponse(ResponseModel):
    """What is known of a photo's file."""

    key: str
    duplicates: list[str] = Field(description="Keys of files that are byte for byte the same.")
    path: str | None = Field(description="Where the file lies; null where the service does not tell.")
    bytes: int
    changed: str = Field(description="When the file was changed last, in UTC.")
    taken: str | None = Field(description="When the photo was taken, by the camera's clock.")
    camera: str | None
    lens: str | None
    shown: bool = Field(description="Whether browsers can show the file as it is.")
    canvas: str | None = Field(default=None, description="The address of its canvas, of a photo published by IIIF.")
    label: str | None = Field(default=None, description="What the canvas is called.")


class SetSummary(ResponseModel):
    """A set, in short."""

    name: str
    made: str
    yes: int
    no: int
    unsure: int
    search: bool = Field(description="Whether a search is stored with it.")

    @classmethod
    def of(cls, photos: PhotoSet) -> Self:
        """Return the summary of a set."""
        counts = {verdict: sum(photo.verdict == verdict for photo in photos.members) for verdict in VERDICTS}
        return cls(name=photos.name, made=photos.made, search=photos.search is not None, **counts)


class SetsResponse(ResponseModel):
    """All sets."""

    sets: list[SetSummary]
    writable: bool = Field(description="Whether this service lets its clients change them.")


class MemberResponse(ResponseModel):
    """A photo of a set; sizes and version are null where it is gone."""

    key: str
    box: Box | None
    verdict: Literal["yes", "no", "unsure"]
    there: bool
    width: int | None
    height: int | None
    version: str | None


class SetResponse(ResponseModel):
    """A set."""

    name: str
    made: str
    search: dict[str, Any] | None
    photos: list[MemberResponse]

    @classmethod
    def of(cls, photos: PhotoSet, snapshot: AnySnapshot) -> Self:
        """Return the response for a set; sizes are those of the photos in `snapshot`."""
        data = set_data(photos)
        members = []
        for fields, member in zip(data["photos"], photos.members, strict=True):
            record = snapshot.catalogue.of_content(member.sha256)
            gone: dict[str, Any] = {"width": None, "height": None, "version": None}
            members.append(
                MemberResponse(**fields, **gone) if record is None else MemberResponse(**{**_photo(record), **fields})
            )
        return cls(**{**data, "photos": members})


class NewsResponse(ResponseModel):
    """The matches of a set's search that are new since it was stored."""

    name: str
    news: list[ResultResponse]
    complete: bool = Field(description="False where the deadline cut the search short.")


def _photo(record: ImageRecord) -> dict[str, Any]:
    return {"key": record.key, "width": record.width, "height": record.height, "version": record.sha256[:12]}
