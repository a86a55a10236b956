"""The configuration of an index: what decides a build and a search, with its meaning and where it was chosen.

`SearchConfig` is a tree of frozen dataclasses. An index is opened with one (``Index.open(path, config=…)``), and its
`config_hash` stands in the JSON of every result. `IndexConfig` holds the choices of ``Index.create`` under the same
names. `PRESETS` are whole configurations; a choice that is given counts more than that of the preset. The configuration
of an index follows from its manifest (`IndexConfig.of`); its `config_hash` shows in ``info``.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from manifind.diffusion import WEIGHTS, SeedWeights
from manifind.features.backbone import absolute_source, shipped_networks
from manifind.features.extractor import ONE_SCALE, SCALES
from manifind.geometry import VerificationConfig, VotingConfig
from manifind.index.storage.local_features import LOCAL_FEATURES, LocalFeatureConfig
from manifind.index.storage.manifest import LEARNT, NONE, SHIPPED, Manifest, WhiteningOrigin
from manifind.index.storage.snapshot import NullSimilarityConfig
from manifind.repeats import GROUPS, GroupConfig

AUTO, LEARN = "auto", "learn"

# -- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphDefaults:
    """The graph's parameters for collections of a certain number of photos."""

    below: float
    """Collections of fewer photos than this take these parameters; larger ones take the next."""
    k: int
    """Neighbours of a region."""
    query_k: int
    """Neighbours of a query region."""
    alpha: float
    """The share of a score that comes from neighbours."""


GRAPH_DEFAULTS = (
    GraphDefaults(150, 50, 50, 0.9),
    GraphDefaults(500, 50, 50, 0.99),
    GraphDefaults(3_000, 100, 50, 0.99),
    GraphDefaults(float("inf"), 200, 50, 0.99),
)
"""Chosen on parts of Holidays and of one other collection (docs/descriptors.md). A few dozen photos have a few objects
each: far neighbours are other objects. Thousands of photos have long chains of views and gain from every neighbour up
to 200, as in the paper."""

GLOBAL = {"k": 50, "query_k": 10, "alpha": 0.5}
"""For one vector a photo: with α = 0.99 the walk forgets the query where an object is in two or three photos alone."""

CHOSEN = ("k", "query_k", "alpha")
"""The graph's parameters that follow from the number of photos, where they are not given."""


@dataclass(frozen=True)
class WhiteningCandidate:
    """One way to whiten a collection, in the proportions of three covariances."""

    own: float = 0.0
    """The share of the collection's own moments, of those and the prior's; a small collection has less."""
    differences: float = 0.0
    """The share of the covariance of differences of regions that verified photos have in common."""
    power: float = 0.5
    """Of the variances that directions are divided by."""

    @property
    def name(self) -> str:
        """A name of the candidate."""
        return f"own {self.own:g}, differences {self.differences:g}, power {self.power:g}"


RANKINGS = ("plain", "match", "regional")
"""By what verified photos are to be found when whitenings are judged: as the ``method`` of a search."""


