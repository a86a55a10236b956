"""What the manifest of an index says, read and checked in one place.

`manifind.storage.store` sees to the manifest's checksum and to the files that it lists. What it says beside them, how
the photos were extracted and how the graph was built, is a `Manifest`. Whatever a file on disk claims, a `Manifest` is
of the right types, or reading it raises `DamagedError`.
"""

import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from manifind.diffusion.solvers import AUTO
from manifind.errors import DamagedError, InvalidInputError
from manifind.features import RegionExtractor
from manifind.geometry import KINDS
from manifind.graph import KnnReport
from manifind.index.storage.local_features import COARSE_FEATURES, MAX_KEYPOINTS, LocalFeatureConfig
from manifind.io.ignore import ALL_FILES, FileRules
from manifind.io.video import check_frame_interval
from manifind.manifold import BUILT, Manifold
from manifind.storage import store

KIND, FORMAT, OLDEST_FORMAT = "index", 3, 2
"""The kind of store, the format that is written, and the oldest that is read."""

FILES = (
    "images.sqlite",
    "boxes.npy",
    "whitening_mean.npy",
    "whitening_project.npy",
    "features.npy",
    "feature_starts.npy",
)
"""The files that an index may have besides the arrays of its manifold."""

FACTS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "sha256": str,
    "whitening": (str, type(None)),
    "dimension": int,
}
"""What a fingerprint says at least, and of which types."""

NAMES_OF_FORMAT_2 = {
    "describer": "extractor",
    "describer_settings": "extractor_settings",
    "means": "regions_per_image",
    "geometry": "local_features",
    "unlikely": "null_similarity",
}
"""The fields that format 2 called otherwise."""
PARTS_OF_FORMAT_2 = {
    "extractor": {"scales": "grid_levels", "zooms": "scales"},
    "extractor_settings": {"scales": "grid_levels", "zooms": "scales"},
    "local_features": {"most": "max_keypoints"},
    "manifold": {"lam": "gmp_lambda", "graph": "knn"},
}
"""The names inside of these fields that were others in format 2."""

MAX_LONG_SIDE, MAX_ENLARGEMENT = 8_192, 8
"""Bounds of what photos are resized to before local features are extracted."""

OF_THE_MACHINE = ("memory", "device")
"""Parameters of a manifold that are a matter of the machine and not of the index."""

NONE, SHIPPED, LEARNT, OWN = "none", "shipped", "learnt", "extractor"
"""Where a whitening may come from, besides a file: nowhere, with the backbone, from the photos, with an extractor."""


@dataclass(frozen=True)
class WhiteningChoice:
    """How a learnt whitening was chosen among candidates."""

    chosen: str
    """The candidate's name."""
    pairs: int
    """Verified pairs of photos on which the candidates were judged or from which they learnt."""
    scores: Mapping[str, float]
    """The score of each candidate by name, mean average precision in percent; none where pairs were too few."""
    rankings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What each score is the mean of, by the names of candidates and rankings; none in older indexes."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Read what a manifest says."""
        chosen = _typed(fields, "chosen", str, "whitening.choice.")
        pairs = _typed(fields, "pairs", int, "whitening.choice.")
        scores = _typed(fields, "scores", dict, "whitening.choice.")
        _check_value(pairs >= 0, "whitening.choice.pairs", pairs)
        rankings = _mapping(fields, "rankings") if "rankings" in fields else {}
        for name in rankings:
            _typed(rankings, name, dict, "whitening.choice.rankings.")
        for of in (scores, *rankings.values()):
            for name, score in of.items():
                number = isinstance(score, int | float) and not isinstance(score, bool)
                _check_value(number and 0 <= score <= 100, f"whitening.choice.scores of {name[:60]}", score)
        return cls(chosen, pairs, scores, rankings)

    @property
    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        said = {"chosen": self.chosen, "pairs": self.pairs, "scores": dict(self.scores)}
        by_ranking = {name: dict(precisions) for name, precisions in self.rankings.items()}
        return {**said, "rankings": by_ranking} if by_ranking else said


