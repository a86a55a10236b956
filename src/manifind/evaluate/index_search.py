"""What a user of an index gets: its own search, and the line under the photos that it believes in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from manifind.evaluate.protocol import name_finder
from manifind.index import Index
from manifind.ranking import Ranking
from manifind.types import Box


@dataclass(frozen=True)
class AnsweredRanking(Ranking):
    """A ranking with the number of images that stand above its line."""

    likely: int | None = None


class IndexSearch:
    """Search an index as `Index.search` does, describing each query anew.

    Parameters
    ----------
    method : {"regional", "global", "match", "plain"}
        As in `Index.search`; only "regional" draws a line.
    """

    def __init__(self, *, method: str = "regional") -> None:
        self.method = method

    def fit(self, index: Index, names: Sequence[str]) -> Self:
        """Take an index, and the names of the images in the order that rankings are to number them by."""
        self._index = index
        find = name_finder(names)
        places = [find(record.key) for record in index.catalogue.images]
        self._places = np.array([-1 if place is None else place for place in places], np.int32)
        return self

    def search_many(self, queries: Sequence[tuple[Path, Box | None]]) -> list[AnsweredRanking]:
        """Rank the images for each photo and box; photos of the index that are none of the images are passed over."""
        found = []
        for photo, box in queries:
            answer = self._index.search(photo, box, top=None, method=self.method)
            ranking = answer.search.ranking
            places = self._places[ranking.images]
            likely = None if answer.likely is None else int((places[: answer.likely] >= 0).sum())
            found.append(AnsweredRanking(places[places >= 0], ranking.scores[places >= 0], likely=likely))
        return found