@dataclass(frozen=True)
class WhiteningConfig:
    """How a whitening is chosen by verified photos of the collection (`manifind.index.build.whitening_choice`)."""

    default: WhiteningCandidate = WhiteningCandidate(own=0.25, power=0.3)
    """The whitening where verified photos are too few to choose one, and where no other leads by enough. Better than
    the prior alone on planted scenes, small objects in clutter and a part of Oxford5k (docs/descriptors.md)."""
    candidates: tuple[WhiteningCandidate, ...] = (
        WhiteningCandidate(own=0.25, power=0.3),
        WhiteningCandidate(own=0.5),
        WhiteningCandidate(own=1),
        WhiteningCandidate(differences=0.25, power=0.3),
        WhiteningCandidate(),
    )
    """The whitenings to choose from, chosen on these collections and Holidays."""
    proposing: tuple[WhiteningCandidate, ...] = (WhiteningCandidate(), WhiteningCandidate(own=0.5, power=0.4))
    """The whitenings that propose pairs of photos for verification: two that disagree."""
    proposing_dimension: int = 256
    max_photos: int = 600
    """Photos of the sample at most."""
    run: int = 20
    """Consecutive photos in a sample of a larger collection."""
    max_anchors: int = 150
    """Photos of the sample that are compared with all others."""
    proposals: int = 6
    """Photos that are verified of each anchor and each ranking, of which each proposing whitening has two."""
    min_photos: int = 20
    """Anchors with verified parts that are enough to judge by."""
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """What mean average precision by each of `RANKINGS` counts in a candidate's score."""
    min_gain: float = 0.5
    """Points of the score by which a candidate must lead the default."""
    min_pairs_of_differences: int = 500
    """Verified pairs from which a candidate may learn by differences. Fewer teach what these photos look like, in few
    of the vectors' 1,280 directions, and harm the photos that verification did not join."""
    min_part: float = 0.005
    """The smallest part of a photo that is a query, by area."""
    max_part: float = 0.6
    """The largest one."""
    same_part: float = 0.3
    """Overlap (intersection over union) from which two parts of a photo show the same thing."""
    query_regions: int = 3
    """Regions that stand for a part."""
    min_covered: float = 0.8
    """A region shows a part of a photo where it covers so much of the part, or lies in it by so much."""
    retrain_growth: float = 2.0
    """How many times the photos that a whitening was learnt on make it wise to learn it again."""
    retrain_spread_ratio: float = 0.85
    """A whitening fits while it spreads descriptors over this part of the dimensions that it did when it was learnt."""

    def score(self, precisions: Mapping[str, float]) -> float:
        """Return the score of a candidate from its mean average precision by each of `RANKINGS`."""
        weighted = sum(w * precisions[name] for name, w in zip(RANKINGS, self.weights, strict=True))
        return round(weighted / sum(self.weights), 2)


