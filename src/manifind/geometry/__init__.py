"""Photo -> local features; two photos -> the map between them, checked.

The room works on plain arrays: it takes the pixels of photos, and knows nothing of graphs and of indexes.

>>> query = extract(pixels, box=(40, 60, 220, 310))
>>> verdict = verify(query, extract(other), box=(40, 60, 220, 310))
>>> verdict.verified, verdict.instances[0].outline, verdict.inliers
"""

from manifind.geometry.extraction import KINDS, extract
from manifind.geometry.features import Features
from manifind.geometry.packing import ROW, pack, unpack
from manifind.geometry.verification import LIMITS, Instance, Limits, Verdict, verify
from manifind.geometry.votes import votes

__all__ = [
    "KINDS",
    "LIMITS",
    "ROW",
    "Features",
    "Instance",
    "Limits",
    "Verdict",
    "extract",
    "pack",
    "unpack",
    "verify",
    "votes",
]
