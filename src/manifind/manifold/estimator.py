"""`Manifold`: descriptors in, rankings out.

The estimator ties the rooms together: `manifind.graph` off line, `manifind.diffusion` and `manifind.ranking` on line.

Costs, for n regions of d dimensions with k neighbours each: ``fit`` takes n²d multiplications with the exact graph and
holds the vectors, the lists (8nk bytes) and S (8 bytes an edge; mutuality leaves half of the nk or fewer). A search is
one pass over the vectors and at most `max_iter` passes over S, however many regions the query has.

References
----------
Iscen, Tolias, Avrithis, Furon, Chum: Efficient Diffusion on Region Manifolds: Recovering Small Objects with Compact
CNN Representations. CVPR 2017.
"""

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind import kernels
from manifind.checks import (
    UNIT_TOLERANCE,
    choice,
    image_numbers,
    integers,
    real_number,
    sequence_of_queries,
    unit_vectors,
    whole_number,
)
from manifind.diffusion import ENGINES, SEEDINGS, Seed, Solution, append, dense, diffuse, opposed, seed
from manifind.diffusion.prepared import PREPARED, Prepared, prepare
from manifind.errors import InvalidInput, ManifindWarning, NotFitted
from manifind.graph import (
    AUTO,
    GIVEN,
    GRAPHS,
    UNKNOWN,
    Built,
    Neighbours,
    given_neighbours,
    given_origin,
    measured,
    normalise,
    normalised_affinity,
    settled,
    update_neighbours,
)
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.manifold.arrays import check_arrays, check_ids
from manifind.manifold.part import Part, Places, shortlists
from manifind.ranking import POOLINGS, Ranking, gmp_weights
from manifind.storage import store
from manifind.types import FloatArray, IntArray, Progress, Vectors

FORMAT = 1
BUILT = "built"
"""Stands beside the parameters for how the graph was built, in what is saved."""
BATCH_BYTES = 2**28
"""What the right-hand sides and the scores of one batch of `Manifold.search_many` may take together."""
LARGEST_BATCH = 64
WHOLE_UP_TO, LOCAL_UP_TO = 200_000, 8
"""Regions up to which the whole graph is solved for by default; queries up to which the neighbourhood of each is."""
LARGEST_CHANGE = 0.25
"""Share of new regions up to which `Manifold.update` repairs the lists; comparing all pairs is simpler beyond."""


@dataclass(frozen=True)
class _Checked:
    """Parameters whose values were checked."""

    k: int
    query_k: int
    alpha: float
    gamma: float
    pooling: str
    max_iter: int
    tol: float
    lam: float
    seeding: str
    graph: str
    reserve: int
    memory: int


class _Asked(NamedTuple):
    """The regions of a query, and of what it does not mean."""

    regions: FloatArray
    against: FloatArray | None
    rows: IntArray | None
    """Where its regions are regions of the collection, -1 for others; None for none."""


