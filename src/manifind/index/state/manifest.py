"""What the manifest of an index says, read and checked in one place.

`manifind.storage.store` sees to the manifest's checksum and to the files that it lists. What it says beside them, how
the photos were described and how the graph was built, is a `Manifest`. Whatever a file on disk claims, a `Manifest` is
of the right types, or reading it raises `Damaged`.
"""

import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from manifind.describe import Describer
from manifind.errors import Damaged
from manifind.geometry import KINDS
from manifind.graph import Built
from manifind.index.state.kept import MOST, Keeping
from manifind.manifold import BUILT, Manifold

KIND, FORMAT = "index", 2

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

OF_THE_MACHINE = ("memory", "device")
"""Parameters of a manifold that are a matter of the machine and not of the index."""

NONE, SHIPPED, LEARNT, OWN = "none", "shipped", "learnt", "describer"
"""Where a whitening may come from, besides a file: nowhere, with the backbone, from the photos, with a describer."""


@dataclass(frozen=True)
class WhiteningOrigin:
    """Where the whitening of an index comes from."""

    source: str
    """"none", "shipped", "learnt", "describer", or the path of a file."""
    photos: int | None = None
    """On how many photos it was learnt, where it was."""
    prior: float | None = None
    """Of how many regions the moments would count as much as those that came with the network, where these did."""
    spread: float | None = None
    """Over how many dimensions it spread the descriptors when it was learnt."""
    pairs: int | None = None
    """How many pairs of photos that show the same thing taught it, where some did."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        learnt = {"prior": self.prior, "spread": self.spread} if self.spread is not None else {}
        taught = {} if self.pairs is None else {"pairs": self.pairs}
        return {"from": self.source, "photos": self.photos, **learnt, **taught}


@dataclass(frozen=True)
class Fingerprint:
    """All that descriptors depend on, as `Describer.fingerprint` says it."""

    name: str
    sha256: str
    """The checksum of all facts. Descriptors can be compared only where these checksums are equal."""
    whitening: str | None
    """The whitening's checksum."""
    facts: Mapping[str, Any]
    """All facts by name, the two above among them."""

    @classmethod
    def of(cls, describer: Describer) -> Self:
        """Return what a describer says of itself."""
        return cls._of(describer.fingerprint())

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
    """The network's name or file; None where the describer was its maker's own."""
    whitening: WhiteningOrigin
    describer: Fingerprint
    describer_settings: Mapping[str, Any]
    means: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    parameters: Mapping[str, Any]
    """The parameters of the manifold."""
    built: Built | None = None
    """How the graph was built; None where that was not kept yet."""
    chosen_for: int | None = None
    """The number of photos for which parameters were chosen; None where none were chosen."""
    geometry: Keeping | None = None
    """What is kept of the photos' local features; None for nothing."""
    frames: float | None = None
    """Seconds between two frames of a film that are taken for photos; None for no films."""
    unlikely: float | None = None
    """The similarity that few pairs of regions of different photos exceed; None where it was not kept yet."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Read what a manifest says, or raise `Damaged`."""
        facts = _mapping(fields, "describer")
        for name, kinds in FACTS.items():
            _typed(facts, name, kinds, "describer.")
        learnt = _mapping(fields, "whitening")
        root = Path(_typed(fields, "root", str))
        _hold(root.is_absolute() and _is_path(root), "root", fields["root"])
        means = _typed(fields, "means", (int, type(None)))
        _hold(means is None or means >= 1, "means", means)
        photos = _typed(learnt, "photos", (int, type(None)), "whitening.")
        source = _typed(learnt, "from", str, "whitening.")
        _hold((photos is None or photos >= 0) and (photos is not None or source != LEARNT), "whitening.photos", photos)
        prior, spread = (_positive(learnt.get(name), f"whitening.{name}") for name in ("prior", "spread"))
        pairs = learnt.get("pairs")
        _hold(pairs is None or (isinstance(pairs, int) and pairs > 0), "whitening.pairs", pairs)
        built = _mapping(fields, BUILT) if fields.get(BUILT) is not None else None
        chosen_for = fields.get("chosen_for")
        number = isinstance(chosen_for, int) and not isinstance(chosen_for, bool) and chosen_for >= 0
        _hold(chosen_for is None or number, "chosen_for", chosen_for)
        return cls(
            root,
            _typed(fields, "made_by", str),
            _typed(fields, "backbone", (str, type(None))),
            WhiteningOrigin(source, photos, prior, spread, pairs),
            Fingerprint._of(facts),
            _settings(_mapping(fields, "describer_settings")),
            means,
            _parameters(_mapping(fields, "manifold")),
            None if built is None else Built.of(built),
            chosen_for,
            _keeping(_mapping(fields, "geometry")) if fields.get("geometry") is not None else None,
            _positive(fields.get("frames"), "frames"),
            _similarity(fields.get("unlikely"), "unlikely"),
        )

    @property
    def fields(self) -> dict[str, Any]:
        """What the file says of it."""
        said: dict[str, Any] = {
            "made_by": self.made_by,
            "backbone": self.backbone,
            "whitening": self.whitening.fields,
            "root": str(self.root),
            "describer": dict(self.describer.facts),
            "describer_settings": dict(self.describer_settings),
            "means": self.means,
            "manifold": dict(self.parameters),
        }
        if self.chosen_for is not None:
            said["chosen_for"] = self.chosen_for
        if self.geometry is not None:
            said["geometry"] = self.geometry.fields
        if self.frames is not None:
            said["frames"] = self.frames
        if self.unlikely is not None:
            said["unlikely"] = self.unlikely
        return said if self.built is None else {**said, BUILT: self.built._asdict()}

    def asks_for_the_same(self, other: "Manifest") -> bool:
        """Whether the same photos would become the same index, however its graph came about."""
        mine, its = (replace(one, built=None, unlikely=None).fields for one in (self, other))
        return json.dumps(mine, sort_keys=True) == json.dumps(its, sort_keys=True)


