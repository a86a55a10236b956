"""The base of every estimator: parameters and fitted state with scikit-learn's manners.

`Manifold` and the baselines work with ``sklearn.base.clone``, ``GridSearchCV``, ``check_is_fitted`` and joblib.
scikit-learn itself is needed by those functions alone.
"""

import inspect
from collections.abc import Hashable
from functools import cache
from typing import Any, Self, cast

from manifind.checks import check_choice


@cache
def _parameter_names(estimator: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(estimator).parameters)


class Estimator:
    """Keyword-only parameters, kept as given and checked by ``fit``; the attributes of a fit end in ``_``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (scikit-learn's signature)
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in _parameter_names(cast(Hashable, type(self)))}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters."""
        for name, value in parameters.items():
            setattr(self, check_choice(name, self.get_params(), "parameter"), value)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: no target is required, and the estimator is no classifier or regressor."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags())
