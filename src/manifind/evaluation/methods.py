"""The methods that `manifind evaluate` knows: by name, with their parameters and where they come from.

A method is named ``NAME`` or ``NAME:parameter=value,parameter=value``.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from manifind.baselines import (
    AlphaQueryExpansion,
    AppendedDiffusion,
    AverageQueryExpansion,
    CompactDiffusion,
    DatabaseAugmentation,
    GlobalDiffusion,
    HammingQueryExpansion,
    HelloNeighbor,
    KReciprocal,
    NearestImages,
    RegionalDiffusion,
    RegionMatch,
    RegionMatchExpansion,
    SpatiallyConstrainedMatching,
    UnnormalisedDiffusion,
)
from manifind.errors import InvalidInputError
from manifind.evaluation.index_search import IndexSearch
from manifind.index.config import CHOSEN
from manifind.manifold import Manifold

PAPER = "Iscen et al., Efficient Diffusion on Region Manifolds, CVPR 2017"


@dataclass(frozen=True)
class Method:
    """A method by name."""

    name: str
    title: str
    needs: str
    """The input that it ranks by: "global" or "regional" descriptors, "photos", or an "index"."""
    source: str
    make: Callable[..., Any]
    """Called with the parameters: an estimator with ``fit`` and ``search_many``."""
    shown: tuple[str, ...] = ()
    """Parameters that a table always shows."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are not the estimator's own defaults."""
    in_all: bool = True
    """Whether "all" includes the method."""

    def parameters(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return every parameter's value; `InvalidInputError` for one that the method does not have."""
        known = self._known()
        for name in given or {}:
            if name not in known:
                raise InvalidInputError(
                    f"{self.name} has no parameter {name!r}; it has {', '.join(known) or 'none'}.",
                    code="method-parameter",
                )
        values = known | dict(self.settings) | dict(given or {})
        if values.get("knn") == "auto":
            values["knn"] = "exact"  # so that figures are every machine's
        return values

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if inspect.isclass(self.make) and issubclass(self.make, RegionalDiffusion):
            known = {name: parameter.default for name, parameter in inspect.signature(Manifold).parameters.items()}
            known |= _keywords(RegionalDiffusion)
            del known["memory"], known["reserve"]
        return known | _keywords(self.make)


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "memory"
    }


@dataclass(frozen=True)
class MethodSpec:
    """A method with the parameters that it is run with."""

    method: Method
    parameters: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict)
    """The parameters as given."""

    @property
    def title(self) -> str:
        """Return the method's title with its given and its always shown parameters."""
        names = dict.fromkeys([*self.method.shown, *self.given])
        return ", ".join([self.method.title, *(f"{name} = {self.parameters[name]}" for name in names)])

    @property
    def key(self) -> str:
        """What is computed: equal for specs that give the same rankings."""
        made = f"{self.method.make.__module__}.{self.method.make.__qualname__}"
        return f"{made} {json.dumps(dict(self.parameters), sort_keys=True)}"


def with_index_parameters(spec: MethodSpec, manifold: Manifold) -> MethodSpec:
    """Return regional diffusion with the parameters of an index in place of those that were not given."""
    if spec.method.name != "regional-diffusion":
        return spec
    chosen = {name: value for name, value in manifold.get_params().items() if name in CHOSEN}
    return MethodSpec(spec.method, spec.method.parameters({**chosen, **spec.given}), spec.given)


def method_spec(name: str, **given: Any) -> MethodSpec:
    """Return a method with some of its parameters set."""
    if name not in METHODS:
        raise InvalidInputError(f"method is {name!r}; choose one of {', '.join(METHODS)}.", code="unknown-method")
    method = METHODS[name]
    return MethodSpec(method, method.parameters(given), given)


def parse(text: str) -> MethodSpec:
    """Return the method of ``NAME`` or ``NAME:parameter=value,...``."""
    name, given = named_parameters(text)
    return method_spec(name, **given)


def named_parameters(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``NAME:parameter=value,...``; values are numbers, null, true, false or text."""
    name, _, rest = text.partition(":")
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        parameter, equals, value = part.partition("=")
        if not equals:
            raise InvalidInputError(
                f"{text!r} has {part!r}; write NAME:parameter=value,parameter=value.", code="method-syntax"
            )
        try:
            given[parameter.strip()] = json.loads(value)
        except ValueError:
            given[parameter.strip()] = value.strip()
    return name.strip(), given


ALL_METHODS = "all"
"""Stands for every method, by its defaults."""
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
            {"solver": "offline"},
        ),
        Method(
            "spectral-diffusion",
            "Spectral global diffusion",
            "global",
            "Iscen et al., Fast Spectral Ranking, CVPR 2018",
            GlobalDiffusion,
            KS,
            {"solver": "spectral"},
        ),
        Method("r-match", "R-match", "regional", "Razavian et al., MTA 2016", RegionMatch),
        Method(
            "hqe",
            "HQE (SIFT)",
            "photos",
            "Tolias and Jégou, Pattern Recognition 2014",
            HammingQueryExpansion,
            in_all=False,  # learning its vocabulary of 16,384 words takes minutes, whatever the size of the collection
        ),
        Method("r-match-aqe", "R-match + AQE", "regional", PAPER, RegionMatchExpansion),
        Method(
            "compact-diffusion",
            "Regional diffusion on mixture means",
            "regional",
            PAPER,
            CompactDiffusion,
            ("regions_per_image", *KS),
        ),
        Method("regional-diffusion-paper", "Regional diffusion", "regional", PAPER, RegionalDiffusion, KS),
        Method(
            "regional-diffusion",
            "Regional diffusion",
            "regional",
            PAPER,
            RegionalDiffusion,
            KS,
            {name: value for name, value in Manifold().get_params().items() if name in KS},
        ),
        Method("index", "Search of the index", "index", "this index", IndexSearch),
        Method(
            "unnormalised-diffusion",
            "Regional diffusion, eq. 18 not normalised",
            "regional",
            PAPER,
            UnnormalisedDiffusion,
            (*KS, "max_iter"),
            in_all=False,
        ),
        Method(
            "appended-diffusion",
            "Regional diffusion, query in the graph",
            "regional",
            PAPER,
            AppendedDiffusion,
            KS,
            in_all=False,
        ),
    )
}
"""In the order of the table: global descriptors first, what the paper proposes last."""
