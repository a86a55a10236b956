"""A query's regions → y → f: the on-line half of diffusion, on plain arrays.

`seed` puts the query on the graph (eq. 7, 8), an engine of `ENGINES` solves (I − αS) f = (1 − α) y, and `append` is the
conventional way that the paper compares with: the query becomes part of the graph. The engines of `PREPARED` solve
most of it off line: `manifind.diffusion.offline` and `manifind.diffusion.spectral`.
"""

from manifind.diffusion.append import Appended, append
from manifind.diffusion.engines import ENGINES, diffuse
from manifind.diffusion.prepared import PREPARED, Prepared, prepare
from manifind.diffusion.seeding import SEEDINGS, Seed, dense, seed
from manifind.kernels import Solution

__all__ = [
    "ENGINES",
    "PREPARED",
    "SEEDINGS",
    "Appended",
    "Prepared",
    "Seed",
    "Solution",
    "append",
    "dense",
    "diffuse",
    "prepare",
    "seed",
]
