"""What was settled when an index was made."""

from dataclasses import replace

import pytest

from manifind.index import Index
from manifind.index.state.manifest import LEARNT, Manifest, WhiteningOrigin
from manifind.index.state.settled import made_otherwise
from manifind.storage import store

OWN_NETWORK = "/networks/mine.onnx"


@pytest.fixture
def manifest(index: Index) -> Manifest:
    """Of an index by mobilenet_v2 at one size, with the finished whitening and k = 20."""
    return Manifest.of(store.read_manifest(index.path, "index", 2)["fields"])


def test_the_choices_that_an_index_was_made_with_are_no_others(manifest: Manifest) -> None:
    given = {"backbone": "mobilenet_v2", "whiten": "shipped", "zooms": (1.0,), "pooling": "gem", "long_side": 768}
    assert made_otherwise(manifest, given | {"k": 20, "graph": "auto", "means": None, "frames": None}) == {}


@pytest.mark.parametrize(
    ("given", "has"),
    [
        ({"whiten": "learn", "k": 50}, {"whiten": "shipped", "k": 20}),
        ({"whiten": "auto"}, {"whiten": "shipped"}),
        ({"whiten": "whitening.npz"}, {"whiten": "shipped"}),
        ({"backbone": "mobilenet_v2_int8", "means": 5}, {"backbone": "mobilenet_v2", "means": None}),
        ({"frames": 2.0, "pooling": "mac"}, {"frames": None, "pooling": "gem"}),
        ({"recipe": "paper", "alpha": 0.9}, {"pooling": "gem", "k": 20, "query_k": 20, "alpha": 0.99}),
        ({"recipe": "paper", "k": 20, "query_k": 20}, {"pooling": "gem"}),
    ],
)
def test_other_choices_are_named_with_what_the_index_has(
    manifest: Manifest, given: dict[str, object], has: dict[str, object]
) -> None:
    assert made_otherwise(manifest, given) == has


def test_a_learnt_whitening_is_the_automatic_one_where_other_photos_had_a_part_in_it(manifest: Manifest) -> None:
    alone = replace(manifest, whitening=WhiteningOrigin(LEARNT, 400))
    mixed = replace(manifest, whitening=WhiteningOrigin(LEARNT, 400, 5000.0))
    assert made_otherwise(alone, {"whiten": "learn"}) == made_otherwise(mixed, {"whiten": "auto"}) == {}
    assert made_otherwise(alone, {"whiten": "auto"}) == {"whiten": "learn"}
    assert made_otherwise(mixed, {"whiten": "learn"}) == {"whiten": "auto"}


def test_a_network_of_ones_own_takes_automatically_what_comes_with_it(manifest: Manifest) -> None:
    own = replace(manifest, backbone=OWN_NETWORK)
    assert made_otherwise(own, {"whiten": "auto", "backbone": OWN_NETWORK}) == {}
    assert made_otherwise(own, {"whiten": "none"}) == {"whiten": "shipped"}
    assert made_otherwise(own, {"backbone": "/networks/other.onnx"}) == {"backbone": OWN_NETWORK}


def test_the_usual_recipe_leaves_the_network_to_the_device(manifest: Manifest) -> None:
    usual = replace(
        manifest,
        whitening=WhiteningOrigin(LEARNT, 400, 5000.0),
        describer_settings={**manifest.describer_settings, "zooms": [1.0, 2**-0.5, 0.5]},
    )
    assert made_otherwise(usual, {"recipe": "default"}) == {}
    assert made_otherwise(usual, {"recipe": "default", "backbone": "mobilenet_v2_int8"}) == {"backbone": "mobilenet_v2"}