@dataclass(frozen=True)
class IndexConfig:
    """What decides a build. None stands for the choice of the backbone, or for one by the number of photos."""

    backbone: str | None = "mobilenet_v2_int8"
    """The network's name or file; None for an extractor of the user's own."""
    whiten: str = AUTO
    """Auto, learn, shipped, none, or the path of a file. Auto mixes the moments of the photos with those that come with
    the backbone; chosen on Holidays and Oxford5k (docs/descriptors.md)."""
    scales: tuple[float, ...] = SCALES
    """Image sizes at which the backbone runs, in parts of the image's size. Three were chosen on Holidays."""
    pooling: str | None = None
    """How a region is pooled."""
    long_side: int | None = None
    """Pixels of an image's longer side."""
    regions_per_image: int | None = None
    """Means of the Gaussian mixture that stands for an image's regions (Sec. 4.4); None for all regions."""
    local_features: LocalFeatureConfig | None = LOCAL_FEATURES
    """The local features that are stored of each image, for spatial verification; None for no features."""
    frames: float | None = None
    """Seconds between two frames of a film; None for no films."""
    manifold: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of `Manifold`; of those in `CHOSEN`, what is missing follows from `graph_defaults`."""
    graph_defaults: tuple[GraphDefaults, ...] = GRAPH_DEFAULTS
    whitening: WhiteningConfig = field(default_factory=WhiteningConfig)
    """How ``whiten="auto"`` chooses."""
    null_similarity: NullSimilarityConfig = field(default_factory=NullSimilarityConfig)
    """How the similarity of unrelated regions is measured."""

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the configuration that an index was built with."""
        settings = manifest.extractor_settings
        return cls(
            manifest.backbone,
            _whiten_choice(manifest.whitening),
            tuple(settings.get("scales", ONE_SCALE)),
            settings.get("pooling"),
            settings.get("long_side"),
            manifest.regions_per_image,
            manifest.local_features,
            manifest.frames,
            {name: value for name, value in manifest.parameters.items() if name != "pooling"},
        )

    def resolve_parameters(self, photos: int) -> dict[str, Any]:
        """Return the parameters of `Manifold` for so many photos: what is given, and defaults for the rest."""
        defaults = next(one for one in self.graph_defaults if photos < one.below)
        resolved = {**{name: getattr(defaults, name) for name in CHOSEN}, **self.manifold}
        # Enough neighbours in reserve for a fifth of the photos to go unnoticed.
        return {"reserve": max(4, resolved["k"] // 4), **resolved}

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration ready for JSON, without what only leads to choices that are in it."""
        plain: dict[str, Any] = asdict(replace(self, graph_defaults=(), manifold=dict(self.manifold)))
        del plain["graph_defaults"], plain["whitening"], plain["null_similarity"]
        return {**plain, "scales": list(self.scales)}

    @property
    def config_hash(self) -> str:
        """A name of this configuration: equal configurations have equal names."""
        return _hash(self.to_dict())


PRESETS = {
    "default": IndexConfig(),
    # Iscen et al., CVPR 2017: R-MAC at one size, a finished whitening where there is one for it, k and query_k 200.
    "paper": IndexConfig(
        backbone="mobilenet_v2",
        whiten=SHIPPED,
        scales=ONE_SCALE,
        pooling="mac",
        manifold={"k": 200, "query_k": 200, "alpha": 0.99, "gamma": 3.0, "max_iter": 20},
    ),
}


def given_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a graph that were given: ``"auto"`` leaves one to the number of photos."""
    return {name: value for name, value in parameters.items() if not (name in CHOSEN and value == AUTO)}


def config_conflicts(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given choices that differ from those of the index, each with the value in the index.

    `given` has parameters of `Index.create` by their names. A preset stands for its choices, except where one of them
    is given as well.
    """
    choices = dict(given)
    preset = choices.pop("preset", None)
    if preset is not None:
        config = PRESETS[preset]
        by_preset = {name: getattr(config, name) for name in ("backbone", "whiten", "scales", "pooling")}
        if preset == "default":
            del by_preset["backbone"]  # the device may have chosen another
        choices = {name: value for name, value in (by_preset | dict(config.manifold)).items() if value is not None}
        choices |= {name: value for name, value in given.items() if name != "preset"}
    stored = IndexConfig.of(manifest)
    has = {**stored.to_dict(), **stored.manifold, "local_features": stored.local_features is not None}
    return {name: has[name] for name, value in choices.items() if not _same(name, value, has[name], manifest)}


def _hash(config: Mapping[str, Any]) -> str:
    """Return twelve hexadecimal digits that name a configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def _whiten_choice(origin: WhiteningOrigin) -> str:
    """Return the choice that leads to a whitening of this origin."""
    if origin.source == LEARNT:
        return LEARN if origin.prior is None else AUTO
    return origin.source


def _same(name: str, given: Any, has: Any, manifest: Manifest) -> bool:
    if name == "backbone":
        return bool(absolute_source(str(given)) == has)
    if name == "whiten" and given == AUTO and manifest.backbone not in shipped_networks():
        return has in (AUTO, SHIPPED, NONE)  # a network of the user's own may have no moments to mix with
    if name == "whiten" and str(given) not in (AUTO, LEARN, SHIPPED, NONE):
        return bool(str(Path(given).resolve()) == has)
    if name == "scales" and isinstance(given, Sequence):
        return bool(list(given) == list(has))
    return bool(given == has)


# -- searching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RetrievalConfig:
    """How images are ranked."""

    shortlist_size: int = 10_000
    """Images that a search diffuses on where the collection has more than twice as many and its graph has no two-level
    solver: the paper's Sec. 4.4."""
    shown_regions: int = 5
    """Regions of a result that are reported, those with the largest shares of its score."""
    explained_regions: int = 20_000
    """The chain of photos that explains a result is looked for among so many of the best regions by score."""
    remote_photos: int = 2_000
    """Photos of a collection in a vector database that a search fetches, unless the address says otherwise
    (``?shortlist=10000``)."""
    remote_exponent: float = 3.0
    """Exponent of the kernel that weighs the query's descriptors when these photos are chosen: that of the graph."""
    box_bins: int = 64
    """Steps across and down an image in which the place of the object is worked out. Boxes were measured on planted
    scenes (``benchmarks/feedback.py``)."""
    seed_weights: SeedWeights = WEIGHTS
    """What expansion regions and negatives count beside the query."""


@dataclass(frozen=True)
class DepthConfig:
    """How many images are verified."""

    first: int = 50
    """Images of a ranking that are verified first, where the index stores local features."""
    min_verified_share: float = 0.1
    """While so large a part of the last images is verified, as many more are. Chosen on planted scenes and Holidays."""
    max_factor: int = 4
    """How many times `first` are verified at most, without those found by voting."""
    expanded_factor: int = 2
    """How many times `first` are verified of an expanded query's ranking: its ranking deserves more."""
    batch_size: int = 10
    """Images that are verified before the deadline is looked at again; no result depends on it."""
    max_shorter: int = 4
    """A query of several photos contains the searches without its last photo, its last two, …: so many at most. Each
    costs two rankings. It bounds the time of queries of dozens of photos, and was chosen for that alone."""


@dataclass(frozen=True)
class LocalQueryConfig:
    """Which local features of a query are matched."""

    max_keypoints: int = 700
    low_texture_keypoints: int = 300
    """A query with fewer keypoints, and enough to be verified, is low in texture: low-contrast keypoints count too, the
    query's and those of images at full resolution. Chosen on planted scenes."""


@dataclass(frozen=True)
class FullResolutionConfig:
    """Verification from image files, with all keypoints. Chosen on planted scenes."""

    only_low_contrast: bool = True
    """Whether files are read for low-contrast queries alone, where the stored features are of `long_side` pixels too:
    others gain little by the keypoints that are not stored. Chosen on small objects in clutter."""
    batch_size: int = 6
    """Images that are verified at full resolution at first."""
    max_images: int = 18
    """Images at most, where it pays."""
    min_verified_to_continue: int = 2
    """Images of the last batch that must be verified for another batch."""
    pool: int = 40
    """The images are chosen among so many of the first unverified ones: further down, inliers mostly lie on the
    background of the query."""
    min_consensus: int = 3
    """Images in which so many keypoints agree on one transform come before others."""
    long_side: int = 1152
    """Pixels of an image's long side."""
    max_enlargement: float = 2.0
    """Smaller images are enlarged by this factor at most."""
    max_keypoints: int = 3_000
    """Keypoints of an image that are matched; few images have more."""


@dataclass(frozen=True)
class ExpansionConfig:
    """Query expansion: which regions of verified images join the query."""

    regions_per_image: int = 1
    """Regions of a verified image that join. Chosen on Oxford5k; two do as well on planted scenes and Holidays."""


@dataclass(frozen=True)
class CutoffConfig:
    """Which results are matches."""

    min_score_ratio: float = 0.5
    """Of the best score: where nothing is verified, lower results are no matches."""
    min_verified_ratio_box: float = 0.25
    """Of the mean score of verified images: lower unverified ones are no matches, where the query is a box. Chosen on
    planted scenes and small objects in clutter."""
    min_verified_ratio_whole: float = 0.75
    """The same, where the query is a whole image. Chosen on Holidays."""
    compared_images: int = 10
    """Among so many of the best images one must resemble the query."""
    pairs: int = 3
    """Pairs of regions that count for a resemblance."""
    pair_null_ratio: float = 0.62
    """The mean of `pairs` must exceed this part of the null similarity of one pair. Chosen on Holidays."""
    duplicate_similarity: float = 0.85
    """Regions of one image that are so similar count once: sky resembles sky everywhere. Chosen on Holidays."""
    textureless_factor: float = 2.0
    """How many times the null similarity a query without keypoints must reach. Sky and even colours in Holidays and
    Oxford5k do not."""
    null_factor: float = 3.0
    """The null similarity, in parts of what one pair in 300 of unrelated regions exceeds. Chosen on Holidays."""
    min_null_similarity: float = 0.40
    """A bound of the null similarity. Chosen with queries that have no match in Oxford5k."""
    max_null_similarity: float = 0.45
    """A bound of the null similarity: in a collection of one object most regions are related."""
    reference_images: int = 1_153
    """Images of the collection (Holidays) that the factors were chosen on."""
    gain_per_doubling: float = 0.07
    """How much more a query without a match resembles the best image of a collection twice as large. Measured on parts
    of Holidays, of 75 images to all."""
    size_factor_bounds: tuple[float, float] = (0.6, 1.5)
    """Bounds of the factor for the number of images: 20 and 160,000 images."""


@dataclass(frozen=True)
class GradingConfig:
    """Whether a verified image of a query's box shows the very object (`manifind.index.search.grading`).

    Coefficients: packages of two brands (Grocery Store) and planted scenes, seed 0 (``benchmarks/grades.py``); the
    other numbers on the same.
    """

    enabled: bool = False
    """Whether verified images are graded. It is meant for collections of packages: on Oxford5k it takes four in ten of
    the right photos of a building for another object, because views from elsewhere match each other better."""
    min_verified: float = 0.7
    """The probability with which an image stays verified."""
    max_part: float = 0.3
    """Below this probability an image shares a part with the query, and is no match. In between it is a weak match."""
    compared: int = 12
    """Results, the most similar ones, that each result is matched with: 0.2 ms of processor time each."""
    max_keypoints: int = 300
    """Of the object's part of a result, matched with other results."""
    max_rank: int = 5
    """Ranks by inliers beyond this count as this: a query may have many right results."""
    partners: int = 3
    """Results that match a result best: their logits count for it."""
    cells: int = 5
    """Cells across and down the query's box, for its coverage by inliers."""
    min_cell_keypoints: int = 3
    """Keypoints of the query that make a cell count."""
    own_coefficients: tuple[float, float, float, float] = (2.048, -0.85, -1.848, 9.28)
    """Of the first logit: a constant, log(1 + rank), log(1 + results that match better), coverage."""
    spread_coefficients: tuple[float, float, float, float] = (-0.992, 0.166, 0.613, 0.651)
    """Of the last logit: a constant, the first logit, its mean over partners, and over their partners."""


@dataclass(frozen=True)
class RepeatsConfig:
    """Objects that occur in several images, found without a query (``benchmarks/repeats.py``)."""

    verified_images: int = 12
    """Images of an object that are verified, besides the first."""
    min_confirmed: int = 2
    """Images besides the first that must be verified to confirm an object."""
    groups: GroupConfig = GROUPS
    """Which regions of the graph show the same object, and which images are near-duplicates."""


@dataclass(frozen=True)
class SearchConfig:
    """Every number that decides a search."""

    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    depth: DepthConfig = field(default_factory=DepthConfig)
    local_query: LocalQueryConfig = field(default_factory=LocalQueryConfig)
    matching: VerificationConfig = field(default_factory=VerificationConfig)
    """When two images match: `manifind.geometry.verify`."""
    voting: VotingConfig = field(default_factory=VotingConfig)
    """Which images local features vote for, wherever they rank."""
    full_resolution: FullResolutionConfig = field(default_factory=FullResolutionConfig)
    expansion: ExpansionConfig = field(default_factory=ExpansionConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    """Which verified images show the very object, and which share a part of it."""
    cutoff: CutoffConfig = field(default_factory=CutoffConfig)
    repeats: RepeatsConfig = field(default_factory=RepeatsConfig)

    @cached_property
    def config_hash(self) -> str:
        """A name of this configuration: equal configurations have equal names."""
        return _hash(asdict(self))