def batch_size(regions: int) -> int:
    """Return how many queries `Manifold.search_many` solves for at once on a graph of so many regions."""
    return max(1, min(LARGEST_BATCH, BATCH_BYTES // (8 * regions)))


def best_engine(S: sp.csr_array, queries: int) -> str:
    """Return the engine for so many queries at once on a whole graph: the fastest of equal quality.

    On the whole graph the answer of one query and of many are the same, which is worth some milliseconds; beyond
    `WHOLE_UP_TO` regions the neighbourhood is solved for in a fraction of the time, unless enough queries share a pass,
    once the graph was divided for it. ``benchmarks/speed.py engines`` has the times, and mAP.
    """
    few = S.shape[0] > WHOLE_UP_TO and queries <= LOCAL_UP_TO
    return "local" if few and kernels.compiled() and kernels.is_divided(S) else "cg"


class Manifold:
    """Diffusion on the graph of a collection's region descriptors.

    Parameters
    ----------
    k : int, default 100
        Neighbours of each region in the graph; only mutual ones become edges. It matters most, and the best depends on
        the collection: too few cut the manifold apart, too many join what does not belong together. The paper takes 200
        for regions (50 for global descriptors, or after `compact`); the descriptors of a small network want less: on
        Oxford5k described by MobileNetV2, 50 is best and 200 costs several points of mAP (``docs/oxford5k.md``). The
        default came near the best on very different collections.
    query_k : int, default 50
        Neighbours searched for each query region, and entries kept of y. The paper takes 200 for regions and 10 for
        global descriptors; what holds for `k` holds for it.
    alpha : float, default 0.99
        Share of a region's score that comes from its neighbours, in (0, 1).
    gamma : float, default 3.0
        Exponent of the affinity max(x·z, 0)^gamma.
    pooling : {"gmp", "sum"}, default "gmp"
        How region scores become an image's: generalised max pooling, or their sum.
    max_iter : int, default 20
        Most iterations of the solver. 20 is enough for conjugate gradient; ``engine="iteration"`` wants some 110.
    tol : float, default 1e-6
        Relative residual at which the solver stops before `max_iter`.
    lam : float, default 1.0
        Regularisation λ of generalised max pooling, positive.
    seeding : {"paper", "released", "append"}, default "paper"
        How the query enters: eq. 8; the authors' released program, which sums similarities before raising them to
        `gamma`; or the conventional way, the query's regions as nodes of the graph (slow: it rebuilds S).
    graph : {"auto", "exact", "nn-descent"}, default "auto"
        How neighbours are found: all pairs, or NN-Descent with exact re-scoring, which misses some. "auto" compares all
        pairs of up to 200,000 regions, and of more where that is expected to be the faster (`manifind.graph.choose`);
        `graph_` says what it came to.
    reserve : int, default 0
        How many neighbours beyond `k` to keep in store, for `update`: without any, each region that goes leaves lists
        short of k that must be searched for anew.
    memory : int, default 2**28
        Bytes of scratch for finding neighbours, beyond the vectors and the lists.

    Attributes
    ----------
    vectors_ : (n, d) float32
        The regions' descriptors. Your array, not a copy, where it is C-contiguous float32 of unit rows. Float16 in a
        manifold that `from_arrays` made of such.
    layout_ : Layout
        The images and their regions.
    neighbours_ : Neighbours
        Ids (n, k) int32 and similarities (n, k) float32 of each region's neighbours, best first.
    graph_ : Built
        How they were found (`method`), and which share of the true neighbours they are (`recall`): 1 where all pairs
        were compared, else measured on a `sample` of the regions when they were found.
    S_ : (n, n) scipy.sparse.csr_array, float32
        The normalised affinity, symmetric, of zero diagonal; zero rows for regions without a mutual neighbour.
    degrees_ : (n,) float32
        Row sums of the affinity before normalisation.
    weights_ : (n,) float32
        Pooling weight of each region.
    global_vectors_ : (images, g) float32
        The global descriptors that choose a shortlist.

    Examples
    --------
    >>> manifold = Manifold(k=50).fit(vectors, image_of)
    >>> manifold.search(query_vectors, top=10).images
    """

    vectors_: Vectors
    layout_: Layout
    neighbours_: Neighbours
    graph_: Built
    S_: sp.csr_array
    degrees_: FloatArray
    weights_: FloatArray
    global_vectors_: FloatArray

    def __init__(
        self,
        *,
        k: int = 100,
        query_k: int = 50,
        alpha: float = 0.99,
        gamma: float = 3.0,
        pooling: str = "gmp",
        max_iter: int = 20,
        tol: float = 1e-6,
        lam: float = 1.0,
        seeding: str = "paper",
        graph: str = AUTO,
        reserve: int = 0,
        memory: int = 2**28,
    ) -> None:
        self.k = k
        self.query_k = query_k
        self.alpha = alpha
        self.gamma = gamma
        self.pooling = pooling
        self.max_iter = max_iter
        self.tol = tol
        self.lam = lam
        self.seeding = seeding
        self.graph = graph
        self.reserve = reserve
        self.memory = memory
        self._prepared: dict[str, Prepared] = {}

    # -- parameters ---------------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (scikit-learn's signature)
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters: those of the query (query_k, alpha, max_iter, tol, seeding) hold from the next search.

        The others made the graph and hold from the next fit.
        """
        for name, value in parameters.items():
            setattr(self, choice(name, self.get_params(), "parameter"), value)
        return self

    def __repr__(self) -> str:
        return f"Manifold({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def check_params(self) -> _Checked:
        """Return the parameters in the form that the rooms take, or raise `InvalidInput`."""
        return _Checked(
            k=whole_number(self.k, "k"),
            query_k=whole_number(self.query_k, "query_k"),
            alpha=real_number(self.alpha, "alpha", above=0, below=1),
            gamma=real_number(self.gamma, "gamma", above=0),
            pooling=choice(self.pooling, POOLINGS, "pooling"),
            max_iter=whole_number(self.max_iter, "max_iter"),
            tol=real_number(self.tol, "tol", above=0, below=1),
            lam=real_number(self.lam, "lam", above=0),
            seeding=choice(self.seeding, SEEDINGS, "seeding"),
            graph=choice(self.graph, (AUTO, *GRAPHS), "graph"),
            reserve=whole_number(self.reserve, "reserve", least=0),
            memory=whole_number(self.memory, "memory"),
        )

    # -- off line -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        neighbours: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        global_vectors: npt.ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Build the graph of a collection.

        Parameters
        ----------
        vectors : (n, d) floating point
            A descriptor for each region. Rows not of unit norm are normalised in a copy, with a warning.
        image_of : (n,) integers, ascending, optional
            The number of the image that each region belongs to. Without it each row is an image of its own, which is
            the paper's global diffusion.
        neighbours : (ids, similarities), optional
            Neighbour lists found elsewhere, best first, at least k long, in place of searching for them.
        global_vectors : (images, g) floating point, optional
            A global descriptor for each image, in the order of their numbers, for choosing a shortlist; by default the
            normalised sum of the image's regions.
        progress : callable, optional
            Called with the regions done and the regions in all while neighbours are searched exactly.
        """
        checked = self.check_params()
        X = unit_vectors(vectors, "vectors")
        layout = Layout.of(image_numbers(image_of, len(X)))
        if global_vectors is not None:
            globals_ = self._checked_globals(global_vectors, layout)
        else:
            globals_ = X if len(layout.images) == len(X) else aggregate(X, layout)
        if neighbours is not None:
            method, lists = GIVEN, given_neighbours(neighbours, X, checked.k)
        else:
            method = settled(checked.graph, len(X), checked.k)
            lists = GRAPHS[method](X, checked.k, reserve=checked.reserve, memory=checked.memory, progress=progress)
        built = measured(method, lists, X, checked.k, memory=checked.memory)
        weights = np.ones(len(X), np.float32)
        if checked.pooling == "gmp":
            weights = gmp_weights(X, layout, checked.lam, memory=min(2**26, checked.memory))
        self._take(checked, X, layout, lists, built, weights, globals_)
        return self

    def update(
        self,
        vectors: Vectors,
        image_of: npt.ArrayLike,
        origin: npt.ArrayLike,
        *,
        global_vectors: npt.ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Move to a collection that has most of its regions in common with the fitted one.

        The result is that of `fit` on the new collection, up to ties among neighbours; the cost is that of the change.
        Where more than a quarter of the regions are new, it is a fit. Lists that missed some neighbours are not mended:
        the recall that `graph_` has is that of the last fit.

        Parameters
        ----------
        vectors : (n, d) float32 or float16
            The descriptors of all regions as they are now, unit rows.
        image_of : (n,) integers, ascending
            The number of the image that each region belongs to, as in `fit`.
        origin : (n,) integers
            The row that each region has in the fitted collection, with the same descriptor; -1 where it is new.
        global_vectors : (images, g) floating point, optional
            As in `fit`; needed where `fit` had them.
        progress : callable, optional
            Called with the regions done and the regions in all.
        """
        checked = self._effective()
        layout = Layout.of(image_numbers(image_of, len(vectors)))
        rows = given_origin(origin, vectors, self.vectors_)
        if (rows < 0).sum() > LARGEST_CHANGE * len(rows):
            return self.fit(vectors, image_of, global_vectors=global_vectors, progress=progress)
        lists = update_neighbours(
            self._lists, vectors, rows, checked.k, reserve=checked.reserve, memory=checked.memory, progress=progress
        )
        change = self.layout_.change(layout, rows)
        X = vectors[change.regions].astype(np.float32)
        weights = np.ones(len(rows), np.float32)
        if checked.pooling == "gmp":
            weights[rows >= 0] = self.weights_[rows[rows >= 0]]
            weights[change.regions] = gmp_weights(X, change.layout, checked.lam)
        if global_vectors is not None:
            globals_ = self._checked_globals(global_vectors, layout)
        elif self.global_vectors_.shape[1] != self.vectors_.shape[1]:
            raise InvalidInput("global_vectors is missing: the collection was fitted with some of its own.")
        else:
            globals_ = np.empty((len(layout.images), vectors.shape[1]), np.float32)
            globals_[change.kept] = self.global_vectors_[change.before]
            globals_[change.new] = aggregate(X, change.layout)
        self._take(checked, vectors, layout, lists, self.graph_.after_update(), weights, globals_)
        return self

    def _checked_globals(self, global_vectors: npt.ArrayLike, layout: Layout) -> FloatArray:
        checked = unit_vectors(global_vectors, "global_vectors")
        if len(checked) != len(layout.images):
            raise InvalidInput(
                f"global_vectors has {len(checked)} rows for {len(layout.images)} images; give one for each image."
            )
        return checked

    def _take(
        self,
        checked: _Checked,
        vectors: Vectors,
        layout: Layout,
        lists: Neighbours,
        built: Built,
        weights: FloatArray,
        global_vectors: FloatArray,
    ) -> None:
        """Become the manifold of a collection, given the neighbour lists with their reserve."""
        neighbours = lists.first(min(checked.k, len(vectors) - 1))
        S, degrees = normalised_affinity(neighbours, checked.gamma)
        self._fitted = checked
        self._lists, self.graph_ = lists, built
        self._sound = True
        self.vectors_, self.layout_, self.neighbours_ = vectors, layout, neighbours
        self.S_, self.degrees_, self.weights_ = S, degrees, weights
        self.global_vectors_ = global_vectors

    # -- on line ------------------------------------------------------------------------------------------------------

    def search(
        self,
        query_vectors: npt.ArrayLike,
        top: int | None = None,
        *,
        engine: str = "auto",
        shortlist: int | npt.ArrayLike | None = None,
        global_vector: npt.ArrayLike | None = None,
    ) -> Ranking:
        """Rank the images for one query.

        Parameters
        ----------
        query_vectors : (m, d) floating point
            All regions of the query.
        top : int, optional
            Images to return; all by default. Images that no score reached are last, at zero.
        engine : {"auto", "cg", "iteration", "local", "offline", "spectral"}
            By default the best at equal quality: "cg", or "local" for few queries on more than 200,000 regions once
            `prepare` has divided the graph for it. Conjugate gradient; the iteration of eq. 3; conjugate gradient with
            the query's neighbourhood in detail and the rest in parts, whose cost hardly grows with the collection
            (`Ranking.reached` says how many regions the neighbourhood has); or one that does most of the work off line
            and less exactly, on the whole collection only.
        shortlist : int or array of image numbers, optional
            Diffuse only on the regions of these images (Sec. 4.4): the given ones, or as many as given that are the
            most similar by global descriptor. The others are not in the ranking.
        global_vector : (g,) floating point, optional
            The query's global descriptor, for the shortlist; by default the normalised sum of its regions.
        """
        globals_ = None if global_vector is None else [global_vector]
        (ranking,) = self._search([query_vectors], ["query_vectors"], top, engine, shortlist, globals_, batch=False)
        return ranking

    def search_many(
        self,
        queries: Sequence[npt.ArrayLike],
        top: int | None = None,
        *,
        engine: str = "auto",
        shortlist: int | npt.ArrayLike | None = None,
        global_vectors: Sequence[npt.ArrayLike] | None = None,
        against: Sequence[npt.ArrayLike | None] | None = None,
        rows: Sequence[npt.ArrayLike | None] | None = None,
        keep_regions: bool = False,
    ) -> list[Ranking]:
        """Rank the images for each of many queries, as `search` does, in one pass over the matrix for all.

        Parameters
        ----------
        queries : list of (m, d) arrays
            The regions of each query.
        top, engine, shortlist
            As in `search`, for all queries alike.
        global_vectors : list of (g,) arrays, optional
            The global descriptor of each query.
        against : list of (m, d) arrays or None, optional
            For each query the regions of what is not meant, if any: what they seed is taken away from what the query
            seeds (`manifind.diffusion.opposed`), and scores may then be negative.
        rows : list of (m,) integers or None, optional
            For each query which of its regions are regions of the collection: their rows, and -1 for others. Their
            neighbours are in the graph and need no search, as long as its lists are exact and long enough.
        keep_regions : bool
            Hold the scores of all regions, n a query, rather than search again when a ranking is asked for them.
        """
        listed = sequence_of_queries(queries, "queries")
        names = [f"queries[{i}]" for i in range(len(listed))]
        return self._search(
            listed, names, top, engine, shortlist, global_vectors, against=against, rows=rows, batch=not keep_regions
        )

    def _search(
        self,
        queries: Sequence[npt.ArrayLike],
        names: Sequence[str],
        top: int | None,
        engine: str,
        shortlist: int | npt.ArrayLike | None,
        globals_: Sequence[npt.ArrayLike] | None,
        *,
        against: Sequence[npt.ArrayLike | None] | None = None,
        rows: Sequence[npt.ArrayLike | None] | None = None,
        batch: bool,
    ) -> list[Ranking]:
        checked = self._effective()
        choice(engine, ("auto", *ENGINES, *PREPARED), "engine")
        if top is not None:
            whole_number(top, "top")
        dimension = self.vectors_.shape[1]
        Q = [unit_vectors(query, name, dimension=dimension) for query, name in zip(queries, names, strict=True)]
        if not Q:
            return []
        G = None if globals_ is None else self._given_globals(globals_, len(Q))
        places = shortlists(
            shortlist,
            self.layout_.images,
            self.global_vectors_,
            lambda: self._query_globals(Q) if G is None else G,
        )
        asked = list(map(_Asked, Q, self._given_against(against, len(Q)), self._given_rows(rows, Q)))
        if engine in PREPARED and (places is not None or checked.seeding == "append"):
            what = "a shortlist" if places is not None else "seeding='append'"
            raise InvalidInput(
                f"engine={engine!r} was prepared on the whole graph and {what} needs another; use engine='cg' for it."
            )
        search = self._append if checked.seeding == "append" else self._seed
        S = self.S_

        if engine == "auto":
            whole = places is None and checked.seeding != "append"
            engine = best_engine(S, len(asked)) if whole else "cg"

        def again(query: _Asked, own: Places | None) -> FloatArray:
            if self.S_ is not S:
                raise NotFitted("the manifold was fitted anew since this search; search again for region scores.")
            return search([query], self._part(own), checked, engine, top)[0].regions

        def found(chunk: list[_Asked], own: Places | None) -> Iterator[Ranking]:
            rankings = search(chunk, self._part(own), checked, engine, top)
            if not batch:
                return iter(rankings)
            # A ranking of a batch does not hold the scores of all regions: it searches again if they are asked for.
            return (
                replace(ranking, _region_scores=partial(again, query, own))
                for ranking, query in zip(rankings, chunk, strict=True)
            )

        if isinstance(places, Sequence):
            return [ranking for q, own in zip(asked, places, strict=True) for ranking in found([q], own)]
        size = batch_size(len(self.vectors_))
        chunks = [asked[start : start + size] for start in range(0, len(asked), size)]
        return [ranking for chunk in chunks for ranking in found(chunk, places)]

    def _seed(
        self, queries: list[_Asked], part: Part, checked: _Checked, engine: str, top: int | None
    ) -> list[Ranking]:
        """Rank the paper's way: y is what the queries' neighbours make it."""
        S = part.truncate(self.S_, self.degrees_)
        against = [asked.against for asked in queries if asked.against is not None]
        blocks = [asked.regions for asked in queries] + against
        known = [asked.rows for asked in queries] + [None] * len(against)
        found = self._nearest(part, blocks, known, checked.query_k)
        ends = np.cumsum([len(block) for block in blocks])
        rows = [slice(end - len(block), end) for block, end in zip(blocks, ends, strict=True)]
        made = [seed(found.of(own), checked.query_k, checked.gamma, checked.seeding) for own in rows]
        opposing = iter(made[len(queries) :])
        seeds = [
            one if asked.against is None else opposed(one, next(opposing))
            for asked, one in zip(queries, made, strict=False)
        ]

        if engine in PREPARED:
            solution = self._ready(engine, checked.alpha).solve(seeds, checked.alpha)
        else:
            solution = _diffuse(S, dense(seeds, part.size), checked, engine)
        _warn_unless_converged(solution, engine, checked)
        return _rankings(part, solution, checked, top, seeds)

    def _nearest(
        self, part: Part, blocks: Sequence[FloatArray], rows: Sequence[IntArray | None], query_k: int
    ) -> Neighbours:
        """Return the neighbours of all regions of queries: from the lists where they have them, else by a search."""
        width = min(query_k, part.size)
        regions = np.concatenate(blocks)
        own = np.concatenate(
            [
                np.full(len(block), -1, np.int32) if some is None else some
                for block, some in zip(blocks, rows, strict=True)
            ]
        )
        lists = self._lists.first(width - 1)
        if part.regions is not None or self.graph_.method != "exact" or lists.ids.shape[1] < width - 1:
            own[:] = -1
        listed = np.flatnonzero(own >= 0)
        named = lists.ids[own[listed]]
        listed = listed[((named >= 0) & (named < len(self.vectors_))).all(axis=1)]
        if not len(listed):
            return part.nearest(regions, query_k)
        ids, similarities = np.empty((len(regions), width), np.int32), np.empty((len(regions), width), np.float32)
        # A region of the collection is its own nearest.
        ids[listed, 0], similarities[listed, 0] = own[listed], np.einsum("ij,ij->i", regions[listed], regions[listed])
        ids[listed, 1:], similarities[listed, 1:] = lists.ids[own[listed]], lists.similarities[own[listed]]
        others = np.setdiff1d(np.arange(len(regions)), listed)
        if len(others):
            ids[others], similarities[others] = part.nearest(regions[others], query_k)
        return Neighbours(ids, similarities)

    def _append(
        self, queries: list[_Asked], part: Part, checked: _Checked, engine: str, top: int | None
    ) -> list[Ranking]:
        """Rank the conventional way: each query in turn becomes a part of the graph, and y is one on it."""
        rankings = []
        for query, _, _ in queries:
            A, nodes = append(
                self.S_, self.degrees_, self.neighbours_, self.vectors_, query, gamma=checked.gamma, k=checked.k
            )
            if part.regions is not None:
                rows = np.concatenate([part.regions, nodes])
                A = sp.csr_array(A[rows][:, rows])
            y = np.zeros((A.shape[0], 1), np.float32)
            y[part.size :] = 1
            solution = _diffuse(normalise(A)[0], y, checked, engine)
            _warn_unless_converged(solution, engine, checked)
            solution = solution._replace(scores=solution.scores[: part.size])
            rankings += _rankings(part, solution, checked, top, [None])
        return rankings

    # -- engines that work off line ----------------------------------------------------------------------------------

    def prepare(self, engine: str, *, size: int = 1000, progress: Progress | None = None) -> Self:
        """Do now what an engine needs off line; a search with it otherwise does so when it is first asked.

        It is held beside the graph, not saved, and made anew for another graph or, if it depends on it, another α.

        Parameters
        ----------
        engine : {"local", "offline", "spectral"}
            For "local", a division of the graph into parts: seconds for a million regions, and 8 bytes an edge kept.
            For "offline", the inverse's column of each region, solved on the regions nearest to it: a search for these
            and n small systems, 8 · n · `size` bytes kept. For "spectral", the largest eigenvectors of S: some hundred
            products of S with `size` columns, 4 · n · `size` bytes kept and four times as much meanwhile.
        size : int, default 1000
            The regions around each region, or the eigenvectors: at most n, with which nothing is left out. How many
            eigenvectors are enough grows with n; a thousand serve some thousands of regions. "local" has none.
        progress : callable, optional
            Called with what is done and what there is in all.
        """
        checked = self._effective()
        if choice(engine, ("local", *PREPARED), "engine") == "local":
            kernels.prepare_locally(self.S_)
            return self
        self._prepared[engine] = prepare(
            engine,
            self.S_,
            self.vectors_,
            self.neighbours_.ids[:, : checked.k],
            whole_number(size, "size"),
            alpha=checked.alpha,
            max_iter=checked.max_iter,
            tol=checked.tol,
            progress=progress,
        )
        return self

    def _ready(self, engine: str, alpha: float) -> Prepared:
        ready = self._prepared.get(engine)
        if ready is None:
            self.prepare(engine)
        elif not ready.serves(self.S_, alpha):
            self.prepare(engine, size=ready.size)
        return self._prepared[engine]

    def _part(self, places: Places | None) -> Part:
        return Part.of(self.vectors_, self.weights_, self.layout_, places)

    def _given_globals(self, given: Sequence[npt.ArrayLike], count: int) -> FloatArray:
        if len(given) != count:
            raise InvalidInput(f"global_vectors has {len(given)} entries for {count} queries; give one for each.")
        dimension = self.global_vectors_.shape[1]
        return np.concatenate(
            [unit_vectors(np.asarray(one)[None], "global_vector", dimension=dimension) for one in given]
        )

    def _given_against(self, given: Sequence[npt.ArrayLike | None] | None, count: int) -> list[FloatArray | None]:
        if given is None:
            return [None] * count
        if len(given) != count:
            raise InvalidInput(f"against has {len(given)} entries for {count} queries; give one for each, or None.")
        if self.seeding == "append":
            raise InvalidInput("seeding is 'append', which knows no regions against; leave out against.")
        dimension = self.vectors_.shape[1]
        return [
            None if one is None else unit_vectors(one, f"against[{i}]", dimension=dimension)
            for i, one in enumerate(given)
        ]

    def _given_rows(
        self, given: Sequence[npt.ArrayLike | None] | None, queries: Sequence[FloatArray]
    ) -> list[IntArray | None]:
        if given is None:
            return [None] * len(queries)
        if len(given) != len(queries):
            raise InvalidInput(f"rows has {len(given)} entries for {len(queries)} queries; give one for each, or None.")
        return [
            None if one is None else self._own_rows(integers(one, f"rows[{i}]"), query, f"rows[{i}]")
            for i, (one, query) in enumerate(zip(given, queries, strict=True))
        ]

    def _own_rows(self, rows: npt.NDArray[np.signedinteger[Any]], query: FloatArray, name: str) -> IntArray:
        n = len(self.vectors_)
        if rows.shape != (len(query),) or (len(rows) and (rows.min() < -1 or rows.max() >= n)):
            raise InvalidInput(
                f"{name} does not fit its query: give a row for each of {len(query)} regions, 0 to {n - 1} or -1."
            )
        known = rows >= 0
        if np.linalg.norm(query[known] - self.vectors_[rows[known]], axis=1).max(initial=0) > UNIT_TOLERANCE:
            raise InvalidInput(f"{name} leads to regions with other descriptors; give -1 where it is not the same.")
        return rows.astype(np.int32, copy=False)

    def _query_globals(self, queries: list[FloatArray]) -> FloatArray:
        if self.global_vectors_.shape[1] != self.vectors_.shape[1]:
            raise InvalidInput(
                f"global_vector is missing: the collection's have {self.global_vectors_.shape[1]} dimensions, not the "
                f"{self.vectors_.shape[1]} of regions; give the query's too."
            )
        return np.concatenate([aggregate_one(query) for query in queries])

    def _effective(self) -> _Checked:
        """Return the parameters in force: the graph's as they were at fit, the query's as they are now."""
        if not hasattr(self, "S_"):
            raise NotFitted("this Manifold has no collection yet; call fit(vectors, image_of) first, or Manifold.load.")
        self.check_ids()
        of_the_graph = {
            name: getattr(self._fitted, name) for name in ("k", "gamma", "pooling", "lam", "graph", "reserve")
        }
        return replace(self.check_params(), **of_the_graph)

    def check_ids(self) -> None:
        """Raise `Damaged` where an id of the graph leads nowhere; looked at once, if it came from a disk."""
        if not self._sound:
            check_ids(self.S_, self.layout_)
            self._sound = True

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted manifold to the folder `path`: plain arrays and a manifest with their checksums.

        What was saved there before is replaced in one step, or not at all.
        """
        fields, arrays = self.to_arrays()
        with store.writing(Path(path), "manifold") as writer:
            writer.write(FORMAT, fields, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Self:
        """Open a saved manifold; its arrays are memory-mapped, read only.

        Parameters
        ----------
        path
            The folder that `save` wrote.
        verify : bool, default True
            Read everything through once and compare checksums. Without, only sizes are compared.
        """
        stored = store.read(Path(path), "manifold", FORMAT, verify=verify)
        return cls.from_arrays(stored.fields, stored.arrays)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the parameters with what is known of the graph, and the fitted state as named arrays.

        Both are for a store of your own: the first is what JSON can say.
        """
        parameters = {**asdict(self._effective()), BUILT: self.graph_._asdict()}
        arrays = {
            "vectors": self.vectors_,
            "images": self.layout_.images,
            "starts": self.layout_.starts,
            "neighbour_ids": self._lists.ids,
            "neighbour_similarities": self._lists.similarities,
            "S_data": self.S_.data,
            "S_indices": self.S_.indices,
            "S_indptr": self.S_.indptr,
            "degrees": self.degrees_,
            "weights": self.weights_,
            "global_vectors": self.global_vectors_,
        }
        return parameters, arrays

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return a fitted manifold of what `to_arrays` returned, without copying or reading it through.

        Vectors may be of half precision. Shapes and types that do not fit together are `Damaged`; the graph's ids are
        compared with their range when they are first used. Where nothing is said of how the graph was built, its recall
        is unknown.
        """
        known = dict(parameters)
        record = known.pop(BUILT, None)
        manifold = cls(**known)
        checked = manifold._fitted = manifold.check_params()
        check_arrays(arrays, checked.k)
        n = len(arrays["vectors"])
        manifold._lists = Neighbours(arrays["neighbour_ids"], arrays["neighbour_similarities"])
        manifold._sound = False
        manifold.graph_ = Built.by(UNKNOWN) if record is None else Built.of(record)
        manifold.vectors_ = arrays["vectors"]
        manifold.layout_ = Layout(arrays["images"], arrays["starts"])
        manifold.neighbours_ = manifold._lists.first(min(checked.k, n - 1))
        manifold.S_ = sp.csr_array((arrays["S_data"], arrays["S_indices"], arrays["S_indptr"]), shape=(n, n))
        manifold.S_.has_sorted_indices = True
        manifold.degrees_ = arrays["degrees"]
        manifold.weights_ = arrays["weights"]
        manifold.global_vectors_ = arrays["global_vectors"]
        return manifold


def _diffuse(S: sp.csr_array, y: FloatArray, checked: _Checked, engine: str) -> Solution:
    return diffuse(S, y, alpha=checked.alpha, max_iter=checked.max_iter, tol=checked.tol, engine=engine)


def _rankings(
    part: Part, solution: Solution, checked: _Checked, top: int | None, seeds: Sequence[Seed | None]
) -> list[Ranking]:
    pooled = np.asarray(part.pool @ solution.scores)
    return [
        part.ranking(
            pooled[:, column],
            top,
            iterations=int(solution.iterations[column]),
            residual=float(solution.residuals[column]),
            tol=checked.tol,
            reached=None if solution.regions is None else int(solution.regions[column]),
            seed=one,
            scores=partial(solution.scores.__getitem__, (slice(None), column)),
        )
        for column, one in enumerate(seeds)
    ]


def _warn_unless_converged(solution: Solution, engine: str, checked: _Checked) -> None:
    """Warn of an iteration cut short; conjugate gradient is meant to be, and its ranking says how far it came."""
    worst = float(solution.residuals.max())
    if engine == "iteration" and worst > checked.tol:
        warnings.warn(
            f"engine='iteration' stopped after {checked.max_iter} steps at a relative residual of {worst:.1e}; raise "
            "max_iter (the paper needed 110 steps for the ranking to settle) or use engine='cg'.",
            ManifindWarning,
            stacklevel=5,
        )
