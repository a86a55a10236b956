"""Image -> local features; two images -> spatial verification by RANSAC.

The package works on plain arrays. It takes pixels, and knows nothing of graphs and indexes.

>>> query = extract(pixels, box=(40, 60, 220, 310))
>>> verdict = verify(query, extract(other), box=(40, 60, 220, 310))
>>> verdict.verified, verdict.instances[0].outline, verdict.inliers
"""

from manifind.geometry.extraction import KINDS, extract
from manifind.geometry.features import Features
from manifind.geometry.mirroring import mirror, mirror_box, mirror_points, mirror_transform
from manifind.geometry.packing import FEATURE_BYTES, PackedFeatures, pack, unpack
from manifind.geometry.ransac import RansacConfig
from manifind.geometry.verification import Instance, Verdict, VerificationConfig, verify, verify_many
from manifind.geometry.voting import VotedFeatures, VotingConfig, select_by_votes

__all__ = [
    "FEATURE_BYTES",
    "KINDS",
    "Features",
    "Instance",
    "PackedFeatures",
    "RansacConfig",
    "Verdict",
    "VerificationConfig",
    "VotedFeatures",
    "VotingConfig",
    "extract",
    "mirror",
    "mirror_box",
    "mirror_points",
    "mirror_transform",
    "pack",
    "select_by_votes",
    "unpack",
    "verify",
    "verify_many",
]
