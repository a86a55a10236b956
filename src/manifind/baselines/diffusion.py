"""Diffusion behind the contract of the baselines: on whole images, on all regions, on a few means an image."""

import time
from typing import Any

from manifind.baselines.scorer import Asked, Collection, ImageScorer
from manifind.checks import whole_number
from manifind.compact import compact
from manifind.diffusion import ENGINES
from manifind.layout import Layout
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import FloatArray

ON_LINE = {"query_k", "alpha", "max_iter", "tol", "seeding", "engine", "shortlist"}
"""The parameters of a search. All others are parameters of the graph."""


def _off_line(engine: Any) -> bool:
    return engine in ENGINES and ENGINES[engine].prepare is not None


class RegionalDiffusion(ImageScorer):
    """Diffusion on all regions: the paper's method, with its parameters.

    Parameters
    ----------
    k, query_k : int, default 200
        Neighbours of each region of the collection, and of the query: Sec. 5.2.
    engine : str, default "cg"
        As in `Manifold.search`.
    size : int, default 1000
        What an engine that works off line keeps, as in `Manifold.prepare`.
    shortlist : int, optional
        Diffuse only on so many images, the most similar by global descriptor: Sec. 4.4.
    parameters
        Others of `Manifold`.
    """

    manifold_: Manifold

    def __init__(
        self,
        *,
        k: int = 200,
        query_k: int = 200,
        engine: str = "cg",
        size: int = 1000,
        shortlist: int | None = None,
        **parameters: Any,
    ) -> None:
        self.k = k
        self.query_k = query_k
        self.engine = engine
        self.size = size
        self.shortlist = shortlist
        self.parameters = parameters
        self._seconds: dict[str, float] = {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given."""
        named = super().get_params(deep)
        del named["parameters"]
        own = {name: getattr(self, name) for name in ("k", "query_k", "engine", "size", "shortlist")}
        return {**named, **own, **self.parameters}

    def serves(self, parameters: dict[str, Any]) -> bool:
        """Say whether what was fitted can be used with these parameters, and if so, use them from now on."""
        own = self.get_params()
        changed = {name for name in {*own, *parameters} if own.get(name) != parameters.get(name)}
        if not changed <= ON_LINE or _off_line(parameters.get("engine")):
            return not changed
        for name in changed:
            if name in ("engine", "shortlist"):
                setattr(self, name, parameters[name])
                continue
            self.manifold_.set_params(**{name: parameters[name]})
            if name == "query_k":
                self.query_k = parameters[name]
            else:
                self.parameters = {**self.parameters, name: parameters[name]}
        return True

    def costs(self) -> dict[str, float]:
        """Return the seconds of mixtures, graph and preparation, the edges a region, and the bytes of what is kept."""
        manifold = self.manifold_
        S, lists = manifold.S_, manifold.neighbours_
        return {
            **{f"{stage}_seconds": seconds for stage, seconds in self._seconds.items()},
            "regions": float(S.shape[0]),
            "edges_a_region": S.nnz / S.shape[0],
            "neighbours_bytes": float(lists.ids.nbytes + lists.similarities.nbytes),
            "affinity_bytes": float(S.data.nbytes + S.indices.nbytes + S.indptr.nbytes),
            "descriptors_bytes": float(manifold.vectors_.nbytes),
        }

    def _keep(self, collection: Collection) -> None:
        vectors, layout = collection.vectors, collection.layout
        if self.shortlist is not None:
            whole_number(self.shortlist, "shortlist")
        manifold = Manifold(k=self.k, query_k=self.query_k, **self.parameters)
        manifold.check_params()
        lists = None
        if collection.find is not None and manifold.graph != "nn-descent" and len(vectors) > 1:
            lists = collection.find(vectors, min(self.k, len(vectors) - 1), collection.progress)
        began = time.perf_counter()
        self.manifold_ = manifold.fit(
            vectors,
            layout.image_of,
            neighbours=lists,
            global_vectors=collection.given_whole,
            progress=collection.progress,
        )
        self._seconds["affinity" if lists is not None else "graph"] = time.perf_counter() - began
        if _off_line(self.engine):
            began = time.perf_counter()
            self.manifold_.prepare(self.engine, size=self.size, progress=collection.progress)
            self._seconds["prepare"] = time.perf_counter() - began

    def _rank(self, asked: list[Asked], top: int | None) -> list[Ranking]:
        if not asked:
            return []
        return self.manifold_.search_many(
            [one.regions for one in asked],
            top,
            engine=self.engine,
            shortlist=self.shortlist,
            global_vectors=None if asked[0].given_whole is None else [one.whole for one in asked],
        )

    def _scores(self, asked: Asked) -> FloatArray:
        (ranking,) = self._rank([asked], None)
        return ranking.scores[ranking.images.argsort()]


class GlobalDiffusion(RegionalDiffusion):
    """Diffusion on one global descriptor an image: Sec. 5.2 for k and query_k."""

    def __init__(self, *, k: int = 50, query_k: int = 10, **parameters: Any) -> None:
        super().__init__(k=k, query_k=query_k, **parameters)

    def _keep(self, collection: Collection) -> None:
        whole, layout = collection.whole, Layout.of(collection.layout.images)
        super()._keep(Collection(whole, layout, None, collection.find, collection.progress))

    def _rank(self, asked: list[Asked], top: int | None) -> list[Ranking]:
        return super()._rank([Asked(one.whole[None]) for one in asked], top)


class CompactDiffusion(RegionalDiffusion):
    """Diffusion on the few means of each image's Gaussian mixture (Sec. 4.4); the query keeps all its regions.

    Parameters
    ----------
    regions_per_image : int, default 5
        Means of each image, the number that the paper's table has.
    k, query_k : int, default 50
        Fewer than for all regions, "as there are now less positive neighbors" (Sec. 5.2).
    parameters
        Others of `RegionalDiffusion`.
    """

    def __init__(self, *, regions_per_image: int = 5, k: int = 50, query_k: int = 50, **parameters: Any) -> None:
        super().__init__(k=k, query_k=query_k, **parameters)
        self.regions_per_image = regions_per_image

    def _keep(self, collection: Collection) -> None:
        count, layout = whole_number(self.regions_per_image, "regions_per_image"), collection.layout
        began = time.perf_counter()
        few = compact(collection.vectors, layout.image_of, regions_per_image=count)
        self._seconds["mixtures"] = time.perf_counter() - began
        means = Collection(few.vectors, Layout.of(few.image_of), collection.whole, collection.find, collection.progress)
        super()._keep(means)