@dataclass(frozen=True)
class WhiteningOrigin:
    """Where the whitening of an index comes from."""

    source: str
    """"none", "shipped", "learnt", "extractor", or the path of a file."""
    photos: int | None = None
    """On how many photos it was learnt, where it was."""
    prior: float | None = None
    """Of how many regions the moments would count as much as those that came with the network, where these did."""
    spread: float | None = None
    """Over how many dimensions it spread the descriptors when it was learnt."""
    choice: WhiteningChoice | None = None
    """How it was chosen, where it was."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        learnt = {"prior": self.prior, "spread": self.spread} if self.spread is not None else {}
        chosen = {} if self.choice is None else {"choice": self.choice.fields}
        return {"from": self.source, "photos": self.photos, **learnt, **chosen}


@dataclass(frozen=True)
class Fingerprint:
    """All that descriptors depend on, as `RegionExtractor.fingerprint` says it."""

    name: str
    sha256: str
    """The checksum of all facts. Descriptors can be compared only where these checksums are equal."""
    whitening: str | None
    """The whitening's checksum."""
    facts: Mapping[str, Any]
    """All facts by name, the two above among them."""

    @classmethod
    def of(cls, extractor: RegionExtractor) -> Self:
        """Return the fingerprint of an extractor."""
        return cls._of(extractor.fingerprint())

    @classmethod
    def _of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(facts["name"], facts["sha256"], facts["whitening"], dict(facts))

    def differences(self, other: "Fingerprint") -> list[str]:
        """Return the names of what is not the same."""
        return [name for name in self.facts if name != "sha256" and self.facts[name] != other.facts.get(name)]

    def without_whitening(self) -> dict[str, Any]:
        """Return what does not depend on the whitening."""
        return {**self.facts, "whitening": None, "dimension": None, "sha256": None}


@dataclass(frozen=True)
class Manifest:
    """How the photos of an index became one."""

    root: Path
    """The folder of the photos."""
    made_by: str
    backbone: str | None
    """The network's name or file; None for a custom extractor."""
    whitening: WhiteningOrigin
    extractor: Fingerprint
    extractor_settings: Mapping[str, Any]
    regions_per_image: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    parameters: Mapping[str, Any]
    """The parameters of the manifold."""
    built: KnnReport | None = None
    """How the graph was built; None where that was not kept yet."""
    chosen_for: int | None = None
    """The number of photos for which parameters were chosen; None where none were chosen."""
    local_features: LocalFeatureConfig | None = None
    """What is kept of the photos' local features; None for nothing."""
    frames: float | None = None
    """Seconds between two frames of a film that are taken for photos; None for no films."""
    null_similarity: float | None = None
    """The similarity that few pairs of regions of different photos exceed; None where it was not kept yet."""
    files: FileRules = ALL_FILES
    """Which files of the folder count."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Read what a manifest says, or raise `DamagedError`."""
        if "describer" in fields:
            fields = _from_format_2(fields)
        facts = _mapping(fields, "extractor")
        for name, kinds in FACTS.items():
            _typed(facts, name, kinds, "describer.")
        learnt = _mapping(fields, "whitening")
        root = Path(_typed(fields, "root", str))
        _check_value(root.is_absolute() and _is_path(root), "root", fields["root"])
        regions_per_image = _typed(fields, "regions_per_image", (int, type(None)))
        _check_value(regions_per_image is None or regions_per_image >= 1, "regions_per_image", regions_per_image)
        photos = _typed(learnt, "photos", (int, type(None)), "whitening.")
        source = _typed(learnt, "from", str, "whitening.")
        _check_value(
            (photos is None or photos >= 0) and (photos is not None or source != LEARNT), "whitening.photos", photos
        )
        prior, spread = (_positive(learnt.get(name), f"whitening.{name}") for name in ("prior", "spread"))
        choice = WhiteningChoice.of(_mapping(learnt, "choice")) if learnt.get("choice") is not None else None
        built = _mapping(fields, BUILT) if fields.get(BUILT) is not None else None
        chosen_for = fields.get("chosen_for")
        number = isinstance(chosen_for, int) and not isinstance(chosen_for, bool) and chosen_for >= 0
        _check_value(chosen_for is None or number, "chosen_for", chosen_for)
        return cls(
            root,
            _typed(fields, "made_by", str),
            _typed(fields, "backbone", (str, type(None))),
            WhiteningOrigin(source, photos, prior, spread, choice),
            Fingerprint._of(facts),
            _settings(_mapping(fields, "extractor_settings")),
            regions_per_image,
            _parameters(_mapping(fields, "manifold")),
            None if built is None else KnnReport.of(built),
            chosen_for,
            _local_features(_mapping(fields, "local_features")) if fields.get("local_features") is not None else None,
            _frame_interval(fields.get("frames")),
            _similarity(fields.get("null_similarity"), "null_similarity"),
            _file_rules(_mapping(fields, "files")) if fields.get("files") is not None else ALL_FILES,
        )

    @property
    def fields(self) -> dict[str, Any]:
        """What the file says of it."""
        facts: dict[str, Any] = {
            "made_by": self.made_by,
            "backbone": self.backbone,
            "whitening": self.whitening.fields,
            "root": str(self.root),
            "extractor": dict(self.extractor.facts),
            "extractor_settings": dict(self.extractor_settings),
            "regions_per_image": self.regions_per_image,
            "manifold": dict(self.parameters),
        }
        if self.chosen_for is not None:
            facts["chosen_for"] = self.chosen_for
        if self.local_features is not None:
            facts["local_features"] = self.local_features.fields
        if self.frames is not None:
            facts["frames"] = self.frames
        if self.null_similarity is not None:
            facts["null_similarity"] = self.null_similarity
        if self.files != ALL_FILES:
            facts["files"] = {"exclude": list(self.files.exclude), "follow_links": self.files.follow_links}
        return facts if self.built is None else {**facts, BUILT: self.built._asdict()}

    def has_same_config(self, other: "Manifest") -> bool:
        """Whether the same photos would become the same index, however its graph came about."""
        mine, its = (replace(manifest, built=None, null_similarity=None).fields for manifest in (self, other))
        return json.dumps(mine, sort_keys=True) == json.dumps(its, sort_keys=True)


