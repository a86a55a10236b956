"""What was settled when an index was made."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manifind.diffusion import SeedWeights
from manifind.index import Index
from manifind.index.config import RepeatsConfig, RetrievalConfig, config_conflicts
from manifind.index.storage.manifest import LEARNT, Manifest, WhiteningOrigin, read_manifest
from manifind.repeats import GroupConfig
from tests.index.searching import configured

OWN_NETWORK = "/networks/mine.onnx"


@pytest.fixture
def manifest(index: Index) -> Manifest:
    """Of an index by mobilenet_v2 at one size, with the finished whitening and k = 20."""
    return Manifest.of(read_manifest(index.path)["fields"])


def test_the_choices_that_an_index_was_made_with_are_no_others(manifest: Manifest) -> None:
    given = {"backbone": "mobilenet_v2", "whiten": "shipped", "scales": (1.0,), "pooling": "gem", "long_side": 768}
    assert config_conflicts(manifest, given | {"k": 20, "knn": "auto", "regions_per_image": None, "frames": None}) == {}


@pytest.mark.parametrize(
    ("given", "has"),
    [
        ({"whiten": "learn", "k": 50}, {"whiten": "shipped", "k": 20}),
        ({"whiten": "auto"}, {"whiten": "shipped"}),
        ({"whiten": "whitening.npz"}, {"whiten": "shipped"}),
        (
            {"backbone": "mobilenet_v2_int8", "regions_per_image": 5},
            {"backbone": "mobilenet_v2", "regions_per_image": None},
        ),
        ({"frames": 2.0, "pooling": "mac"}, {"frames": None, "pooling": "gem"}),
        ({"preset": "paper", "alpha": 0.9}, {"pooling": "gem", "k": 20, "query_k": 20, "alpha": 0.99}),
        ({"preset": "paper", "k": 20, "query_k": 20}, {"pooling": "gem"}),
    ],
)
def test_other_choices_are_named_with_what_the_index_has(
    manifest: Manifest, given: dict[str, object], has: dict[str, object]
) -> None:
    assert config_conflicts(manifest, given) == has


def test_a_learnt_whitening_is_the_automatic_one_where_other_photos_had_a_part_in_it(manifest: Manifest) -> None:
    alone = replace(manifest, whitening=WhiteningOrigin(LEARNT, 400))
    mixed = replace(manifest, whitening=WhiteningOrigin(LEARNT, 400, 5000.0))
    assert config_conflicts(alone, {"whiten": "learn"}) == config_conflicts(mixed, {"whiten": "auto"}) == {}
    assert config_conflicts(alone, {"whiten": "auto"}) == {"whiten": "learn"}
    assert config_conflicts(mixed, {"whiten": "learn"}) == {"whiten": "auto"}


def test_a_network_of_ones_own_takes_automatically_what_comes_with_it(manifest: Manifest) -> None:
    own = replace(manifest, backbone=OWN_NETWORK)
    assert config_conflicts(own, {"whiten": "auto", "backbone": OWN_NETWORK}) == {}
    assert config_conflicts(own, {"whiten": "none"}) == {"whiten": "shipped"}
    assert config_conflicts(own, {"backbone": "/networks/other.onnx"}) == {"backbone": OWN_NETWORK}


def test_the_usual_preset_leaves_the_network_to_the_device(manifest: Manifest) -> None:
    usual = replace(
        manifest,
        whitening=WhiteningOrigin(LEARNT, 400, 5000.0),
        extractor_settings={**manifest.extractor_settings, "scales": [1.0, 2**-0.5, 0.5]},
    )
    assert config_conflicts(usual, {"preset": "default"}) == {}
    assert config_conflicts(usual, {"preset": "default", "backbone": "mobilenet_v2_int8"}) == {
        "backbone": "mobilenet_v2"
    }


def test_weights_of_negatives_and_rules_of_repeats_are_configured(index: Index, photos: Path) -> None:
    image, negatives = photos / "first-0.png", [(photos / "second-0.png", None)]
    given = index.search(image, verify=0, top=None)
    rejecting = index.search(image, verify=0, top=None, negatives=negatives)
    assert not np.array_equal(rejecting.scores, given.scores)
    weightless = RetrievalConfig(seed_weights=SeedWeights(negatives=0.0))
    ignoring = configured(index, retrieval=weightless).search(image, verify=0, top=None, negatives=negatives)
    np.testing.assert_array_equal(ignoring.scores, given.scores)
    assert index.repeats(verify=False).found > 0
    nothing_alike = RepeatsConfig(groups=GroupConfig(min_similarity=1.1))
    assert configured(index, repeats=nothing_alike).repeats(verify=False).found == 0
