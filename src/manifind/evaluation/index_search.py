"""The search of an index, as its users get it, for the queries of an evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from manifind.evaluation.protocol import name_lookup
from manifind.index import Index, QueryRegions, QueryView, SearchConfig, SearchResult, Snapshot
from manifind.index.search.image_features import feature_kind
from manifind.index.search.pipeline import run_many, search_steps
from manifind.index.search.query import QueryFeatures, SearchQuery, extract_query_features
from manifind.index.search.verification import default_depth
from manifind.index.storage.catalogue import Catalogue
from manifind.io import content_hash, read_photo
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray


@dataclass(frozen=True)
class SearchRanking(Ranking):
    """A ranking with the number of its matches."""

    n_matches: int | None = None


class IndexSearch:
    """Search an index as `Index.search` does, for queries whose regions are extracted already.

    A query's photo that a protocol keeps out of the collection is kept out of the index as well.

    Parameters
    ----------
    method : {"regional", "global", "match", "plain"}
        As in `Index.search`; only "regional" has a cutoff.
    verify : int, optional
        How many of the first photos are verified; by default as in `Index.search`.
    expand : bool
        As in `Index.search`.
    """

    def __init__(self, *, method: str = "regional", verify: int | None = None, expand: bool = True) -> None:
        self.method = method
        self.verify = verify
        self.expand = expand

    def fit(self, index: Index, names: Sequence[str]) -> Self:
        """Take an index, and the names of the images in the order by which rankings number them.

        Photos of the index that are none of these images are left out, as if it had been built without them.
        """
        find = name_lookup(names)
        places = np.array([-1 if (place := find(record.key)) is None else place for record in index.catalogue.images])
        self._places = places[places >= 0].astype(np.int32)
        self._snapshot = index.state if (places >= 0).all() else _without(index, places < 0)
        self._config = index.config
        return self

    def search_many(self, queries: Sequence[tuple[Path, Box | None, FloatArray]]) -> list[SearchRanking]:
        """Rank the images for each query: the photo that it was cut out of, its box there, and its descriptors."""
        pipelines = [search_steps(self._snapshot, self._query(*query), self._config) for query in queries]
        results: dict[int, SearchResult] = dict(run_many(pipelines, self._config))
        return [
            SearchRanking(self._places[result.images], result.scores, n_matches=result.n_matches)
            for result in (results[place] for place in range(len(queries)))
        ]

    def _query(self, photo: Path, box: Box | None, vectors: FloatArray) -> SearchQuery:
        view = QueryView(vectors, np.zeros((len(vectors), 4), np.float32))  # the boxes of query regions are not used
        record = self._snapshot.catalogue.of_content(content_hash(photo))
        return SearchQuery(
            QueryRegions.of([view]),
            partial(_local_features, photo, box, feature_kind(self._snapshot), self._config),
            method=self.method,
            top=None,
            verify=default_depth(self._snapshot, self.method, self.verify, self._config.depth),
            expand=self.expand,
            own=frozenset(() if record is None else (record.number,)),
        )


def _local_features(photo: Path, box: Box | None, kind: str, config: SearchConfig) -> list[QueryFeatures]:
    return [extract_query_features(read_photo(photo).pixels, box, kind=kind, config=config)]


def _without(index: Index, left_out: npt.NDArray[np.bool_]) -> Snapshot:
    """Return the snapshot of an index without some of its photos; its whitening stays as it was learnt."""
    snapshot = Snapshot.read(index.path, device=index.device)
    kept = [record for record, out in zip(snapshot.catalogue.images, left_out, strict=True) if not out]
    counts = snapshot.manifold.layout_.counts
    rows = np.flatnonzero(np.repeat(~left_out, counts))
    image_of = np.repeat(np.arange(len(kept)), counts[~left_out])
    manifold = snapshot.manifold.update(snapshot.manifold.vectors_[rows], image_of, rows)
    catalogue = Catalogue.of([replace(record, number=number) for number, record in enumerate(kept)], ())
    local = None if snapshot.local is None else snapshot.local.some(np.flatnonzero(~left_out).tolist())
    return replace(
        snapshot, manifold=manifold, catalogue=catalogue, boxes=np.asarray(snapshot.boxes)[rows], local=local
    )
