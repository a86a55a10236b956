"""`Index`: photos in, photos out."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice, check_float
from manifind.errors import InvalidInputError, MissingExtraError, UnreadableImageError
from manifind.features import RegionExtractor
from manifind.index.build.build import Changes, build
from manifind.index.build.builder import PartialIndex, change_index, check_free, resolve_config
from manifind.index.build.estimate import OnEstimate
from manifind.index.build.extractor_factory import extractor_of
from manifind.index.build.gather import connect_workers
from manifind.index.build.plan import (
    PendingChanges,
    SyncPlan,
    check_list,
    compare_folder,
    plan_addition,
    plan_removal,
    plan_sync,
)
from manifind.index.config import SearchConfig, config_conflicts
from manifind.index.maintenance.check import Problem, check
from manifind.index.maintenance.info import info
from manifind.index.maintenance.repair import repair
from manifind.index.search.batch import BatchQuery, BatchResult
from manifind.index.search.explain import Chain, Link, MatchingPoints, explain_result, matching_points, verify_chain
from manifind.index.search.filters import excluded_images
from manifind.index.search.image_features import feature_kind
from manifind.index.search.pipeline import resume_steps, run, run_many, search_steps
from manifind.index.search.query import (
    Deadline,
    QueryFeatures,
    QueryRegions,
    SearchQuery,
    Source,
    extract_query_features,
    extract_query_view,
    in_background,
    photo_of,
    pixels_of,
    record_of,
    with_mirrored,
)
from manifind.index.search.repeats import ObjectClusters, repeats
from manifind.index.search.results import Hit, SearchResult
from manifind.index.search.retrieval import METHODS, retrieve
from manifind.index.search.verification import default_depth
from manifind.index.sets import PhotoSets
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord, Photos
from manifind.index.storage.layout import check_finished
from manifind.index.storage.local_features import LOCAL_FEATURES, LocalFeatureConfig
from manifind.index.storage.manifest import FILES, KIND, read_manifest
from manifind.index.storage.remote import is_address, open_collection, read_only_error
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.io import Photo
from manifind.io.ignore import FileRules
from manifind.kernels import AUTO
from manifind.manifold import Manifold, batch_size
from manifind.storage import store
from manifind.types import FloatArray, StageProgress

Example = tuple[Source, Sequence[float] | None]
"""A photo, and a box in it or None."""


class SearchOptions(TypedDict, total=False):
    """The options of every search: by an `Index`, and by the `Client` of a service."""

    positives: Sequence[Example]
    """More photos and boxes of the same object, all one query."""
    negatives: Sequence[Example]
    """Photos and boxes of what looks like the object and is not; only diffusion uses them."""
    top: int | None
    """How many photos to return, 20 by default; None for all, of an index only."""
    method: str
    """Regional diffusion by default, "global" diffusion, R-match ("match"), or "plain" similarity."""
    verify: int | None
    """How many of the first photos to verify by local features: verified ones come first, with their outline.

    By default 50 by regional diffusion where the index stores local features, and none elsewhere. Where a tenth of them
    are verified, as many more are, up to four times as many in all. The most promising unverified ones are verified at
    full resolution. Without stored features the photos' files are read, a tenth of a second each."""
    expand: bool
    """Whether the regions of verified photos expand the query, which is then retrieved and verified once more."""
    mirrored: bool
    """Whether to look for the mirrored object too: in reversed slides, prints, photos by front cameras.

    Then `Hit.mirrored` says of a verified photo whether it shows the object mirrored."""
    deadline: float | None
    """Seconds after which the search returns what it has.

    `SearchResult.complete` says whether that is all, `SearchResult.unchecked` which photos were to be verified next,
    and `Index.resume_steps` goes on."""
    folder: str | None
    """Search the photos below this folder of the collection only."""
    since: str | None
    """Search the photos taken at this date or later only: ``2019``, ``2019-07`` or ``2019-07-04``."""
    until: str | None
    """Search the photos taken at this date or earlier only."""


class LocalBuildOptions(TypedDict, total=False):
    """The options of a build in this process."""

    memory: int | None
    """Bytes that the build may take; refused, with what it needs, where that is too little."""
    progress: StageProgress | None
    """Called with the stage, how much of it is done, and how much there is."""
    on_estimate: OnEstimate | None
    """Called with an `Estimate` before a long build."""


