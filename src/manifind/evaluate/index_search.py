"""What a user of an index gets: its own search, and the line under the photos that it believes in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from manifind.checks import choice
from manifind.describe import content_hash, read_photo
from manifind.evaluate.protocol import name_finder
from manifind.index import Answer, Generation, Index, QueryRegions, View, rank
from manifind.index.asking.closer import closer_answer
from manifind.index.asking.features import kind_of, sought_in
from manifind.index.asking.refine import BY_DEFAULT, NONE, REFINEMENTS, refined_answer
from manifind.index.asking.verify import first_photos, verified_answer
from manifind.index.state.catalogue import Catalogue
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray


@dataclass(frozen=True)
class AnsweredRanking(Ranking):
    """A ranking with the number of images that stand above its line."""

    likely: int | None = None


class IndexSearch:
    """Search an index as `Index.search` does, for queries that are described already.

    A query's photo that a protocol keeps out of the collection is kept out of the index as well.

    Parameters
    ----------
    method : {"regional", "global", "match", "plain"}
        As in `Index.search`; only "regional" draws a line.
    verify : int, optional
        How many of the first photos geometry looks at; by default as many as `Index.search` lets it.
    refine : {"verified", "none"}
        As in `Index.search`.
    """

    def __init__(self, *, method: str = "regional", verify: int | None = None, refine: str = BY_DEFAULT) -> None:
        self.method = method
        self.verify = verify
        self.refine = choice(refine, REFINEMENTS, "refine")

    def fit(self, index: Index, names: Sequence[str]) -> Self:
        """Take an index, and the names of the images in the order that rankings are to number them by.

        Photos of the index that are none of these images are left out of it, as if it had been made without them.
        """
        find = name_finder(names)
        places = np.array([-1 if (place := find(one.key)) is None else place for one in index.catalogue.images])
        self._places = places[places >= 0].astype(np.int32)
        self._state = index.state if (places >= 0).all() else _without(index, places < 0)
        return self

    def search_many(self, queries: Sequence[tuple[Path, Box | None, FloatArray]]) -> list[AnsweredRanking]:
        """Rank the images for each query: the photo that it was cut out of, its box there, and its descriptors."""
        return [self._ranked(*query) for query in queries]

    def _ranked(self, photo: Path, box: Box | None, vectors: FloatArray) -> AnsweredRanking:
        seen = View(vectors, np.zeros((len(vectors), 4), np.float32))  # nobody asks where the query's regions are
        (search,) = rank(self._state, [QueryRegions.of([seen])], None, self.method)
        itself = self._state.catalogue.of_content(content_hash(photo))
        answer = Answer(search, own=() if itself is None else [itself.number])
        first = first_photos(self._state, self.method, self.verify)
        if first:
            answer = self._verified(answer, photo, box, first)
        return AnsweredRanking(self._places[answer.images], answer.scores, likely=answer.likely)

    def _verified(self, answer: Answer, photo: Path, box: Box | None, first: int) -> Answer:
        sought = [sought_in(read_photo(photo).pixels, box, kind=kind_of(self._state))]
        looked_at = verified_answer(answer, sought, first=first)
        return (
            closer_answer(looked_at, sought) if self.refine == NONE else refined_answer(looked_at, sought, first=first)
        )


def _without(index: Index, left_out: npt.NDArray[np.bool_]) -> Generation:
    """Return the state of an index as it would be without some of its photos; its whitening stays as it was learnt."""
    now = Generation.read(index.path, device=index.device)
    kept = [one for one, out in zip(now.catalogue.images, left_out, strict=True) if not out]
    counts = now.manifold.layout_.counts
    rows = np.flatnonzero(np.repeat(~left_out, counts))
    image_of = np.repeat(np.arange(len(kept)), counts[~left_out])
    manifold = now.manifold.update(now.manifold.vectors_[rows], image_of, rows)
    catalogue = Catalogue.of([replace(one, number=number) for number, one in enumerate(kept)], ())
    local = None if now.local is None else now.local.some(np.flatnonzero(~left_out).tolist())
    return replace(now, manifold=manifold, catalogue=catalogue, boxes=np.asarray(now.boxes)[rows], local=local)
