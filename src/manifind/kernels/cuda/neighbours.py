"""The k most similar other rows of each row, of all products, on a torch device.

Where there are few rows or no GPU, blocks of products in float32 are sorted. Otherwise products are taken in eight
bits, tile by tile (`tiles`). Each row has a threshold, and a product that may reach it, whatever the rounding, is
scored anew in float32. Thresholds are guessed from a sample of the columns. A guess was good if the k-th best score
that was kept reaches it and nothing was turned away for lack of room: then no neighbour is missing. The other rows are
searched again with a better threshold, the k-th best score that was kept, which is never too high.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from manifind.kernels.cuda.packing import GROUP, Packed, pack
from manifind.kernels.cuda.transfer import to_host
from manifind.types import FloatArray, IntArray, Progress, Tensor

if TYPE_CHECKING:
    from manifind.kernels.cuda.rows import Block, TorchVectorSet

FEWEST = 2**16
"""Rows from which tiles are faster than sorting products."""
SAMPLE = 24
"""One column in so many is in the sample. A larger sample makes better guesses and costs more products."""
SMALLEST_SAMPLE = 2**15
BLOCK, TILE = 128, 128
"""VectorSet and columns of a tile."""
ROUNDS = 3
"""Searches from better thresholds before what is left is sorted."""
OVERFLOW = 0.05
"""If so large a share of rows lack room, lists get more room, or tiles are taken in half precision."""
MOST_ROOM = 2
"""Lists get so many times as much room at most. In many dimensions eight bits are coarse, and scoring more candidates
than that costs more than products in half precision: at d = 2048, 50 s against 44 s for 2.2 million rows on an H200."""
TRIAL = 4096
"""How many rows are searched first, to see how much room lists take."""
WAITING = 3
"""How many bands of rows may have their lists on the way to the host."""


class Best:
    """The k most similar rows of queries among those that were compared so far."""

    def __init__(self, queries: Tensor, k: int, own: Tensor | None = None, *, ordered: bool = True) -> None:
        # Somebody may have told torch to multiply float32 in fewer bits; float64 is then exact enough.
        self._kind = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
        self._queries, self._k, self._own, self._ordered = queries.to(self._kind), k, own, ordered
        self.ids: Tensor = torch.empty((len(queries), 0), dtype=torch.int32, device=queries.device)
        self.scores: Tensor = torch.empty((len(queries), 0), device=queries.device)

    def compare_rows(self, vectors: Tensor, first: int) -> None:
        """Compare with successive rows, the first of which has the id `first`."""
        products = self._queries @ vectors.to(self._kind).T
        if self._own is not None:
            at = self._own.long() - first
            inside = ((at >= 0) & (at < len(vectors))).nonzero()[:, 0]
            products[inside, at[inside]] = -torch.inf
        self.take(products.float(), first)

    def take(self, products: Tensor, first: int) -> None:
        """Take the products with successive rows, the first of which has the id `first`."""
        scores, ids = products.topk(min(self._k, products.shape[1]), dim=1, sorted=self._ordered)
        ids = (ids + first if first else ids).int()
        if not self.ids.shape[1]:
            self.scores, self.ids = scores, ids
            return
        scores, ids = torch.cat([self.scores, scores], dim=1), torch.cat([self.ids, ids], dim=1)
        self.scores, order = scores.topk(min(self._k, scores.shape[1]), dim=1, sorted=self._ordered)
        self.ids = ids.gather(1, order)


def of_all(
    rows: "TorchVectorSet", k: int, memory: int, ids: IntArray, scores: FloatArray, progress: Progress | None
) -> None:
    """Write the `k` most similar other rows of each row, best first."""
    n = rows.shape[0]
    if n < FEWEST or k > n // 64 or torch.device(rows.device).type == "cpu":
        sort_products(rows, np.arange(n), k, memory, ids, scores, progress)
    else:
        Tiled(rows, k, memory, Writer(ids, scores, progress)).run()


def sort_products(
    rows: "TorchVectorSet",
    which: npt.NDArray[np.integer],
    k: int,
    memory: int,
    ids: IntArray,
    scores: FloatArray,
    progress: Progress | None = None,
) -> None:
    """Write the lists of some rows by sorting all their products in float32."""
    d = rows.shape[1]
    step = max(1, min(4096, memory // (16 * (k + 1))))
    width = max(2 * k, memory // (8 * (step + d)))
    for start in range(0, len(which), step):
        some = which[start : start + step]
        best: Best | None = None
        for block in rows.blocks():
            if best is None:
                own = torch.as_tensor(some, dtype=torch.int32, device=rows.device)
                best = Best(rows.on_device(some), k, own)
            for begin in range(0, len(block.vectors), width):
                best.compare_rows(block.vectors[begin : begin + width], block.first + begin)
        assert best is not None  # noqa: S101 (there are rows)
        ids[some], scores[some] = to_host(best.ids), to_host(best.scores)
        if progress is not None:
            progress(start + len(some), len(which))


class Writer:
    """Brings lists to the host while the device goes on."""

    def __init__(self, ids: IntArray, scores: FloatArray, progress: Progress | None) -> None:
        self.ids, self.scores = ids, scores
        self._progress, self._done = progress, 0
        self._pool = ThreadPoolExecutor(1)
        self._waiting: deque[Future[int]] = deque()

    def write(self, rows: Tensor, ids: Tensor, scores: Tensor) -> None:
        """Write the lists of these rows, when they are ready."""
        copies = [
            torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True)
            for one in (rows, ids, scores)
        ]
        ready = torch.cuda.Event()
        ready.record()
        self._waiting.append(self._pool.submit(self._place, ready, *copies))
        if len(self._waiting) > WAITING:
            self._collect()

    def finish(self) -> None:
        """Wait until all is written."""
        while self._waiting:
            self._collect()
        self._pool.shutdown()

    def _collect(self) -> None:
        self._done = min(self._done + self._waiting.popleft().result(), len(self.ids))
        if self._progress is not None:
            self._progress(self._done, len(self.ids))

    def _place(self, ready: Any, rows: Tensor, ids: Tensor, scores: Tensor) -> int:
        ready.synchronize()
        at = rows.numpy()
        self.ids[at], self.scores[at] = ids.numpy(), scores.numpy()
        return len(at)


class Side(NamedTuple):
    """The packed rows whose lists are made: `size` of them, filled up to whole blocks."""

    size: int
    ids: Tensor
    """The id of each among all rows, (size,)."""
    vectors: Tensor
    places: Tensor
    """The place of each in `vectors`, (size,)."""
    codes: Tensor
    scales: Tensor
    offsets: Tensor

    @classmethod
    def part(cls, block: "Block", packed: Packed, start: int, end: int) -> "Side":
        """Return the rows at some places of a packed block."""
        count = min(end, len(packed.order)) - start
        order = packed.order[start : start + count]
        return cls(
            count,
            order + block.first,
            block.vectors,
            order,
            packed.codes[start:end],
            packed.scales[start:end],
            packed.offsets[start:end],
        )

    @classmethod
    def of(cls, rows: "TorchVectorSet", which: npt.NDArray[np.integer], *, whole: bool) -> "Side":
        """Pack some rows by themselves."""
        vectors = rows.on_device(which)
        packed = pack(vectors, whole=whole)
        ids = torch.as_tensor(which, dtype=torch.int32, device=vectors.device)[packed.order.long()]
        return cls(len(which), ids, vectors, packed.order, packed.codes, packed.scales, packed.offsets)


class Found(NamedTuple):
    """The result of a search for some rows."""

    ids: Tensor
    scores: Tensor
    complete: Tensor
    """Whether a row's list is known to be complete."""
    counts: Tensor
    """How many columns reached the threshold of a row, whether there was room for them or not."""


