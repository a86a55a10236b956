"""The methods that `manifind evaluate` knows: by name, with their parameters and where they come from.

A method is asked for as ``NAME`` or ``NAME:parameter=value,parameter=value``. Regional diffusion in all its
settings is on one graph: neighbours are found once for all of them.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from manifind.baselines import (
    AlphaQueryExpansion,
    AverageQueryExpansion,
    CompactDiffusion,
    DatabaseAugmentation,
    GlobalDiffusion,
    HammingQueryExpansion,
    HelloNeighbor,
    KReciprocal,
    NearestImages,
    RegionMatch,
    RegionMatchExpansion,
    SpatiallyConstrainedMatching,
)
from manifind.diffusion import ENGINES
from manifind.errors import InvalidInput
from manifind.manifold import Manifold

PAPER = "Iscen et al., Efficient Diffusion on Region Manifolds, CVPR 2017"
OF_SEARCH = ("engine", "shortlist")
"""Parameters of a search on the graph, not of the graph."""


@dataclass(frozen=True)
class Method:
    """A method by name."""

    name: str
    title: str
    wants: str
    """What it ranks by: "global" or "regional" descriptors, or "photos"."""
    source: str
    make: Callable[..., Any]
    """Called with the parameters: an estimator with ``fit(vectors, image_of)`` and ``search_many(queries)``."""
    shown: tuple[str, ...] = ()
    """Parameters that a table always says."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are not the estimator's own defaults."""

    @property
    def on_graph(self) -> bool:
        """Whether it is diffusion on the graph of all regions, which is built once for all such."""
        return self.make is Manifold

    def parameters(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return every parameter's value; `InvalidInput` for one that the method does not have."""
        known = self._known()
        for name in given or {}:
            if name not in known:
                raise InvalidInput(f"{self.name} has no parameter {name!r}; it has {', '.join(known) or 'none'}.")
        values = known | dict(self.settings) | dict(given or {})
        if not _sized(values.get("engine")) and "size" not in (given or {}):
            values.pop("size", None)
        return values

    def _known(self) -> dict[str, Any]:
        signature = inspect.signature(self.make).parameters
        known = {name: one.default for name, one in signature.items() if one.kind is one.KEYWORD_ONLY}
        if any(one.kind is one.VAR_KEYWORD for one in signature.values()):
            known = {**_of_manifold(), **known}
        if self.on_graph:
            known |= {"engine": "cg", "shortlist": None}
        if "engine" in known:
            known["size"] = _default(Manifold.prepare, "size")
        known.pop("memory", None)
        return known


@dataclass(frozen=True)
class Choice:
    """A method with the parameters that it is run with."""

    method: Method
    parameters: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict)
    """Those that were asked for."""

    @property
    def title(self) -> str:
        """Return the method's name and the parameters that were asked for, or that tell it from others."""
        names = dict.fromkeys([*self.method.shown, *self.given])
        return ", ".join([self.method.title, *(f"{name} = {self.parameters[name]}" for name in names)])


def chosen(name: str, **given: Any) -> Choice:
    """Return a method with some of its parameters set."""
    if name not in METHODS:
        raise InvalidInput(f"method is {name!r}; choose one of {', '.join(METHODS)}.")
    method = METHODS[name]
    return Choice(method, method.parameters(given), given)


def parse(text: str) -> Choice:
    """Return what ``NAME`` or ``NAME:parameter=value,...`` means."""
    name, _, rest = text.partition(":")
    given = {}
    for part in filter(None, rest.split(",")):
        parameter, equals, value = part.partition("=")
        if not equals:
            raise InvalidInput(f"{text!r} has {part!r}; write NAME:parameter=value,parameter=value.")
        try:
            given[parameter.strip()] = json.loads(value)
        except ValueError:
            given[parameter.strip()] = value.strip()
    return chosen(name.strip(), **given)


def _sized(engine: Any) -> bool:
    return engine in ENGINES and ENGINES[engine].sized


def _default(function: Callable[..., Any], name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def _of_manifold() -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(Manifold).parameters.items()}


EVERY = "all"
"""Asks for every method, in its usual setting."""
KS = ("k", "query_k")
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("nearest", "Nearest neighbours (R-MAC)", "global", "Tolias et al., ICLR 2016", NearestImages),
        Method("aqe", "AQE", "global", "Chum et al., ICCV 2007", AverageQueryExpansion),
        Method("alpha-qe", "αQE", "global", "Radenović et al., TPAMI 2019", AlphaQueryExpansion),
        Method("scsm", "SCSM", "global", "Shen et al., TPAMI 2014", SpatiallyConstrainedMatching),
        Method("hello-neighbor", "Hello Neighbor", "global", "Qin et al., CVPR 2011", HelloNeighbor),
        Method("dba", "DBA", "global", "Gordo et al., IJCV 2017", DatabaseAugmentation),
        Method("k-reciprocal", "k-reciprocal re-ranking", "global", "Zhong et al., CVPR 2017", KReciprocal),
        Method("global-diffusion", "Global diffusion", "global", PAPER, GlobalDiffusion, KS),
        Method(
            "offline-diffusion",
            "Decoupled global diffusion",
            "global",
            "Yang et al., AAAI 2019",
            GlobalDiffusion,
            KS,
            {"engine": "offline"},
        ),
        Method(
            "spectral-diffusion",
            "Spectral global diffusion",
            "global",
            "Iscen et al., Fast Spectral Ranking, CVPR 2018",
            GlobalDiffusion,
            KS,
            {"engine": "spectral"},
        ),
        Method("r-match", "R-match", "regional", "Razavian et al., MTA 2016", RegionMatch),
        Method("hqe", "HQE (SIFT)", "photos", "Tolias and Jégou, Pattern Recognition 2014", HammingQueryExpansion),
        Method("r-match-aqe", "R-match + AQE", "regional", PAPER, RegionMatchExpansion),
        Method(
            "compact-diffusion",
            "Regional diffusion on mixture means",
            "regional",
            PAPER,
            CompactDiffusion,
            ("regions_per_image", *KS),
        ),
        Method(
            "regional-diffusion-paper",
            "Regional diffusion",
            "regional",
            PAPER,
            Manifold,
            KS,
            {"k": 200, "query_k": 200},
        ),
        Method("regional-diffusion", "Regional diffusion", "regional", PAPER, Manifold, KS),
    )
}
"""In the order of the table: global descriptors first, what the paper proposes last."""
