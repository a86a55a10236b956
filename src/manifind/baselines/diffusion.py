"""Diffusion behind the contract of the baselines: on whole images, on all regions, on a few means an image."""

from typing import Any

from manifind.baselines.scorer import ImageScorer
from manifind.checks import whole_number
from manifind.compact import compact
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import FloatArray, Progress


class RegionalDiffusion(ImageScorer):
    """Diffusion on all regions: the paper's method, with its parameters.

    Parameters
    ----------
    k, query_k : int, default 200
        Neighbours of each region of the collection, and of the query: Sec. 5.2.
    engine : str, default "cg"
        As in `Manifold.search`.
    parameters
        Others of `Manifold`.
    """

    manifold_: Manifold

    def __init__(self, *, k: int = 200, query_k: int = 200, engine: str = "cg", **parameters: Any) -> None:
        self.k = k
        self.query_k = query_k
        self.engine = engine
        self.parameters = parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given."""
        named = super().get_params(deep)
        others: dict[str, Any] = named.pop("parameters")
        return named | others

    def _keep(self, vectors: FloatArray, layout: Layout, progress: Progress | None) -> None:
        image_of = layout.images.repeat(layout.counts)
        manifold = Manifold(k=self.k, query_k=self.query_k, **self.parameters)
        self.manifold_ = manifold.fit(vectors, image_of, progress=progress)

    def _rank(self, queries: list[FloatArray], top: int | None) -> list[Ranking]:
        return self.manifold_.search_many(queries, top, engine=self.engine)

    def _scores(self, query: FloatArray) -> FloatArray:
        ranking = self.manifold_.search(query, engine=self.engine)
        return ranking.scores[ranking.images.argsort()]


class GlobalDiffusion(RegionalDiffusion):
    """Diffusion on one global descriptor an image, the normalised sum of its regions: Sec. 5.2 for k and query_k."""

    def __init__(self, *, k: int = 50, query_k: int = 10, engine: str = "cg", **parameters: Any) -> None:
        super().__init__(k=k, query_k=query_k, engine=engine, **parameters)

    def _keep(self, vectors: FloatArray, layout: Layout, progress: Progress | None) -> None:
        whole = Layout.of(layout.images)
        super()._keep(aggregate(vectors, layout), whole, progress)

    def _rank(self, queries: list[FloatArray], top: int | None) -> list[Ranking]:
        return super()._rank([aggregate_one(query) for query in queries], top)


class CompactDiffusion(RegionalDiffusion):
    """Diffusion on the few means of each image's Gaussian mixture (Sec. 4.4); the query keeps all its regions.

    Parameters
    ----------
    regions_per_image : int, default 5
        Means of each image, the number that the paper's table has.
    k, query_k : int, default 50
        Fewer than for all regions, "as there are now less positive neighbors" (Sec. 5.2).
    """

    def __init__(
        self, *, regions_per_image: int = 5, k: int = 50, query_k: int = 50, engine: str = "cg", **parameters: Any
    ) -> None:
        super().__init__(k=k, query_k=query_k, engine=engine, **parameters)
        self.regions_per_image = regions_per_image

    def _keep(self, vectors: FloatArray, layout: Layout, progress: Progress | None) -> None:
        count = whole_number(self.regions_per_image, "regions_per_image")
        few = compact(vectors, layout.images.repeat(layout.counts), regions_per_image=count)
        super()._keep(few.vectors, Layout.of(few.image_of), progress)
