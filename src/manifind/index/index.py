"""`Index`: photos in, photos out."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import choice
from manifind.describe import Describer, Photo, Unreadable
from manifind.errors import InvalidInput, MissingExtra
from manifind.index.asking.answer import Answer, Hit
from manifind.index.asking.batch import Asked, Outcome, batch
from manifind.index.asking.closer import closer_answer
from manifind.index.asking.explain import Chain, Link, confirmed, explained
from manifind.index.asking.features import kind_of, sought_in
from manifind.index.asking.points import MatchingPoints, matching_points
from manifind.index.asking.query import METHODS, QueryRegions, rank, view
from manifind.index.asking.refine import BY_DEFAULT, REFINEMENTS, refined_answer
from manifind.index.asking.refine import NONE as NONE_JOINS
from manifind.index.asking.repeats import Repeats, repeats
from manifind.index.asking.sources import Source, photo_of, pixels_of, record_of
from manifind.index.asking.verify import deepest, first_photos, verified_answer
from manifind.index.making.build import Changes, build
from manifind.index.making.changing import changed
from manifind.index.making.creating import check_free, recipe_for
from manifind.index.making.describing import describer_of
from manifind.index.making.estimate import Announce
from manifind.index.making.so_far import SoFar
from manifind.index.making.wanted import Wanted, everything, more, several, without
from manifind.index.making.workers import working
from manifind.index.sets import FoundSets
from manifind.index.state.catalogue import ImageRecord, Photos
from manifind.index.state.elsewhere import is_address, opened, refused
from manifind.index.state.generation import Generation, State
from manifind.index.state.kept import KEEPING, Keeping
from manifind.index.state.manifest import FILES, FORMAT, KIND
from manifind.index.state.recipe import Recipe
from manifind.index.state.settled import made_otherwise
from manifind.index.state.unfinished import check_finished
from manifind.index.tending.check import Problem, check
from manifind.index.tending.info import info
from manifind.index.tending.repair import repair
from manifind.index.tending.teach import teach
from manifind.index.tending.teaching import Taught
from manifind.kernels import CPU
from manifind.manifold import Manifold
from manifind.storage import store
from manifind.types import FloatArray, StageProgress


class Index:
    """A collection of photos kept on disk.

    >>> index = Index.create("photos.manifind", "photos/")
    >>> answer = index.search("shot.jpg", box=(40, 60, 220, 310), top=20)
    >>> answer.likely, answer[0].key, answer[0].score, answer[0].box
    >>> index.explain(answer[0])
    """

    def __init__(
        self, path: Path | str, generation: State, describer: Describer | None = None, *, device: str = CPU
    ) -> None:
        self.path = Path(path)
        """The folder."""
        self.where = str(path) if isinstance(generation, Generation) else generation.where
        """What messages call it: the folder, or the address of a collection that lies elsewhere."""
        self.device = device
        """What searches it and brings it up to date."""
        self._current = generation
        self._closed = False
        self._given = describer
        """What describes queries, but for its whitening, in an index made by a describer of its maker's own."""
        if describer is not None:
            self._describer_of(generation)

    @property
    def _now(self) -> State:
        if self._closed:
            raise InvalidInput(f"{self.where} was closed; open it again.")
        return self._current

    @_now.setter
    def _now(self, generation: State) -> None:
        self._current = generation

    @property
    def _here(self) -> Generation:
        if not isinstance(self._now, Generation):
            raise refused(self.where, "read as a whole")
        return self._now

    @property
    def generation(self) -> int:
        """The number of the state that is being searched."""
        return self._now.number

    @property
    def state(self) -> State:
        """The state that is being searched: whoever has it keeps it while the index moves on."""
        return self._now

    @property
    def catalogue(self) -> Photos:
        """The photos, and what was passed over."""
        return self._now.catalogue

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
        return self._now.manifest.root

    def made_otherwise(self, **given: Any) -> dict[str, Any]:
        """Return those of the given parameters of `create` that the index was made without, with what it has instead.

        They are settled when an index is made; only another index can have others.
        """
        return made_otherwise(self._now.manifest, given)

    @property
    def sets(self) -> FoundSets:
        """The sets of photos that were found and named, kept in the index's folder."""
        if not isinstance(self._now, Generation):
            raise refused(self.where, "given sets")
        return FoundSets(self)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        photos: str | os.PathLike[str],
        *,
        backbone: str | os.PathLike[str] | None = None,
        recipe: str = "default",
        whiten: str | os.PathLike[str] | None = None,
        zooms: Sequence[float] | None = None,
        pooling: str | None = None,
        long_side: int | None = None,
        describer: Describer | None = None,
        means: int | None = None,
        geometry: bool | None = None,
        frames: float | None = None,
        memory: int | None = None,
        progress: StageProgress | None = None,
        announce: Announce | None = None,
        client: Any = None,
        growing: Callable[[SoFar], None] | None = None,
        **parameters: Any,
    ) -> Self:
        """Make an index of the photos below a folder.

        Parameters
        ----------
        path
            The folder to write, ``photos.manifind`` say. What an interrupted run described there is taken up again.
        photos
            The folder of photos.
        backbone
            A network that comes with manifind, by name (mobilenet_v2_int8 by default, and mobilenet_v2, the default
            where a GPU describes the photos), an ONNX file, or a retrieval checkpoint.
        recipe : {"default", "paper"}
            What is taken for all that follows and is not given: manifind's own choices, or those of the paper (one
            zoom, MAC, a finished whitening where there is one for it, k = query_k = 200).
        whiten : {"auto", "learn", "shipped", "none"} or path, optional
            Auto learns a whitening from these photos, the surer the more there are, mixed with what other photos have
            taught; where a backbone of your own comes without that, it takes the whitening that comes with it, if any.
            Learn takes these photos alone (at least some hundred), shipped is the whitening that comes with the
            backbone, none is none; or give a file that ``Whitening.save`` or ``manifind whiten`` wrote.
        zooms, pooling, long_side : optional
            Parts of its size at which a photo is seen, how regions are pooled, and the pixels of a photo's longer side
            as it is seen: see `Describer`.
        describer : Describer, optional
            In place of all these, how photos are described.
        means : int, optional
            Represent each photo by so many means of a mixture of its regions (5, say) in place of its twenty-odd
            regions: a quarter of the disk and of the work, for a loss in quality.
        geometry : bool, optional
            Keep local features of the photos, 19 kB each at most, by which `search` checks that a photo shows this very
            object and where. By default they are kept where they can be made.
        frames : float, optional
            Take films too, a frame every so many seconds (2, or 0.5 say): its key is ``film.mp4#00:12.4``. They are
            read by ffmpeg, see `manifind.describe.films`.
        memory : int, optional
            Bytes that the build may take; refused, with what it needs, where that is too little.
        progress : callable, optional
            Called with the stage ("files", "photos", "whitening", "graph"), how much of it is done, and how much there
            is.
        announce : callable, optional
            Called with an `Estimate` before a long build.
        client : distributed.Client or str, optional
            A client of Dask, or the address of its scheduler: its workers describe the photos and compare the regions,
            to the same result. They must see the photos and the index's folder under the same paths;
            `manifind.cluster.workers.workers` makes workers that exchange files elsewhere.
        growing : callable, optional
            Called after each photo that was described with a `SoFar`, which can write an index of those there are.
        **parameters
            Of `Manifold`, all but its `pooling`: here that word is for photos. `k`, `query_k` and `alpha` are
            chosen by the number of photos unless they are given.
        """
        target = Path(path)
        check_free(target)
        store.check_target(target, KIND)
        asked = {"backbone": backbone, "whiten": whiten, "zooms": zooms, "pooling": pooling}
        made_by, wanted = recipe_for(
            Path(photos),
            recipe,
            asked,
            parameters,
            long_side=long_side,
            describer=describer,
            means=means,
            geometry=geometry,
            frames=frames,
            by_workers=client is not None,
        )
        with store.writing(target, KIND, FILES) as writer, working(client) as by:
            check_free(target)  # somebody may have been faster
            build(
                writer,
                made_by,
                wanted,
                memory=memory,
                progress=progress,
                announce=announce,
                workers=by,
                growing=None if growing is None else lambda *made: growing(SoFar(*made)),
            )
        device = parameters.get("device", CPU)
        return cls(target, Generation.read(target, device=device), made_by.describer, device=device)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        describer: Describer | None = None,
        verify: bool = False,
        device: str = CPU,
    ) -> Self:
        """Open an index; its arrays are memory-mapped, and not read before they are needed.

        Parameters
        ----------
        path
            The index's folder, or the address of a collection that ``manifind publish`` wrote:
            ``"milvus://host:port/name"``.
        describer : Describer, optional
            What describes queries, where the index was made by one of your own; it must be the same.
        verify : bool
            Read everything through and compare checksums; sizes are always compared.
        device : {"cpu", "cuda", "auto"}
            What searches it and brings it up to date, whatever made it: see `Manifold`.
        """
        if is_address(path):
            return cls(str(path), opened(str(path)), describer, device=device)
        check_finished(Path(path))
        return cls(Path(path), Generation.read(Path(path), verify=verify, device=device), describer, device=device)

    def close(self) -> None:
        """Let go of the files; hits in hand can no longer be explained."""
        if not self._closed:
            (self._current.catalogue if isinstance(self._current, Generation) else self._current).close()
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
        also: Sequence[tuple[Source, Sequence[float] | None]] = (),
        not_this: Sequence[tuple[Source, Sequence[float] | None]] = (),
        top: int | None = 20,
        method: str = "regional",
        verify: int | None = None,
        refine: str = BY_DEFAULT,
    ) -> Answer:
        """Find the photos that contain what is in the box.

        Parameters
        ----------
        image
            A photo: its path, the key of one in the collection, its bytes, or its pixels.
        box : (x0, y0, x1, y1), optional
            The part of it to look for, in pixels of the upright photo; without it, all of it.
        also
            More photos and boxes of the same object, all one query.
        not_this
            Photos and boxes of what looks like it and is not meant; only diffusion can keep away from them.
        top : int, optional
            How many photos to return; None for all.
        method : {"regional", "global", "match", "plain"}
            Regional diffusion, global diffusion, R-match, or plain similarity.
        verify : int, optional
            How many of the first photos to check by geometry: those that show this very object come first, with their
            outline. By default 50 by regional diffusion where the index keeps local features, and none elsewhere.
            Where a tenth of them are verified, as many more are checked, up to four times as many in all. The most
            promising of those that are not verified get a closer look in their files. Without features kept, the
            photos' files are read, which takes a tenth of a second each.
        refine : {"verified", "none"}
            Verified lets what verified photos show of the object join the query, which is then answered once more.
        """
        choice(method, METHODS, "method")
        choice(refine, REFINEMENTS, "refine")
        now = self._now
        verify = first_photos(now, method, verify)
        describer = self._describer_of(now)
        asked, apart = (
            [(self.pixels(photo), part) for photo, part in given] for given in ([(image, box), *also], not_this)
        )
        views, against = ([view(describer, *one) for one in given] for given in (asked, apart))
        looked_at = None if top is None else max(top, deepest(verify))
        (search,) = rank(now, [QueryRegions.of(views, against)], looked_at, method)
        found = (self.find(photo, search.generation) for photo, _ in [(image, box), *also])
        own = [record.number for record in found if record is not None]
        answer = Answer(search, own=own)
        if not verify:
            return answer
        kind = kind_of(search.generation)
        sought = [sought_in(pixels, part, kind=kind) for pixels, part in asked]
        if refine == NONE_JOINS:
            return closer_answer(verified_answer(answer, sought, first=verify, top=top), sought)
        return refined_answer(verified_answer(answer, sought, first=verify), sought, first=verify, top=top)

    def search_many(
        self,
        queries: Sequence[Asked],
        *,
        top: int | None = 20,
        method: str = "regional",
        verify: int | None = None,
        refine: str = BY_DEFAULT,
        progress: StageProgress | None = None,
    ) -> list[Outcome]:
        """Answer many queries with one pass over the graph; a photo that cannot be read costs its own query alone.

        Parameters
        ----------
        queries : sequence of Asked
            Each with a name and its photos and boxes; `asking.batch.read_queries` reads them from a file.
        top, method, verify, refine
            As for `search`.
        progress : callable, optional
            Called with the stage ("queries", "geometry"), how much of it is done, and how much there is.
        """
        choice(method, METHODS, "method")
        choice(refine, REFINEMENTS, "refine")
        first = first_photos(self._now, method, verify)
        return batch(self, queries, top=top, method=method, verify=first, refine=refine, progress=progress)

    def explain(self, hit: Hit) -> Chain:
        """Return the chain of photos that led from the query to this one.

        It is the path through the graph along which most of the query's score could flow: see
        `manifind.index.asking.explain`.
        """
        return explained(hit.search, hit.image)

    def confirm(self, chain: Chain, image: Source, box: Sequence[float] | None = None) -> Chain:
        """Return a chain whose links say whether geometry joins their photos.

        Photos whose features the index keeps are read from their files only where these do not verify.

        Parameters
        ----------
        chain : Chain
            What `explain` returned.
        image, box
            What was looked for.
        """

        def joined(link: Link) -> MatchingPoints | None:
            source, part = (image, box) if link.source.key is None else (link.source.key, link.source.box)
            try:
                return self.matching_points(source, link.target.key or "", part)
            except (Unreadable, MissingExtra):
                return None

        return confirmed(chain, joined)

    def matching_points(self, image: Source, other: Source, box: Sequence[float] | None = None) -> MatchingPoints:
        """Return the points that match between two photos, under the map that geometry finds.

        Parameters
        ----------
        image, other
            Photos, as for `search`: a query and a result, or two photos of the collection.
        box : (x0, y0, x1, y1), optional
            The object in the first; all of it by default.
        """
        return matching_points(self._now, image, other, box)

    def repeats(
        self,
        *,
        top: int | None = 30,
        least: int = 3,
        verify: bool | None = None,
        progress: StageProgress | None = None,
    ) -> Repeats:
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
        return repeats(self._here, top=top, least=least, verify=verify, progress=progress)

    def photo(self, key: str, *, long_side: int | None = None) -> Photo:
        """Read a photo of the collection; the key of a file that is identical to one serves as well."""
        return photo_of(self._now, key, long_side=long_side)

    def pixels(self, image: Source) -> npt.NDArray[np.uint8]:
        """Return the upright pixels (h, w, 3) of a photo, however it is given."""
        return pixels_of(self._now, image)

    def find(self, image: Source, state: State | None = None) -> ImageRecord | None:
        """Return the photo of the collection that this is: by its key, by the path of its file, or by its content.

        `state` is the one that is looked in; by default the one that is being searched.
        """
        return record_of(state or self._now, image)

    # -- describing ---------------------------------------------------------------------------------------------------

    @property
    def describer(self) -> Describer:
        """What describes the queries: the same that described the photos."""
        return self._describer_of(self._now)

    def _describer_of(self, now: State) -> Describer:
        return describer_of(now, self._given, self.where)

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def sync(
        self,
        photos: str | os.PathLike[str] | None = None,
        *,
        geometry: bool = False,
        memory: int | None = None,
        progress: StageProgress | None = None,
        announce: Announce | None = None,
        client: Any = None,
    ) -> Changes:
        """Bring the index up to date with its folder: describe what is new, forget what is gone, repair the graph.

        Photos whose size and time, or content, are as they were are not described again. Photos removed by hand stay
        removed.

        Parameters
        ----------
        photos
            The folder, where it is another one now.
        geometry : bool
            Keep local features from now on: an index that has none gets those of all its photos, whose files are read
            and not described again.
        memory, progress, announce, client
            As for `create`.
        """
        root = None if photos is None else Path(photos)
        return self._change(
            lambda now: everything(now, root),
            root=root,
            keeping=KEEPING if geometry else None,
            memory=memory,
            progress=progress,
            announce=announce,
            client=client,
        )

    def add(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        memory: int | None = None,
        progress: StageProgress | None = None,
        announce: Announce | None = None,
        client: Any = None,
    ) -> Changes:
        """Add photos, or those of folders, below the index's folder; the others are not looked at.

        A photo that was removed by hand comes back, one that changed is described again.
        """
        given = [Path(path) for path in several(paths, "paths")]
        return self._change(
            lambda now: more(now, given), memory=memory, progress=progress, announce=announce, client=client
        )

    def remove(self, keys: Iterable[str], *, progress: StageProgress | None = None) -> Changes:
        """Remove photos from the index, not from the disk; `sync` leaves them out until they are added again."""
        given = several(keys, "keys")
        return self._change(lambda now: without(now, given), progress=progress)

    def relearn(
        self,
        photos: str | os.PathLike[str] | None = None,
        *,
        memory: int | None = None,
        progress: StageProgress | None = None,
        announce: Announce | None = None,
        client: Any = None,
    ) -> Changes:
        """Learn the whitening again from the photos as they are now, and describe all of them with it.

        Parameters are those of `sync`.
        """
        root = None if photos is None else Path(photos)
        return self._change(
            lambda now: everything(now, root),
            root=root,
            anew=True,
            memory=memory,
            progress=progress,
            announce=announce,
            client=client,
        )

    def learn(self, *, progress: StageProgress | None = None) -> Taught:
        """Teach the descriptions by photos of the collection that show the same thing, where that helps.

        Pairs of photos that geometry joins are looked for, some of them teach a better whitening and the others, kept
        apart, judge it: see `index.tending.teaching`. Where it helps, the index moves to a new generation, whose
        descriptions are the old ones seen through it and whose graph is made anew; no photo is described again.

        Parameters
        ----------
        progress : callable, optional
            Called with the stage ("pairs", "graph"), how much of it is done, and how much there is.
        """
        if not isinstance(self._now, Generation):
            raise refused(self.where, "changed")
        with store.writing(self.path, KIND, FILES) as writer:
            self.reload()
            now = self._here
            recipe = Recipe.of(now.manifest, self.describer, device=self.device)
            learnt = teach(writer, recipe, now, progress or (lambda *_: None))
        self.reload()
        return learnt

    def _change(
        self,
        wanted: Callable[[Generation], Wanted],
        *,
        root: Path | None = None,
        anew: bool = False,
        keeping: Keeping | None = None,
        memory: int | None = None,
        progress: StageProgress | None = None,
        announce: Announce | None = None,
        client: Any = None,
    ) -> Changes:
        """Move the index, as it is once nobody else can write, to the photos wanted.

        `anew` learns a new whitening; `keeping` is what is kept of photos from now on, where nothing was so far. What
        lies in a store is changed by way of the index on disk that it was published from.
        """
        if not isinstance(self._now, Generation):
            how: dict[str, Any] = {"root": root, "anew": anew, "keeping": keeping, "memory": memory}
            how |= {"progress": progress, "announce": announce, "client": client}
            through: Changes = self._now.through(lambda index: index._change(wanted, **how), self._given)
            self.reload()
            return through
        with store.writing(self.path, KIND, FILES) as writer, working(client) as by:
            self.reload()
            now = self._here
            photos = wanted(now)
            changes = changed(
                writer,
                now,
                Recipe.of(now.manifest, self.describer, root, device=self.device),
                photos,
                anew=anew,
                keeping=keeping,
                memory=memory,
                progress=progress,
                announce=announce,
                workers=by,
            )
        self.reload()
        return changes

    def reload(self) -> None:
        """Move to the newest generation; searches under way and hits in hand keep theirs."""
        now = self._now
        newest: State
        if isinstance(now, Generation):
            if store.read_manifest(self.path, KIND, FORMAT)["stamp"] == now.stamp:
                return
            newest = Generation.read(self.path, device=self.device)
        else:
            newest = now.newest()
            if newest is now:
                return
        if newest.manifest.describer.sha256 == now.manifest.describer.sha256:
            newest.made.describer = now.made.describer
        self._now = newest

    def check(self, *, progress: StageProgress | None = None) -> list[Problem]:
        """Verify every checksum and everything that holds of an index; return what is wrong and what would repair it.

        It is the index on disk that is checked, whichever generation is being searched.
        """
        if not isinstance(self._now, Generation):
            raise refused(self.where, "checked")
        return check(self.path, progress)

    @staticmethod
    def repair(
        path: str | os.PathLike[str],
        photos: str | os.PathLike[str] | None = None,
        *,
        describer: Describer | None = None,
        memory: int | None = None,
        progress: StageProgress | None = None,
    ) -> str:
        """Rebuild what is damaged of the index at `path` from what is whole; say what was done.

        The graph comes from the descriptions, and the descriptions from the photos; `photos` is their folder, where it
        is another one now.
        """
        return repair(Path(path), None if photos is None else Path(photos), describer, memory, progress)

    def info(self) -> dict[str, Any]:
        """Return counts, bytes, parameters and the health of the graph, ready for JSON."""
        now = self._now
        return info(self.path, now) if isinstance(now, Generation) else now.info()

    def __len__(self) -> int:
        return len(self.catalogue)

    def __repr__(self) -> str:
        if self._closed:
            return f"Index({self.where!r}, closed)"
        return f"Index({self.where!r}: {len(self):,} photos of {self.root}, generation {self.generation})"