class Tiled:
    """One search for the neighbours of all rows."""

    def __init__(self, rows: "TorchVectorSet", k: int, memory: int, writer: Writer) -> None:
        self.rows, self.k, self.writer = rows, k, writer
        self.memory = memory
        self.room = max(2048, 1 << (8 * k - 1).bit_length())
        self.whole = True
        self._packed: Packed | None = None

    @property
    def band(self) -> int:
        """Rows that are searched together, as many as there is memory for their lists."""
        most = min(self.memory // (8 * self.room + 8 * self.k), (2**32 - 1) // self.room)
        return max(GROUP, min(-(-self.rows.shape[0] // GROUP), most // GROUP) * GROUP)

    def run(self) -> None:
        """Search all rows, and again those whose lists may be incomplete. What is left after that is sorted."""
        n = self.rows.shape[0]
        next(iter(self.rows.blocks()))
        sample = Sample.of(self.rows, self.k)
        device = self.rows.device
        complete = torch.zeros(n, dtype=torch.bool, device=device)
        better = torch.empty(n, device=device)
        self._try(sample)
        for side in self._bands():
            thresholds, spare = sample.thresholds(side)
            self._keep(side, self._search(side, thresholds, self.room), spare, complete, better)
        room = self.room
        for _ in range(ROUNDS):
            again = to_host((~complete).nonzero()[:, 0])
            room *= 2
            step = max(GROUP, self.band // (2 * room // self.room) // GROUP * GROUP)
            for start in range(0, len(again), step):
                side = Side.of(self.rows, again[start : start + step], whole=False)
                thresholds = better[side.ids.long()]
                self._keep(side, self._search(side, thresholds, room), thresholds, complete, better)
        self.writer.finish()
        left = to_host((~complete).nonzero()[:, 0])
        sort_products(self.rows, left, self.k, self.memory, self.writer.ids, self.writer.scores)

    def _try(self, sample: "Sample") -> None:
        """Search a few rows, and give lists as much room as they need. Where that is too much, take half precision."""
        n = self.rows.shape[0]
        which = np.sort(np.random.default_rng(1).choice(n, min(TRIAL, self.band, n), replace=False))
        side = Side.of(self.rows, which, whole=True)
        counts = self._search(side, sample.thresholds(side)[0], self.room).counts
        needed = int(torch.quantile(counts.double(), 1 - OVERFLOW))
        if needed > MOST_ROOM * self.room:
            self.whole, self._packed = False, None
        while needed > self.room and self.whole:
            self.room *= 2

    def _keep(self, side: Side, found: Found, spare: Tensor, complete: Tensor, better: Tensor) -> None:
        """Write the result of a search, and better thresholds for the rows whose lists may be incomplete."""
        self.writer.write(side.ids, found.ids, found.scores)
        at = side.ids.long()
        complete[at] = found.complete
        last = found.scores[:, -1]
        better[at] = torch.where(torch.isfinite(last), last, spare)

    def _bands(self) -> Iterator[Side]:
        """Yield all rows in bands, packed."""
        n, size = self.rows.shape[0], self.band
        for start in range(0, n, size):
            end = min(start + size, -(-n // GROUP) * GROUP)
            (block, packed), *more = _first_two(self._columns())
            if more:
                yield Side.of(self.rows, np.arange(start, min(end, n)), whole=self.whole)
            else:
                yield Side.part(block, packed, start, end)

    def _columns(self, *, whole: bool | None = None) -> Iterator[tuple["Block", Packed]]:
        """Yield all rows, packed. They are packed only once if all are on the device."""
        n = self.rows.shape[0]
        wanted = self.whole if whole is None else whole
        for block in self.rows.blocks():
            if len(block.vectors) < n:
                yield block, pack(block.vectors, whole=wanted)
                continue
            if self._packed is None or self._packed.whole != wanted:
                self._packed = None
                self._packed = pack(block.vectors, whole=wanted)
            yield block, self._packed

    def _search(self, side: Side, thresholds: Tensor, room: int) -> Found:
        """Search some rows for what reaches their thresholds."""
        from manifind.kernels.cuda import launch

        device = side.codes.device
        counts = torch.zeros(len(side.codes), dtype=torch.int32, device=device)
        lists = torch.empty((len(side.codes), room), dtype=torch.int32, device=device)
        scores = torch.full((side.size, room), -torch.inf, device=device)
        for block, packed in self._columns(whole=side.codes.dtype == torch.int8):
            begins = counts.clamp_max(room)
            launch.survivors(side, thresholds, packed, counts, lists)
            launch.rescore(side, block, packed, begins, counts, lists, scores)
        best, at = scores.topk(self.k, dim=1)
        counts = counts[: side.size]
        complete = (best[:, -1] >= thresholds) & (counts <= room)
        return Found(lists[: side.size].gather(1, at), best, complete, counts)


class Sample(NamedTuple):
    """Some columns, from which thresholds are guessed."""

    packed: Packed
    rank: int
    """How many of the best of a sample are kept: hardly ever are more of them among the k best of all."""

    @classmethod
    def of(cls, rows: "TorchVectorSet", k: int) -> "Sample":
        """Take columns at random."""
        n = rows.shape[0]
        size = min(n, max(SMALLEST_SAMPLE, n // SAMPLE)) // TILE * TILE
        which = np.sort(np.random.default_rng(0).choice(n, size, replace=False))
        share = k * size / n
        return cls(pack(rows.on_device(which), group=TILE), int(share + 2 * math.sqrt(share)) + 4)

    def thresholds(self, side: Side) -> tuple[Tensor, Tensor]:
        """Return a guess for each row, and a lower guess in case the first is too high."""
        from manifind.kernels.cuda import launch

        packed = self.packed if side.codes.dtype == torch.int8 else pack_again(self.packed)
        largest = launch.maxima(side, packed)
        chunks = largest.shape[1]
        rank = min(self.rank, 3 * chunks // 4)
        lower = min(3 * rank + 16, chunks)
        best = largest.topk(lower, dim=1).values
        return best[:, rank - 1].contiguous(), best[:, -1].contiguous()


def pack_again(packed: Packed) -> Packed:
    """Return rows of eight bits in half precision, without their lost digits: near enough for a guess."""
    codes = (packed.codes.float() * packed.scales[:, None]).half()
    ones = torch.ones_like(packed.scales)
    return packed._replace(codes=codes, scales=ones, group_scales=torch.ones_like(packed.group_scales))


def _first_two(some: Iterable[Any]) -> list[Any]:
    taken = []
    for one in some:
        taken.append(one)
        if len(taken) == 2:
            break
    return taken
