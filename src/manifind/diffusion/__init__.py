"""A query's regions → y → f: the on-line half of diffusion, on plain arrays.

`seed` puts the query on the graph (eq. 7, 8), an engine of `ENGINES` solves (I − αS) f = (1 − α) y, and `append` is the
conventional way that the paper compares with: the query becomes part of the graph. Engines that do most of
the work off line are `manifind.diffusion.offline` and `manifind.diffusion.spectral`.
"""

from manifind.diffusion.append import Appended, append
from manifind.diffusion.engines import ENGINES, Ground, Prepared, Setting, best_engine, diffuse, prepare
from manifind.diffusion.seeding import SEEDINGS, Seed, dense, opposed, seed, taught
from manifind.kernels import Solution

__all__ = [
    "ENGINES",
    "SEEDINGS",
    "Appended",
    "Ground",
    "Prepared",
    "Seed",
    "Setting",
    "Solution",
    "append",
    "best_engine",
    "dense",
    "diffuse",
    "opposed",
    "prepare",
    "seed",
    "taught",
]