class BuildOptions(LocalBuildOptions, total=False):
    """The options of every change of an index: see `Index.create`."""

    client: Any
    """A client of Dask, or the address of its scheduler, whose workers build."""


class Index:
    """A collection of photos kept on disk.

    >>> index = Index.create("photos.manifind", "photos/")
    >>> result = index.search("shot.jpg", box=(40, 60, 220, 310), top=20)
    >>> result.n_matches, result[0].key, result[0].score, result[0].box
    >>> index.explain(result[0])
    """

    def __init__(
        self,
        path: Path | str,
        generation: AnySnapshot,
        extractor: RegionExtractor | None = None,
        *,
        device: str = AUTO,
        config: SearchConfig | None = None,
    ) -> None:
        self.path = Path(path)
        """The folder."""
        self.where = str(path) if isinstance(generation, Snapshot) else generation.where
        """Its name in messages: the folder, or the address of a remote collection."""
        self.device = device
        """The device that searches it and brings it up to date."""
        self.config = config or SearchConfig()
        """Every number that decides a search."""
        self._current = generation
        self._closed = False
        self._given = extractor
        """The extractor of queries, but for its whitening, in an index made by a custom extractor."""
        if extractor is not None:
            self._extractor_of(generation)

    @property
    def _snapshot(self) -> AnySnapshot:
        if self._closed:
            raise InvalidInputError(f"{self.where} was closed; open it again.")
        return self._current

    @_snapshot.setter
    def _snapshot(self, generation: AnySnapshot) -> None:
        self._current = generation

    @property
    def _here(self) -> Snapshot:
        if not isinstance(self._snapshot, Snapshot):
            raise read_only_error(self.where, "read as a whole")
        return self._snapshot

    @property
    def generation(self) -> int:
        """The number of the snapshot that is being searched."""
        return self._snapshot.number

    @property
    def state(self) -> AnySnapshot:
        """The snapshot that is being searched; it stays valid while the index moves on."""
        return self._snapshot

    @property
    def catalogue(self) -> Photos:
        """The photos, and the skipped files."""
        return self._snapshot.catalogue

    @property
    def manifold(self) -> Manifold:
        """The graph of their regions."""
        return self._here.manifold

    @property
    def boxes(self) -> FloatArray:
        """Where each region is in its photo, (n, 4)."""
        return self._here.boxes

    @property
    def root(self) -> Path:
        """The folder of the photos."""
        return self._snapshot.manifest.root

    def config_conflicts(self, **given: Any) -> dict[str, Any]:
        """Return the given parameters of `create` whose values differ from the index's, each with the index's value.

        They are fixed when an index is created.
        """
        return config_conflicts(self._snapshot.manifest, given)

    @property
    def sets(self) -> PhotoSets:
        """The named sets of photos in the index's folder."""
        if not isinstance(self._snapshot, Snapshot):
            raise read_only_error(self.where, "given sets")
        return PhotoSets(self)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        photos: str | os.PathLike[str],
        *,
        backbone: str | os.PathLike[str] | None = None,
        preset: str = "default",
        whiten: str | os.PathLike[str] | None = None,
        scales: Sequence[float] | None = None,
        pooling: str | None = None,
        long_side: int | None = None,
        extractor: RegionExtractor | None = None,
        regions_per_image: int | None = None,
        local_features: bool | LocalFeatureConfig | None = None,
        frames: float | None = None,
        exclude: Sequence[str] = (),
        follow_links: bool = True,
        memory: int | None = None,
        progress: StageProgress | None = None,
        on_estimate: OnEstimate | None = None,
        client: Any = None,
        on_partial: Callable[[PartialIndex], None] | None = None,
        **parameters: Any,
    ) -> Self:
        """Make an index of the photos below a folder.

        Parameters
        ----------
        path
            The folder to write, ``photos.manifind`` say. Photos that an interrupted run extracted there are reused.
        photos
            The folder of photos.
        backbone
            A network that comes with manifind, by name (mobilenet_v2_int8 by default, and mobilenet_v2, the default
            where a GPU extracts the photos), an ONNX file, or a retrieval checkpoint.
        preset : {"default", "paper"}
            The values of all parameters below that are not given: manifind's defaults, or those of the paper (one
            scale, MAC, a finished whitening where the backbone has one, k = query_k = 200).
        whiten : {"auto", "learn", "shipped", "none"} or path, optional
            Auto learns a whitening from these photos and the moments of others that come with the backbone; a backbone
            without moments keeps the whitening that comes with it, if any.
            Learn takes these photos alone (at least some hundred), shipped is the whitening that comes with the
            backbone, none is none; or give a file that ``Whitening.save`` or ``manifind whiten`` wrote.
        scales, pooling, long_side : optional
            The scales of a photo at which the backbone runs, the pooling of a region, and the pixels of a photo's
            longer side: see `RegionExtractor`.
        extractor : RegionExtractor, optional
            The extractor, in place of all these.
        regions_per_image : int, optional
            Represent each photo by so many means of a mixture of its regions (5, say) in place of its twenty-odd
            regions: a quarter of the disk and of the work, for a loss in quality.
        local_features : bool or LocalFeatureConfig, optional
            Store local features of the photos, 38 kB each at most, by which `search` verifies that a photo shows this
            very object, and where. By default they are stored where they can be extracted.
        frames : float, optional
            Index films too, a frame every so many seconds (2, or 0.5 say) with the key ``film.mp4#00:12.4``. ffmpeg
            decodes them: see `manifind.io.video`.
        exclude : sequence of str, optional
            Patterns of files and folders that are left out, by the rules of gitignore: see `manifind.io.ignore`.
        follow_links : bool
            Whether links to files and folders count.
        memory : int, optional
            Bytes that the build may take; refused, with what it needs, where that is too little.
        progress : callable, optional
            Called with the stage ("files", "photos", "learning", "whitening", "graph", "writing"), how much of it is
            done, and how much there is.
        on_estimate : callable, optional
            Called with an `Estimate` before a long build.
        client : distributed.Client or str, optional
            A client of Dask, or the address of its scheduler: its workers extract the photos and compare the regions,
            to the same result. They must see the photos and the index's folder under the same paths;
            `manifind.distributed.workers.workers` makes workers that exchange files elsewhere.
        on_partial : callable, optional
            Called after each extracted photo with a `PartialIndex`, which can write an index of the photos so far.
        **parameters
            Of `Manifold`, all but its `pooling`: here that word is for photos. `k`, `query_k` and `alpha` are
            chosen by the number of photos unless they are given.
        """
        target = Path(path)
        check_free(target)
        store.check_target(target, KIND)
        choices = {"backbone": backbone, "whiten": whiten, "scales": scales, "pooling": pooling}
        config, photos_to_index = resolve_config(
            Path(photos),
            preset,
            choices,
            parameters,
            long_side=long_side,
            extractor=extractor,
            regions_per_image=regions_per_image,
            local_features=local_features,
            frames=frames,
            files=FileRules.of(exclude, follow_links=follow_links),
            by_workers=client is not None,
        )
        with store.writing(target, KIND, FILES) as writer, connect_workers(client) as workers:
            check_free(target)  # another process may have been faster
            build(
                writer,
                config,
                photos_to_index,
                memory=memory,
                progress=progress,
                on_estimate=on_estimate,
                workers=workers,
                on_partial=None if on_partial is None else lambda *made: on_partial(PartialIndex(*made)),
            )
        device = parameters.get("device", AUTO)
        return cls(target, Snapshot.read(target, device=device), config.extractor, device=device)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        extractor: RegionExtractor | None = None,
        verify: bool = False,
        device: str = AUTO,
        config: SearchConfig | None = None,
    ) -> Self:
        """Open an index; its arrays are memory-mapped, and not read before they are needed.

        Parameters
        ----------
        path
            The index's folder, or the address of a collection that ``manifind publish`` wrote:
            ``"milvus://host:port/name"``.
        extractor : RegionExtractor, optional
            The extractor of queries, where the index was made by a custom one; it must be the same.
        verify : bool
            Read everything through and compare checksums; sizes are always compared.
        device : {"auto", "cpu", "cuda"}
            The device that searches it and brings it up to date, whichever built it: see `Manifold`.
        config : SearchConfig, optional
            Every number that decides a search; the defaults say where they were chosen.
        """
        if is_address(path):
            collection = open_collection(str(path), (config or SearchConfig()).retrieval)
            return cls(str(path), collection, extractor, device=device, config=config)
        check_finished(Path(path))
        return cls(
            Path(path), Snapshot.read(Path(path), verify=verify, device=device), extractor, device=device, config=config
        )

    def close(self) -> None:
        """Close the files; results in hand keep theirs."""
        if not self._closed:
            (self._current.catalogue if isinstance(self._current, Snapshot) else self._current).close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(
        self,
        image: Source,
        box: Sequence[float] | None = None,
        *,
        keys: Collection[str] | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResult:
        """Find the photos that contain what is in the box.

        Parameters
        ----------
        image
            A photo: its path, the key of one in the collection, its bytes, its pixels, or an image of Pillow's.
        box : (x0, y0, x1, y1), optional
            The part of it to look for, in pixels of the upright photo; without it, all of it.
        keys : collection of str, optional
            Search these photos only; a key that the collection does not have counts for nothing.
        **options
            `top`, `verify`, `expand` and the others of `SearchOptions`; their defaults are those of `search_steps`.
        """
        *_, result = self.search_steps(image, box, keys=keys, **options)
        return result

    def search_steps(
        self,
        image: Source,
        box: Sequence[float] | None = None,
        *,
        positives: Sequence[Example] = (),
        negatives: Sequence[Example] = (),
        top: int | None = 20,
        method: str = "regional",
        verify: int | None = None,
        expand: bool = True,
        mirrored: bool = False,
        deadline: float | None = None,
        folder: str | None = None,
        since: str | None = None,
        until: str | None = None,
        keys: Collection[str] | None = None,
    ) -> Iterator[SearchResult]:
        """Yield the result of each step of a search, each surer than the one before; parameters as for `search`.

        The ranking comes first, after a tenth of the time. `SearchResult.stage` names the step. While images are
        verified, the last result comes again with its `progress`.
        """
        seconds = None if deadline is None else check_float(deadline, "deadline", above=0)
        limit, snapshot = Deadline.after(seconds), self._snapshot
        depth = self._check_options(snapshot, method, verify, expand=expand, mirrored=mirrored)
        views = [(image, box), *positives]
        query = self._query(
            snapshot,
            views,
            negatives,
            top=top,
            method=method,
            verify=depth,
            expand=expand,
            mirrored=mirrored,
            at_once=True,
        )
        excluded = excluded_images(snapshot, folder, since, until, keys)
        number_images = partial(self._number_images, views, excluded)
        query = replace(query, number_images=number_images, max_excluded=len(excluded))
        yield from run(search_steps(snapshot, query, self.config, limit), self.config)

    def resume_steps(self, result: SearchResult, *, deadline: float | None = None) -> Iterator[SearchResult]:
        """Yield the results that follow one that a deadline cut short.

        Nothing is computed twice, and the last result is the one of a search without a deadline. The search goes on in
        the generation that it began in.

        Parameters
        ----------
        result : SearchResult
            One that is not `complete`.
        deadline : float, optional
            Seconds after which the search is cut short again.
        """
        seconds = None if deadline is None else check_float(deadline, "deadline", above=0)
        yield from run(resume_steps(result, Deadline.after(seconds)), self.config)

    def search_many(
        self,
        queries: Sequence[BatchQuery],
        *,
        top: int | None = 20,
        method: str = "regional",
        verify: int | None = None,
        expand: bool = True,
        mirrored: bool = False,
        progress: StageProgress | None = None,
    ) -> list[BatchResult]:
        """Search for many queries, whose retrievals share passes over the graph.

        A photo that cannot be read costs its own query alone.

        Parameters
        ----------
        queries : sequence of BatchQuery
            Each with a name and its photos and boxes; `index.search.batch.read_queries` reads them from a file.
        top, method, verify, expand, mirrored
            As for `search`.
        progress : callable, optional
            Called with the stage ("queries", "search"), how much of it is done, and how much there is.
        """
        report = progress or (lambda *_: None)
        snapshot, results, done = self._snapshot, [BatchResult(query, None) for query in queries], 0
        size = batch_size(snapshot.regions)
        depth = self._check_options(snapshot, method, verify, expand=expand, mirrored=mirrored)
        options: dict[str, Any] = {
            "top": top,
            "method": method,
            "verify": depth,
            "expand": expand,
            "mirrored": mirrored,
        }
        for start in range(0, len(queries), size):
            pipelines = {}
            for place, batch_query in enumerate(queries[start : start + size], start):
                try:
                    views = batch_query.views
                    query = self._query(snapshot, views, (), **options)
                    query = replace(query, number_images=partial(self._number_images, views, frozenset()))
                except (InvalidInputError, UnreadableImageError) as error:
                    results[place] = BatchResult(batch_query, None, error)
                else:
                    pipelines[place] = search_steps(snapshot, query, self.config)
                report("queries", place + 1, len(queries))
            places = list(pipelines)
            for number, result in run_many(list(pipelines.values()), self.config):
                place = places[number]
                results[place] = BatchResult(queries[place], result.nonzero())
                done += result.complete
                report("search", done, len(queries))
        return results

    def _check_options(self, snapshot: AnySnapshot, method: str, verify: int | None, **flags: object) -> int:
        """Check what a search is asked to do; return how many images it verifies first."""
        check_choice(method, METHODS, "method")
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise InvalidInputError(f"{name} is {value!r}; give True or False.", code=name)
        return default_depth(snapshot, method, verify, self.config.depth)

    def _query(
        self,
        snapshot: AnySnapshot,
        views: Sequence[Example],
        negatives: Sequence[Example],
        *,
        top: int | None,
        method: str,
        verify: int,
        expand: bool,
        mirrored: bool,
        at_once: bool = False,
    ) -> SearchQuery:
        """Extract a query's region descriptors, and its local features when they are needed, or `at_once` beside."""
        extractor, kind = self._extractor_of(snapshot), feature_kind(snapshot)
        decoded = [[(self.pixels(photo), part) for photo, part in examples] for examples in (views, negatives)]

        def local_features() -> list[QueryFeatures]:
            given = [extract_query_features(pixels, part, kind=kind, config=self.config) for pixels, part in decoded[0]]
            return with_mirrored(given) if mirrored else given

        extracting = in_background(local_features) if at_once and verify else local_features
        regions = [[extract_query_view(extractor, pixels, part) for pixels, part in examples] for examples in decoded]
        in_mirror = (
            [extract_query_view(extractor, *example, mirrored=True) for example in decoded[0]] if mirrored else []
        )
        return SearchQuery(
            QueryRegions.of(*regions, mirrored=in_mirror),
            extracting,
            method=method,
            top=top,
            verify=verify,
            expand=expand,
        )

    def _number_images(
        self, views: Sequence[Example], excluded: frozenset[int], snapshot: Snapshot
    ) -> tuple[list[frozenset[int]], frozenset[int]]:
        """Return the images of a snapshot that each view was taken from, and those that the query excludes."""
        records = (self.find(photo, snapshot) for photo, _ in views)
        return [frozenset(() if record is None else (record.number,)) for record in records], excluded

    def explain(self, hit: Hit) -> Chain:
        """Return the chain of photos that led from the query to a result.

        It is the path through the graph along which most of the query's score could flow: see
        `manifind.index.search.explain`. The query is retrieved once more, on the snapshot that is being searched.
        """
        snapshot = self._snapshot
        (retrieval,) = retrieve(snapshot, [hit.query], None, hit.method, config=self.config.retrieval)
        record = retrieval.snapshot.catalogue.of_key(hit.key)
        if record is None:
            raise InvalidInputError(
                f"{hit.key!r} is not in the collection any more; search again.", code="photo-removed"
            )
        return explain_result(retrieval, record.number)

    def confirm(
        self, chain: Chain, image: Source, box: Sequence[float] | None = None, *, mirrored: bool = False
    ) -> Chain:
        """Return a chain whose links say whether spatial verification joins their photos.

        Photos with stored features are read from their files only where these do not verify.

        Parameters
        ----------
        chain : Chain
            What `explain` returned.
        image, box
            What was looked for.
        mirrored : bool
            Whether mirrored photos are joined too.
        """

        def match(link: Link) -> MatchingPoints | None:
            source, part = (image, box) if link.source.key is None else (link.source.key, link.source.box)
            try:
                return self.matching_points(source, link.target.key or "", part, mirrored=mirrored)
            except (UnreadableImageError, MissingExtraError):
                return None

        return verify_chain(chain, match)

    def matching_points(
        self, image: Source, other: Source, box: Sequence[float] | None = None, *, mirrored: bool = False
    ) -> MatchingPoints:
        """Return the keypoints that match between two photos under one transform.

        Parameters
        ----------
        image, other
            Photos, as for `search`: a query and a result, or two photos of the collection.
        box : (x0, y0, x1, y1), optional
            The object in the first; all of it by default.
        mirrored : bool
            Whether the other may show the first mirrored.
        """
        return matching_points(self._snapshot, image, other, box, self.config, mirrored=mirrored)

    def repeats(
        self,
        *,
        top: int | None = 30,
        least: int = 3,
        verify: bool | None = None,
        progress: StageProgress | None = None,
    ) -> ObjectClusters:
        """Find what occurs in several photos, without any query; the surest and largest objects first.

        Near-duplicates and bursts are told apart, and count as one photo. It takes a few seconds for a hundred thousand
        regions: see `manifind.repeats`.

        Parameters
        ----------
        top : int, optional
            How many objects to return; None for all.
        least : int
            In how many photos an object occurs at least.
        verify : bool, optional
            Compare the photos of each object by geometry; objects that it confirms come first. By default where the
            index keeps local features; else the photos' files are read, which takes a tenth of a second each.
        progress : callable, optional
            Called with the stage ("regions", "geometry"), how much of it is done, and how much there is.
        """
        return repeats(self._here, top=top, least=least, verify=verify, progress=progress, config=self.config)

    def photo(self, key: str, *, long_side: int | None = None) -> Photo:
        """Read a photo of the collection; the key of a file that is identical to one serves as well."""
        return photo_of(self._snapshot, key, long_side=long_side)

    def pixels(self, image: Source) -> npt.NDArray[np.uint8]:
        """Return the upright pixels (h, w, 3) of a photo, however it is given."""
        return pixels_of(self._snapshot, image)

    def find(self, image: Source, state: AnySnapshot | None = None) -> ImageRecord | None:
        """Return the photo of the collection that this is: by its key, by the path of its file, or by its content.

        `state` is the one that is looked in; by default the one that is being searched.
        """
        return record_of(state or self._snapshot, image)

    # -- extraction ---------------------------------------------------------------------------------------------------

    @property
    def extractor(self) -> RegionExtractor:
        """The extractor of the queries, which is that of the photos."""
        return self._extractor_of(self._snapshot)

    def _extractor_of(self, snapshot: AnySnapshot) -> RegionExtractor:
        return extractor_of(snapshot, self._given, self.where)

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def sync(
        self,
        photos: str | os.PathLike[str] | None = None,
        *,
        local_features: bool = False,
        exclude: Sequence[str] | None = None,
        follow_links: bool | None = None,
        **options: Unpack[BuildOptions],
    ) -> Changes:
        """Bring the index up to date with its folder: extract what is new, forget what is gone, repair the graph.

        Photos whose size and time, or content, are as they were are not extracted again. Photos removed by hand stay
        removed.

        Parameters
        ----------
        photos
            The folder, where it is another one now.
        local_features : bool
            Keep local features from now on: an index that has none gets those of all its photos, whose files are read
            and not extracted again.
        exclude, follow_links : optional
            Which files count from now on, as for `create`; what is not given stays as it is.
        **options
            `memory`, `progress`, `on_estimate` and `client`, as for `create`.
        """
        root = None if photos is None else Path(photos)

        def files(snapshot: Snapshot) -> FileRules:
            old = snapshot.manifest.files
            return FileRules.of(
                old.exclude if exclude is None else exclude,
                follow_links=old.follow_links if follow_links is None else follow_links,
            )

        return self._change(
            lambda snapshot: plan_sync(snapshot, root, files(snapshot)),
            root=root,
            files=files,
            keeping=LOCAL_FEATURES if local_features else None,
            **options,
        )

    def pending_changes(self) -> PendingChanges:
        """Count the photos by which the folder differs from the index: what `sync` would do. No photo is decoded."""
        return compare_folder(self._here)

    def add(
        self,
        paths: Iterable[str | os.PathLike[str]],
        **options: Unpack[BuildOptions],
    ) -> Changes:
        """Add photos, or those of folders, below the index's folder; the others are not looked at.

        A photo that was removed by hand comes back, one that changed is extracted again.
        """
        given = [Path(path) for path in check_list(paths, "paths")]
        return self._change(
            lambda snapshot: plan_addition(snapshot, given),
            **options,
        )

    def remove(self, keys: Iterable[str], *, progress: StageProgress | None = None) -> Changes:
        """Remove photos from the index, not from the disk; `sync` leaves them out until they are added again."""
        given = check_list(keys, "keys")
        return self._change(lambda snapshot: plan_removal(snapshot, given), progress=progress)

    def retrain_whitening(
        self,
        photos: str | os.PathLike[str] | None = None,
        **options: Unpack[BuildOptions],
    ) -> Changes:
        """Learn the whitening again from the photos as they are now, and extract all of them with it.

        Parameters are those of `sync`.
        """
        root = None if photos is None else Path(photos)
        return self._change(
            lambda snapshot: plan_sync(snapshot, root),
            root=root,
            retrain_whitening=True,
            **options,
        )

    def _change(
        self,
        plan: Callable[[Snapshot], SyncPlan],
        *,
        root: Path | None = None,
        files: Callable[[Snapshot], FileRules] | None = None,
        retrain_whitening: bool = False,
        keeping: LocalFeatureConfig | None = None,
        client: Any = None,
        **options: Unpack[LocalBuildOptions],
    ) -> Changes:
        """Write the generation that `plan` makes of the snapshot under the writer's lock, and move to it.

        `retrain_whitening` learns a new whitening; `keeping` adds local features to an index without. A remote
        collection is changed by way of the index on disk from which it was published.
        """
        if not isinstance(self._snapshot, Snapshot):
            changes: Changes = self._snapshot.modify_source_index(
                lambda index: index._change(
                    plan,
                    root=root,
                    files=files,
                    retrain_whitening=retrain_whitening,
                    keeping=keeping,
                    client=client,
                    **options,
                ),
                self._given,
            )
            self.reload()
            return changes
        with store.writing(self.path, KIND, FILES) as writer, connect_workers(client) as workers:
            self.reload()
            snapshot = self._here
            photos = plan(snapshot)
            config = BuildConfig.of(snapshot.manifest, self.extractor, root, device=self.device)
            changes = change_index(
                writer,
                snapshot,
                config if files is None else replace(config, files=files(snapshot)),
                photos,
                retrain_whitening=retrain_whitening,
                keeping=keeping,
                workers=workers,
                **options,
            )
        self.reload()
        return changes

    def reload(self) -> None:
        """Move to the newest generation; searches under way and hits in hand keep theirs."""
        snapshot = self._snapshot
        newest: AnySnapshot
        if isinstance(snapshot, Snapshot):
            if read_manifest(self.path)["stamp"] == snapshot.stamp:
                return
            newest = Snapshot.read(self.path, device=self.device)
        else:
            newest = snapshot.newest()
            if newest is snapshot:
                return
        if newest.manifest.extractor.sha256 == snapshot.manifest.extractor.sha256:
            newest.cache.extractor = snapshot.cache.extractor
        self._snapshot = newest

    def check(self, *, progress: StageProgress | None = None) -> list[Problem]:
        """Verify every checksum and everything that holds of an index; return what is wrong and what would repair it.

        It is the index on disk that is checked, whichever generation is being searched.
        """
        if not isinstance(self._snapshot, Snapshot):
            raise read_only_error(self.where, "checked")
        return check(self.path, progress)

    @staticmethod
    def repair(
        path: str | os.PathLike[str],
        photos: str | os.PathLike[str] | None = None,
        *,
        extractor: RegionExtractor | None = None,
        memory: int | None = None,
        progress: StageProgress | None = None,
    ) -> str:
        """Rebuild what is damaged of the index at `path` from what is whole; say what was done.

        The graph comes from the descriptors, and the descriptors from the photos; `photos` is their folder, where it
        is another one now.
        """
        return repair(Path(path), None if photos is None else Path(photos), extractor, memory, progress)

    def info(self) -> dict[str, Any]:
        """Return counts, bytes, parameters and the health of the graph, ready for JSON."""
        snapshot = self._snapshot
        return info(self.path, snapshot) if isinstance(snapshot, Snapshot) else snapshot.info()

    def __len__(self) -> int:
        return len(self.catalogue)

    def __repr__(self) -> str:
        if self._closed:
            return f"Index({self.where!r}, closed)"
        return f"Index({self.where!r}: {len(self):,} photos of {self.root}, generation {self.generation})"
