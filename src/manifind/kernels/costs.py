"""The cost model: the rates and sizes by which the program chooses between methods with (nearly) equal answers.

They describe machines, not collections. What decides an answer stands in `manifind.index.config`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class CostModel:
    """Machine rates, sizes from which another method pays, and bytes that a build takes.

    The rates were measured at d = 512 on one thread of an AMD EPYC with AVX-512.
    """

    max_exact_regions: int = 200_000
    """Up to this many regions all pairs are compared, which takes minutes on any machine."""
    core_rate: float = 2.3e11
    """Multiplications a second of `exact_neighbours`, with the compiled core."""
    numpy_rate: float = 4.6e10
    """The same without the core."""
    descent_seconds: float = 2e-8
    """NN-Descent takes `descent_seconds` · d · n · k^`descent_exponent`: 11 s for 106,887 regions of Oxford5k at
    k = 50."""
    descent_exponent: float = 0.6
    descent_speedup: float = 0.9
    """t threads do NN-Descent t^0.9 times as fast as one; they compare all pairs t times as fast."""
    descent_recall: float = 0.995
    """The recall expected of NN-Descent. On Oxford5k's regions it found 99.6 to 99.8 % (k = 50 and 200)."""
    max_whole_regions: int = 200_000
    """By default the whole graph is solved for where it has up to so many regions, and larger graphs that were divided
    by the local solver. Among 106,344 regions of Oxford5k the local solver lost 2.6 points of mAP (docs/trials.md)."""
    max_new_share: float = 0.25
    """Up to this share of new regions a change repairs the neighbour lists. Beyond it they are found anew."""
    topk_pairs: int = 9_000
    """Pairs of rows that a worker compares in the time that it takes to keep the list of one row:
    ``benchmarks/scale.py``."""
    max_unsplit_pairs: int = 10**11
    """Pairs that two cores compare in three minutes. Where there are more in all, no one task may have a third of them:
    a worker that is lost would cost too much."""
    min_gpu_photos: int = 64
    """Photos from which starting the GPU, which takes seconds, is worth it."""
    max_flat_photos: int = 50_000
    """Photos up to which Milvus compares descriptors one by one unless the address says otherwise
    (``?index=HNSW``)."""
    max_mutual_share: float = 0.5
    """Share of neighbours that are mutual, at most, in collections that were seen (0.44 on Oxford5k at k = 100)."""
    core_graph_factor: float = 1.25
    """How many times the graph is in memory while mutual neighbours are picked out, with the compiled core."""
    numpy_graph_factor: float = 3.0
    """The same without the core."""
    base_bytes: int = 2**28
    """Bytes that Python, its libraries and a network take."""
    two_level_region_bytes: int = 60
    """Bytes on disk of a region of a divided graph."""
    held_region_bytes: int = 100
    """Bytes of a region that are held where workers make the graph: its place, box, weight and degree."""


COSTS = CostModel()