def settled_parameters(manifold: Manifold) -> dict[str, Any]:
    """Return the parameters of a manifold, checked, as an index keeps them."""
    checked = asdict(manifold.check_params())
    return {name: value for name, value in checked.items() if name not in OF_THE_MACHINE}


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {name: value for name, value in given.items() if name not in OF_THE_MACHINE}
    try:
        Manifold(**known).check_params()
    except (TypeError, ValueError, OverflowError) as error:
        raise Damaged(f"the manifest has parameters that no graph has ({error}); restore the index.") from error
    return known


def _settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in given.items():
        plain = value if isinstance(value, list) else [value]
        known = name in inspect.signature(Describer).parameters and name not in ("backbone", "whitening")
        _hold(known and all(isinstance(one, str | int | float | None) for one in plain), f"setting {name[:60]}", value)
    return given


def _keeping(given: Mapping[str, Any]) -> Keeping:
    kind, most = _typed(given, "kind", str, "geometry."), _typed(given, "most", int, "geometry.")
    _hold(kind in KINDS, "geometry.kind", kind)
    _hold(0 < most <= MOST, "geometry.most", most)
    return Keeping(kind, most)


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _typed(fields, name, dict)
    return found


def _typed(fields: Mapping[str, Any], name: str, kinds: type | tuple[type, ...], of: str = "") -> Any:
    _hold(name in fields, f"{of}{name}", None)
    value = fields[name]
    _hold(isinstance(value, kinds) and not isinstance(value, bool), f"{of}{name}", value)
    return value


def _positive(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18:
        return float(value)
    raise _impossible(name, value)


def _similarity(value: object, name: str) -> float | None:
    if value is None:
        return None
    _hold(isinstance(value, int | float) and not isinstance(value, bool) and -1.01 <= value <= 1.01, name, value)
    return float(value)  # type: ignore[arg-type]


def _hold(true: bool, name: str, value: object) -> None:
    if not true:
        raise _impossible(name, value)


def _impossible(name: str, value: object) -> Damaged:
    return Damaged(f"the manifest says {name} is {str(value)[:60]!r}, which it cannot be; restore the index.")


def _is_path(path: Path) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
