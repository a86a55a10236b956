"""What `Manifold` takes from a store or a program: everything that does not fit is one error with a code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from manifind import Manifold
from manifind.errors import DamagedError, InvalidInputError, ManifindError
from manifind.graph import exact_neighbours, nn_descent_neighbours
from manifind.groups import Layout
from tests.collections_of_regions import unit
from tests.errors import raises

X = unit(np.random.default_rng(0).normal(size=(60, 8)))
MANIFOLD = Manifold(k=5, query_k=5).fit(X, np.repeat(np.arange(20), 3))
PARAMETERS, ARRAYS = MANIFOLD.to_arrays()
S, LAYOUT, WEIGHTS = MANIFOLD.S_, MANIFOLD.layout_, MANIFOLD.weights_


@pytest.mark.parametrize("name", ["memory", "k", "query_k", "max_iter", "reserve"])
def test_numbers_beyond_the_core_are_refused(name: str) -> None:
    with raises("invalid-input", InvalidInputError) as excinfo:
        Manifold().set_params(**{name: 2**70}).fit(X)
    assert str(excinfo.value).startswith(f"{name} is {2**70}; give a whole number of at least")


@pytest.mark.parametrize("options", [{"memory": 2**70}, {"memory": -1}, {"reserve": -1}])
def test_a_graph_is_not_built_with_numbers_beyond_the_core(options: Any) -> None:
    with raises("invalid-input", InvalidInputError):
        exact_neighbours(X, 5, **options)


def test_a_negative_seed_is_refused() -> None:
    with raises("invalid-input", InvalidInputError):
        nn_descent_neighbours(X, 5, seed=-1)


@pytest.mark.parametrize(
    "parameters", [None, [], 3, {"colour": 1}, {1: 2}, {"k": "a"}, {**PARAMETERS, "built": 3}], ids=repr
)
def test_malformed_parameters_are_refused(parameters: Any) -> None:
    with pytest.raises(ManifindError):
        Manifold.from_arrays(parameters, ARRAYS)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: None,
        lambda array: array.tolist(),
        lambda array: np.array(3, array.dtype),
        lambda array: array[None],
        lambda array: array[:-1],
        lambda array: array[:0],
        lambda array: array.astype(object),
    ],
    ids=["none", "list", "scalar", "nested", "short", "empty", "object"],
)
def test_malformed_arrays_are_refused(name: str, damage: Callable[[Any], Any]) -> None:
    with raises("damaged", DamagedError):
        Manifold.from_arrays(PARAMETERS, {**ARRAYS, name: damage(ARRAYS[name])}).search(X[:2])


@pytest.mark.parametrize("arrays", [None, [1]])
def test_arrays_that_are_no_mapping_are_refused(arrays: Any) -> None:
    with raises("invalid-input", InvalidInputError):
        Manifold.from_arrays(PARAMETERS, arrays)


def test_a_manifold_of_its_own_affinity_searches_as_the_whole() -> None:
    made = Manifold.from_affinity(PARAMETERS, X, LAYOUT, affinity(), WEIGHTS).search(X[:2])
    whole = MANIFOLD.search(X[:2])
    np.testing.assert_array_equal(made.images, whole.images)
    np.testing.assert_allclose(made.scores, whole.scores, rtol=1e-5)


def affinity() -> sp.csr_array:
    roots = np.sqrt(MANIFOLD.degrees_)
    return sp.csr_array(sp.diags_array(roots) @ S @ sp.diags_array(roots), dtype=np.float32)


def beyond() -> sp.csr_array:
    A = affinity()
    A.indices[3] = 1000
    return A


@pytest.mark.parametrize(
    ("name", "bad", "code"),
    [
        ("A", S.toarray(), "invalid-input"),
        ("A", None, "invalid-input"),
        ("A", sp.csr_array((59, 59), dtype=np.float32), "invalid-input"),
        ("A", sp.csr_array((60, 60), dtype=np.int32), "invalid-input"),
        ("A", -S, "invalid-input"),
        ("A", S * np.float32(np.nan), "invalid-input"),
        ("A", beyond(), "damaged"),
        ("vectors", X[:, 0], "invalid-input"),
        ("vectors", X.tolist(), "invalid-input"),
        ("vectors", X[:-1], "invalid-input"),
        ("layout", None, "invalid-input"),
        ("layout", Layout(LAYOUT.images, LAYOUT.starts[:-1]), "invalid-input"),
        ("layout", Layout(LAYOUT.images[::-1], LAYOUT.starts), "damaged"),
        ("weights", WEIGHTS[:-1], "invalid-input"),
        ("weights", None, "invalid-input"),
        ("global_vectors", X[:3], "invalid-input"),
        ("parameters", {"colour": 1}, "invalid-input"),
    ],
)
def test_an_affinity_that_does_not_fit_is_refused(name: str, bad: Any, code: str) -> None:
    arguments = {
        "parameters": PARAMETERS,
        "vectors": X,
        "layout": LAYOUT,
        "A": affinity(),
        "weights": WEIGHTS,
        name: bad,
    }
    with raises(code):
        Manifold.from_affinity(**arguments)
