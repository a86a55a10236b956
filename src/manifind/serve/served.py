"""The index that is served: its newest state, as long as the files of it are whole."""

import asyncio
import logging
from collections.abc import Hashable
from pathlib import PurePosixPath
from typing import NoReturn

import numpy as np

from manifind.errors import ManifindError
from manifind.index import Index
from manifind.index.asking.evidence import chance_similarity
from manifind.index.state.generation import State
from manifind.serve.metrics import Metrics
from manifind.serve.problems import Problem
from manifind.serve.watch import watched

log = logging.getLogger("manifind.serve")


class Served:
    """An index, and what has become of it on disk.

    A new generation is moved to, searches under way keep theirs. So is another index that was put in its place. Where a
    file was cut or overwritten in place, nothing is read from memory that maps it: the service says so, and opens the
    index again, every checksum compared, as soon as it is whole.
    """

    def __init__(self, index: Index, metrics: Metrics) -> None:
        self.index = index
        self.name = PurePosixPath(index.where).name
        """What the index is called."""
        self._metrics = metrics
        self._files = watched(index)
        self.lasting = True
        """Whether the index stays where it is: sets can be kept in it."""
        self._tried: Hashable = None
        """What was there when reloading failed: it is not tried again before something changes."""
        self._edited: str | None = None

    @property
    def now(self) -> State:
        """The state of the index that new requests are answered from."""
        return self.index.state

    def check(self) -> None:
        """Raise `Problem` where the files of the index are not those that were opened."""
        self._edited = self._edited or self._files.edited()
        if self._edited is not None:
            self._refuse(self._edited)

    def _refuse(self, name: str) -> NoReturn:
        sentence = f"The index cannot be searched: {name} was changed in place; see what manifind check says of it."
        raise Problem(503, sentence, {"Retry-After": "5"})

    def move_to(self, index: Index, *, lasting: bool) -> None:
        """Answer new requests from another index of the same photos; `lasting` if it is where it will stay."""
        self._take(index)
        self.lasting = lasting

    def _take(self, index: Index) -> None:
        chance_similarity(index.state)
        self._files, self.index, self._edited, self._tried = watched(index), index, None, None
        self._metrics.generation.labels(self.name).set(self.now.number)

    async def follow(self, seconds: float) -> None:
        """Look every so often at what is on disk, and move to it."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self._look)
            except Exception:
                log.exception("the state of the index could not be looked at")

    def _look(self) -> None:
        files = self._files
        edited = self._edited = self._edited or files.edited()
        if edited is None and not files.moved_on() and not files.replaced():
            return
        seen = files.seen()
        if seen == self._tried:
            return
        self._tried = seen
        if edited is not None:
            log.warning("%s of %s was changed in place; searches wait until it is whole", edited, self.index.where)
        try:
            self._move(anew=edited is not None or not files.moved_on())
        except (ManifindError, OSError) as error:
            log.warning("the new state of the index is not taken: %s", error)

    def _move(self, *, anew: bool) -> None:
        """Move to what is on disk; `anew`, everything is opened and verified, even if the manifest is the same."""
        before = self.now
        index = self._opened() if anew else self.index
        if not anew:
            index.reload()
        self._take(index)
        if self.now.number <= before.number:
            log.warning(
                "%s is another index now, or was opened again; its generation is %d", index.where, self.now.number
            )
        else:
            log.info("now serving generation %d", self.now.number)

    def _opened(self) -> Index:
        device = self.index.device
        index = Index.open(self.index.path, verify=True, device=device)
        if index.state.manifest.backbone is None:  # made by a describer of its maker's own, which nobody else has
            index = Index.open(self.index.path, describer=self.index.describer, device=device)
        # What described queries so far may lie in a file that was cut.
        index.describer.describe(np.zeros((64, 64, 3), np.uint8))
        return index
