"""`Manifold`: descriptors in, rankings out.

The estimator ties three packages together: `manifind.graph` off line, `manifind.diffusion` and `manifind.ranking` on
line.

Costs, for n regions of d dimensions with k neighbours each: ``fit`` takes n²d multiplications with the exact graph and
holds the vectors, the lists (8nk bytes) and S (8 bytes an edge; mutuality leaves half of the nk or fewer). A search is
one pass over the vectors and at most `max_iter` passes over S, however many regions the query has.

References
----------
Iscen, Tolias, Avrithis, Furon, Chum: Efficient Diffusion on Region Manifolds: Recovering Small Objects with Compact
CNN Representations. CVPR 2017.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.checks import check_choice, check_int, image_numbers, integers, sequence_of_queries, unit_vectors
from manifind.diffusion import SOLVERS, Seed, best_solver
from manifind.diffusion.solvers import AUTO as AUTO_SOLVER
from manifind.diffusion.solvers import CG
from manifind.errors import InvalidInputError, NotFittedError
from manifind.estimator import Estimator
from manifind.graph import AUTO, UNKNOWN, KnnReport, Neighbours, given_origin
from manifind.groups import Layout
from manifind.kernels import AUTO as AUTO_DEVICE
from manifind.kernels import KnnGraphBuilder
from manifind.kernels.costs import COSTS
from manifind.manifold import validation
from manifind.manifold.building import fit_state, update_state
from manifind.manifold.fitted import GRAPH_PARAMETERS, MACHINE_PARAMETERS, Fitted, Parameters
from manifind.manifold.paths import RegionPath, best_path
from manifind.manifold.searching import Request, Searcher, SearchOptions
from manifind.ranking import Ranking
from manifind.storage import store
from manifind.types import FloatArray, Progress, Vectors

FORMAT, OLDEST_FORMAT = 2, 1
NAMES_OF_FORMAT_1 = {"lam": "gmp_lambda", "graph": "knn"}
"""Parameters that were called otherwise in format 1."""
BUILT = "built"
"""The name under which a saved manifold says how its graph was built, beside the names of the parameters."""


class Manifold(Estimator):
    """Diffusion on the graph of a collection's region descriptors.

    Parameters
    ----------
    k : int, default 100
        Neighbours of each region in the graph; only mutual ones become edges. It matters most, and the best depends on
        the collection: too few cut the manifold apart, too many join what does not belong together. The paper takes 200
        for regions (50 for global descriptors, or after `compact`); the descriptors of a small network want less: on
        Oxford5k with MobileNetV2, 50 is best and 200 costs several points of mAP (``docs/oxford5k.md``). The
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
    solver : {"cg", "iteration", "local", "auto"}, default "cg"
        How scores are solved for. "cg" is conjugate gradient on the whole graph. "iteration" is the iteration of eq. 3.
        "local" is conjugate gradient with the query's neighbourhood in detail and the rest of the graph in parts: its
        cost hardly grows with the collection, and `Ranking.reached` says how many regions the neighbourhood has. "auto"
        is "cg", or "local" on more than 200,000 regions once `prepare` has divided the graph.
    max_iter : int, default 20
        Most iterations of the solver. 20 is enough for conjugate gradient; ``solver="iteration"`` wants some 110.
    tol : float, default 1e-6
        Relative residual at which the solver stops before `max_iter`.
    gmp_lambda : float, default 1.0
        Regularisation λ of generalised max pooling, positive.
    seeding : {"paper", "released"}, default "paper"
        How the query enters: eq. 8; or as in the authors' released program, which sums similarities before raising them
        to `gamma`.
    knn : {"auto", "exact", "nn-descent"}, default "auto"
        How neighbours are found: all pairs, or NN-Descent with exact re-scoring, which misses some. "auto" compares all
        pairs of up to 200,000 regions, and of more where that is expected to be the faster
        (`manifind.graph.choose_knn_method`); `graph_` says what it came to.
    reserve : int, default 0
        How many neighbours beyond `k` to keep in store, for `update`: without any, each region that goes leaves lists
        short of k that must be searched for anew.
    memory : int, default 2**28
        Bytes of scratch for finding neighbours, beyond the vectors and the lists.
    device : {"auto", "cpu", "cuda"}, default "auto"
        What does the work, from the next fit: the processor, or a GPU (``pip install 'manifind[torch]'``). "auto" is
        the GPU where one can be used, and a line of the log says what it came to. It is not saved: a manifold that
        one device built is loaded and searched on the other. A GPU's answers are the processor's, up to rounding.

    Attributes
    ----------
    vectors_ : (n, d) float32
        The regions' descriptors. Your array, not a copy, where it is C-contiguous float32 of unit rows. Float16 in a
        manifold that `from_arrays` made of such.
    layout_ : Layout
        The images and their regions.
    neighbours_ : Neighbours
        Ids (n, k) int32 and similarities (n, k) float32 of each region's neighbours, best first.
    graph_ : KnnReport
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

    def __init__(
        self,
        *,
        k: int = 100,
        query_k: int = 50,
        alpha: float = 0.99,
        gamma: float = 3.0,
        pooling: str = "gmp",
        solver: str = CG,
        max_iter: int = 20,
        tol: float = 1e-6,
        gmp_lambda: float = 1.0,
        seeding: str = "paper",
        knn: str = AUTO,
        reserve: int = 0,
        memory: int = 2**28,
        device: str = AUTO_DEVICE,
    ) -> None:
        self.k = k
        self.query_k = query_k
        self.alpha = alpha
        self.gamma = gamma
        self.pooling = pooling
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.gmp_lambda = gmp_lambda
        self.seeding = seeding
        self.knn = knn
        self.reserve = reserve
        self.memory = memory
        self.device = device
        self._state: Fitted | None = None

    # -- parameters ---------------------------------------------------------------------------------------------------

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters: query_k, alpha, solver, max_iter, tol and seeding hold from the next search.

        The others made the graph and hold from the next fit.
        """
        return super().set_params(**parameters)

    def __repr__(self) -> str:
        given = super().__repr__()
        return given if self._state is None else " ".join([given, *self._state.words()])

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a collection, for scikit-learn's ``check_is_fitted``."""
        return self._state is not None

    def check_params(self) -> Parameters:
        """Return the parameters in the form that the other packages take, or raise `InvalidInputError`."""
        return Parameters.of(self.get_params())

    # -- off line -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        neighbours: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        global_vectors: npt.ArrayLike | None = None,
        builder: KnnGraphBuilder | None = None,
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
            Neighbour lists that were computed before, best first, at least k long, in place of searching for them.
        global_vectors : (images, g) floating point, optional
            A global descriptor for each image, in the order of their numbers, for choosing a shortlist; by default the
            normalised sum of the image's regions.
        builder : KnnGraphBuilder, optional
            Builds the graph of these vectors: on other machines, say. By default, the device does.
        progress : callable, optional
            Called with the regions done and the regions in all while neighbours are searched exactly.
        """
        checked = self.check_params()
        X = unit_vectors(vectors, "vectors")
        layout = Layout.of(image_numbers(image_of, len(X)))
        self._state = fit_state(
            checked, X, layout, neighbours=neighbours, global_vectors=global_vectors, builder=builder, progress=progress
        )
        return self

    def update(
        self,
        vectors: Vectors,
        image_of: npt.ArrayLike,
        origin: npt.ArrayLike,
        *,
        global_vectors: npt.ArrayLike | None = None,
        builder: KnnGraphBuilder | None = None,
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
        builder : KnnGraphBuilder, optional
            As in `fit`.
        progress : callable, optional
            Called with the regions done and the regions in all.
        """
        checked, before = self._effective(), self._fitted
        layout = Layout.of(image_numbers(image_of, len(vectors)))
        were = given_origin(origin, vectors, before.vectors)
        if (were < 0).sum() > COSTS.max_new_share * len(were):
            return self.fit(vectors, image_of, global_vectors=global_vectors, builder=builder, progress=progress)
        self._state = update_state(
            before, checked, vectors, layout, were, global_vectors=global_vectors, builder=builder, progress=progress
        )
        return self

    def add(
        self,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        global_vectors: npt.ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Add images to the collection, as `update` does.

        Parameters
        ----------
        vectors : (m, d) floating point
            The descriptors of their regions.
        image_of : (m,) integers, ascending, optional
            The number of the image that each region belongs to, none of which the collection has. By default, each
            region is an image, and numbers go on from the largest.
        global_vectors : (images, g) floating point, optional
            The global descriptor of each new image; needed where `fit` had them.
        progress : callable, optional
            As in `update`.
        """
        fitted = self._fitted
        images, before = fitted.layout.images, fitted.vectors
        new = unit_vectors(vectors, "vectors", dimension=before.shape[1])
        if image_of is None:
            image_of = int(images[-1]) + 1 + np.arange(len(new))
        numbers = image_numbers(image_of, len(new))
        known = np.intersect1d(numbers, images)
        if len(known):
            raise InvalidInputError(
                f"image_of names {len(known)} images that the collection has, {known[0]} first; remove them first, or "
                "give other numbers.",
                code="known-image",
            )
        joined = np.concatenate([fitted.layout.image_of, numbers])
        order = np.argsort(joined, kind="stable")
        globals_ = None
        if global_vectors is not None:
            new_globals = unit_vectors(global_vectors, "global_vectors", dimension=fitted.global_vectors.shape[1])
            by_image = np.argsort(np.concatenate([images, np.unique(numbers)]), kind="stable")
            globals_ = np.concatenate([fitted.global_vectors, new_globals])[by_image]
        origin = np.where(order < len(before), order, -1)
        all_vectors = np.concatenate([before, new.astype(before.dtype, copy=False)])[order]
        return self.update(all_vectors, joined[order], origin, global_vectors=globals_, progress=progress)

    def remove(self, images: npt.ArrayLike, *, progress: Progress | None = None) -> Self:
        """Remove images, by their numbers, from the collection, as `update` does."""
        fitted = self._fitted
        gone = validation.image_places(images, fitted.layout.images, "images")
        kept = np.delete(np.arange(len(fitted.layout.images)), gone)
        if not len(kept):
            raise InvalidInputError("images names the whole collection; leave at least one image.", code="no-images")
        rows = fitted.layout.regions_of(kept)
        has_own_globals = fitted.global_vectors.shape[1] != fitted.vectors.shape[1]
        return self.update(
            fitted.vectors[rows],
            fitted.layout.image_of[rows],
            rows,
            global_vectors=fitted.global_vectors[kept] if has_own_globals else None,
            progress=progress,
        )

    # -- fitted state -------------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Fitted:
        if self._state is None:
            raise NotFittedError(
                "this Manifold has no collection yet; call fit(vectors, image_of) first, or Manifold.load."
            )
        return self._state

    def _attribute(self, name: str) -> Any:
        """Return a part of the fitted state.

        Before `fit` there is no such attribute, as in the estimators of scikit-learn.
        """
        if self._state is None:
            raise AttributeError(f"this Manifold has no {name}_ yet; call fit first.")
        return getattr(self._state, name)

    @property
    def vectors_(self) -> Vectors:
        """The regions' descriptors, (n, d)."""
        vectors: Vectors = self._attribute("vectors")
        return vectors

    @property
    def n_features_in_(self) -> int:
        """The dimensions of a descriptor, d."""
        return int(self.vectors_.shape[1])

    @property
    def layout_(self) -> Layout:
        """The images and their regions."""
        layout: Layout = self._attribute("layout")
        return layout

    @property
    def neighbours_(self) -> Neighbours:
        """The neighbours of each region."""
        neighbours: Neighbours = self._attribute("neighbours")
        return neighbours

    @property
    def lists_(self) -> Neighbours:
        """The neighbours of each region with those kept in reserve."""
        lists: Neighbours = self._attribute("lists")
        return lists

    @property
    def graph_(self) -> KnnReport:
        """How the neighbours were found."""
        report: KnnReport = self._attribute("knn_report")
        return report

    @property
    def S_(self) -> sp.csr_array:  # noqa: N802 (the paper's name)
        """The normalised affinity."""
        return self._attribute("S")

    @property
    def degrees_(self) -> FloatArray:
        """Row sums of the affinity before normalisation."""
        degrees: FloatArray = self._attribute("degrees")
        return degrees

    @property
    def weights_(self) -> FloatArray:
        """Pooling weight of each region."""
        weights: FloatArray = self._attribute("weights")
        return weights

    @property
    def global_vectors_(self) -> FloatArray:
        """The global descriptors that choose a shortlist."""
        globals_: FloatArray = self._attribute("global_vectors")
        return globals_

    # -- on line ------------------------------------------------------------------------------------------------------

    def search(
        self,
        query_vectors: npt.ArrayLike,
        top: int | None = None,
        *,
        solver: str | None = None,
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
        solver : {"cg", "iteration", "local", "auto"}, optional
            In place of the manifold's.
        shortlist : int or array of image numbers, optional
            Diffuse only on the regions of these images (Sec. 4.4): the given ones, or as many as given that are the
            most similar by global descriptor. The others are not in the ranking.
        global_vector : (g,) floating point, optional
            The query's global descriptor, for the shortlist; by default the normalised sum of its regions.
        """
        fitted = self._fitted
        Q = validation.queries(fitted, [query_vectors], ["query_vectors"])
        if isinstance(shortlist, list | tuple):
            shortlist = integers(shortlist, "shortlist")
        places = validation.places(fitted, shortlist, Q, None if global_vector is None else [global_vector])
        (ranking,) = self._answer([Request(Q[0])], places, top, solver, keep_regions=True)
        return ranking

    def search_many(
        self,
        queries: Sequence[npt.ArrayLike],
        top: int | None = None,
        *,
        solver: str | None = None,
        shortlist: int | npt.ArrayLike | Sequence[npt.ArrayLike] | None = None,
        global_vectors: Sequence[npt.ArrayLike] | None = None,
        negatives: Sequence[npt.ArrayLike | None] | None = None,
    ) -> list[Ranking]:
        """Rank the images for each of many queries, as `search` does, in one pass over the matrix for all.

        Parameters
        ----------
        queries : list of (m, d) arrays
            The regions of each query.
        top, solver
            As in `search`, for all queries alike.
        shortlist : int, array of image numbers, or list of such arrays, optional
            As in `search`, for all queries alike; or a list with an array for each query.
        global_vectors : list of (g,) arrays, optional
            The global descriptor of each query.
        negatives : list of (m, d) arrays or None, optional
            For each query the regions of negatives, if any. Their seed is subtracted from the query's
            (`manifind.diffusion.subtract_negatives`), and scores may then be negative.
        """
        fitted, listed = self._fitted, sequence_of_queries(queries, "queries")
        Q = validation.queries(fitted, listed, [f"queries[{i}]" for i in range(len(listed))])
        if not Q:
            return []
        requests = list(map(Request, Q, validation.negatives(fitted, negatives, len(Q))))
        return self._answer(requests, validation.places(fitted, shortlist, Q, global_vectors), top, solver)

    def _answer(
        self,
        requests: Sequence[Request],
        places: Any,
        top: int | None,
        solver: str | None = None,
        *,
        keep_regions: bool = False,
    ) -> list[Ranking]:
        checked, fitted = self._effective(), self._fitted
        solver = checked.solver if solver is None else check_choice(solver, (AUTO_SOLVER, *SOLVERS), "solver")
        if top is not None:
            check_int(top, "top")
        if solver == AUTO_SOLVER:
            divided = places is None and fitted.has("local")
            solver = best_solver(len(fitted.vectors), divided=divided)
        return Searcher(fitted, SearchOptions(checked, SOLVERS[solver], top, keep_regions)).answer(requests, places)

    def seeds(self, queries: Sequence[npt.ArrayLike]) -> list[Seed]:
        """Return what each query puts on the graph, y: the largest `query_k` entries of eq. 8."""
        fitted, listed = self._fitted, sequence_of_queries(queries, "queries")
        Q = validation.queries(fitted, listed, [f"queries[{i}]" for i in range(len(listed))])
        options = SearchOptions(self._effective(), SOLVERS[CG])
        return Searcher(fitted, options).seeds([Request(regions) for regions in Q])

    def explain(self, ranking: Ranking, image: int, *, max_regions: int = 20_000) -> RegionPath | None:
        """Return the path of regions along which most of a query's score could flow to an image.

        ``image_of[path.regions]`` are the images on the way. Regions of negatives begin no path.

        Parameters
        ----------
        ranking : Ranking
            What `search` returned for the query.
        image : int
            The image's number.
        max_regions : int, default 20,000
            Look for a path among so many of the best regions by score.

        Returns
        -------
        RegionPath or None
            `regions` from one that the query seeded to one of the image, and `flows`, α s_ij of each link. None where
            no path leads to the image.
        """
        fitted = self._fitted
        if ranking.seed is None:
            raise InvalidInputError("the ranking has no seed; give one that Manifold.search returned.", code="no-seed")
        places = np.flatnonzero(fitted.layout.images == image)
        if not len(places):
            raise InvalidInputError(
                f"image {image} is not in the collection; give a number that occurs in image_of.", code="unknown-image"
            )
        targets = fitted.layout.regions_of(places)
        seed = ranking.seed.positive()
        return best_path(self.S_, self._effective().alpha, seed, ranking.regions, targets, max_regions)

    # -- solvers that work off line ----------------------------------------------------------------------------------

    def prepare(self, solver: str) -> Self:
        """Do now what a solver needs off line; a search with it otherwise does so when it is first asked.

        The result is held beside the graph, made anew for another graph, and saved with the manifold.

        Parameters
        ----------
        solver : {"local"}
            A division of the graph into parts: seconds for a million regions, and 8 bytes an edge kept.
        """
        checked = check_choice(solver, [name for name, entry in SOLVERS.items() if entry.prepare is not None], "solver")
        self._fitted.check()
        self._fitted.prepare(SOLVERS[checked])
        return self

    def is_ready(self, solver: str) -> bool:
        """Whether a search by this solver can begin at once.

        It can where the solver prepares nothing, where `prepare` was called, or where what it needs was loaded from a
        file.
        """
        check_choice(solver, SOLVERS, "solver")
        return SOLVERS[solver].prepare is None or self._fitted.has(solver)

    def _effective(self) -> Parameters:
        """Return the parameters in force: the graph's as they were at `fit`, the query's as they are now."""
        fitted = self._fitted
        fitted.check()
        return replace(self.check_params(), **{name: getattr(fitted.parameters, name) for name in GRAPH_PARAMETERS})

    def check_ids(self) -> None:
        """Raise `DamagedError` where an id of the graph leads nowhere; looked at once, if it came from a disk."""
        self._fitted.check()

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted manifold to the folder `path`: plain arrays and a manifest with their checksums.

        What was saved there before is replaced in one step, or not at all.
        """
        fields, arrays = self.to_arrays()
        with store.writing(Path(path), "manifold") as writer:
            writer.write(FORMAT, fields, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True, device: str = AUTO_DEVICE) -> Self:
        """Open a saved manifold; its arrays are memory-mapped, read only.

        Parameters
        ----------
        path
            The folder that `save` wrote.
        verify : bool, default True
            Read everything through once and compare checksums. Without, only sizes are compared.
        device : {"auto", "cpu", "cuda"}, default "auto"
            What searches it, whatever built it.
        """
        stored = store.read(Path(path), "manifold", FORMAT, oldest=OLDEST_FORMAT, verify=verify)
        parameters = {NAMES_OF_FORMAT_1.get(name, name): value for name, value in stored.fields.items()}
        return cls.from_arrays({**parameters, "device": device}, stored.arrays)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the parameters with what is known of the graph, and the fitted state as named arrays.

        Both are for a store of your own: the first is what JSON can say.
        """
        fitted = self._fitted
        saved = {name: value for name, value in asdict(self._effective()).items() if name not in MACHINE_PARAMETERS}
        parameters = {**saved, BUILT: fitted.knn_report._asdict()}
        return parameters, fitted.to_arrays()

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return a fitted manifold of what `to_arrays` returned, without copying or reading it through.

        Vectors may be of half precision. Shapes and types that do not fit together raise `DamagedError`; ids are
        compared with their range when they are first used. Where nothing is said of how the graph was built, its recall
        is unknown. The parameters may name a `device`, which `to_arrays` does not.
        """
        manifold, record = cls._of_saved(parameters)
        report = KnnReport.by(UNKNOWN) if record is None else KnnReport.of(record)
        manifold._state = Fitted.from_arrays(manifold.check_params(), report, arrays)
        return manifold

    @classmethod
    def _of_saved(cls, parameters: Mapping[str, Any]) -> tuple[Self, Any]:
        """Return a manifold without a collection, and what the parameters say of how the graph was built."""
        if not isinstance(parameters, Mapping):
            raise InvalidInputError(f"parameters is a {type(parameters).__name__}; give what `to_arrays` returned.")
        known = dict(parameters)
        record = known.pop(BUILT, None)
        return cls().set_params(**{str(name): value for name, value in known.items()}), record

    @classmethod
    def from_affinity(
        cls,
        parameters: Mapping[str, Any],
        vectors: Vectors,
        layout: Layout,
        A: sp.csr_array,
        weights: FloatArray,
        global_vectors: FloatArray | None = None,
    ) -> Self:
        """Return a fitted manifold of a part of a collection whose affinity was found elsewhere.

        The affinity is normalised anew, as `search` does for a shortlist; there are no neighbour lists. It serves a
        few searches: nothing is prepared that pays only for many.

        Parameters
        ----------
        parameters
            As for `from_arrays`.
        vectors, layout, weights
            The regions' unit descriptors (n, d), which images they are of, and their pooling weights.
        A : (n, n) CSR, symmetric
            The affinity of the regions; columns ascend in each row.
        global_vectors : (images, g), optional
            The images' global descriptors, where they are needed.
        """
        manifold, _ = cls._of_saved(parameters)
        manifold._state = Fitted.of_affinity(
            manifold.check_params(),
            vectors,
            layout,
            A,
            weights,
            global_vectors,
        )
        return manifold


def answer(
    manifold: Manifold, requests: Sequence[Request], top: int | None = None, *, shortlist: Any = None
) -> list[Ranking]:
    """Rank the images for requests that say more of a query than its descriptors, as `Manifold.search_many` does.

    The rankings hold the scores of all regions, n a request.
    """
    places = validation.places(manifold._fitted, shortlist, [request.regions for request in requests], None)
    return manifold._answer(requests, places, top, keep_regions=True)