def read_store(path: Path, *, verify: bool = False) -> store.Stored:
    """Return the newest generation of the index at `path`; with `verify`, all checksums are compared."""
    return store.read(path, KIND, FORMAT, oldest=OLDEST_FORMAT, verify=verify)


def read_manifest(path: Path, name: str = store.MANIFEST) -> dict[str, Any]:
    """Return the manifest of the index at `path`, or the copy of it with that name."""
    return store.read_manifest(path, KIND, FORMAT, name, oldest=OLDEST_FORMAT)


def stored_parameters(manifold: Manifold) -> dict[str, Any]:
    """Return the parameters of a manifold, checked, as an index keeps them."""
    checked = asdict(manifold.check_params())
    return {name: value for name, value in checked.items() if name not in OF_THE_MACHINE}


def _from_format_2(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of format 2 by the names of format 3."""

    def renamed(given: Any, names: Mapping[str, str]) -> Any:
        return {names.get(name, name): value for name, value in given.items()} if isinstance(given, dict) else given

    renamed_fields: dict[str, Any] = renamed(dict(fields), NAMES_OF_FORMAT_2)
    for part, names in PARTS_OF_FORMAT_2.items():
        if part in renamed_fields:
            renamed_fields[part] = renamed(renamed_fields[part], names)
    if isinstance(renamed_fields.get("manifold"), dict):
        renamed_fields["manifold"] = {"solver": AUTO, **renamed_fields["manifold"]}
    return renamed_fields


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {name: value for name, value in given.items() if name not in OF_THE_MACHINE}
    try:
        Manifold(**known).check_params()
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"the manifest has parameters that no graph has ({error}); restore the index.") from error
    return known


def _settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in given.items():
        plain = value if isinstance(value, list) else [value]
        known = name in inspect.signature(RegionExtractor).parameters and name not in ("backbone", "whitening")
        _check_value(
            known and all(isinstance(entry, str | int | float | None) for entry in plain), f"setting {name[:60]}", value
        )
    return given


def _local_features(given: Mapping[str, Any]) -> LocalFeatureConfig:
    kind = _typed(given, "kind", str, "local_features.")
    max_keypoints = _typed(given, "max_keypoints", int, "local_features.")
    _check_value(kind in KINDS, "local_features.kind", kind)
    _check_value(0 < max_keypoints <= MAX_KEYPOINTS, "local_features.max_keypoints", max_keypoints)
    given = {"long_side": COARSE_FEATURES.long_side, "max_enlargement": COARSE_FEATURES.max_enlargement, **given}
    long_side = _typed(given, "long_side", int, "local_features.")
    _check_value(0 < long_side <= MAX_LONG_SIDE, "local_features.long_side", long_side)
    enlargement = _typed(given, "max_enlargement", (int, float), "local_features.")
    _check_value(1 <= enlargement <= MAX_ENLARGEMENT, "local_features.max_enlargement", enlargement)
    return LocalFeatureConfig(kind, max_keypoints, long_side, float(enlargement))


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    mapping: Mapping[str, Any] = _typed(fields, name, dict)
    return mapping


def _typed(fields: Mapping[str, Any], name: str, kinds: type | tuple[type, ...], of: str = "") -> Any:
    _check_value(name in fields, f"{of}{name}", None)
    value = fields[name]
    _check_value(isinstance(value, kinds) and not isinstance(value, bool), f"{of}{name}", value)
    return value


def _positive(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18:
        return float(value)
    raise _impossible(name, value)


def _frame_interval(value: object) -> float | None:
    try:
        return None if value is None else check_frame_interval(value)
    except InvalidInputError:
        raise _impossible("frames", value) from None


def _file_rules(given: Mapping[str, Any]) -> FileRules:
    exclude = _typed(given, "exclude", list, "files.")
    try:
        return FileRules.of(exclude, follow_links=given.get("follow_links", True))
    except InvalidInputError:
        raise _impossible("files", given) from None


def _similarity(value: object, name: str) -> float | None:
    if value is None:
        return None
    _check_value(isinstance(value, int | float) and not isinstance(value, bool) and -1.01 <= value <= 1.01, name, value)
    return float(value)  # type: ignore[arg-type]


def _check_value(true: bool, name: str, value: object) -> None:
    if not true:
        raise _impossible(name, value)


def _impossible(name: str, value: object) -> DamagedError:
    return DamagedError(f"the manifest says {name} is {str(value)[:60]!r}, which it cannot be; restore the index.")


def _is_path(path: Path) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
