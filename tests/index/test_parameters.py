"""Parameters that choose themselves, and presets."""

import json
from pathlib import Path

import pytest

from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.index.config import PRESETS, IndexConfig
from tests.index.small import save_photo, small_extractor


@pytest.mark.parametrize(
    ("photos", "k", "alpha"), [(2, 50, 0.9), (149, 50, 0.9), (150, 50, 0.99), (1156, 100, 0.99), (5063, 200, 0.99)]
)
def test_more_photos_have_more_neighbours_and_longer_walks(photos: int, k: int, alpha: float) -> None:
    chosen = IndexConfig().resolve_parameters(photos)
    assert (chosen["k"], chosen["alpha"]) == (k, alpha)
    assert chosen["reserve"] == k // 4


def test_what_is_given_goes_before() -> None:
    assert IndexConfig(manifold={"k": 7, "gamma": 2.0}).resolve_parameters(100) == {
        "k": 7,
        "gamma": 2.0,
        "query_k": 50,
        "alpha": 0.9,
        "reserve": 4,
    }


def test_a_hash_names_a_configuration() -> None:
    assert IndexConfig().config_hash == PRESETS["default"].config_hash != PRESETS["paper"].config_hash
    assert IndexConfig(regions_per_image=5).config_hash != IndexConfig().config_hash
    json.dumps(PRESETS["paper"].to_dict())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(6):
        save_photo(tmp_path / "photos" / f"{i}.png", i)
    return tmp_path / "photos"


def test_an_index_says_what_was_chosen_and_for_how_many(photos: Path, tmp_path: Path) -> None:
    extractor = small_extractor()
    made = Index.create(tmp_path / "auto.manifind", photos, extractor=extractor, query_k=20, alpha="auto")
    assert (made.manifold.k, made.manifold.query_k, made.manifold.alpha) == (50, 20, 0.9)
    assert made.info()["chosen"]["for_photos"] == 6
    assert "chosen for a folder of 6 photos" in made.info()["chosen"]["words"]
    for i in range(6, 20):
        save_photo(photos / f"{i}.png", i)
    made.sync()
    assert made.info()["chosen"]["for_photos"] == 6  # a graph keeps its k
    given = Index.create(tmp_path / "given.manifind", photos, extractor=extractor, k=9, query_k=5, alpha=0.5)
    assert "were given" in given.info()["chosen"]["words"]


def test_the_papers_preset_is_one_word(photos: Path, tmp_path: Path) -> None:
    made = Index.create(tmp_path / "paper.manifind", photos, preset="paper")
    facts = made.info()
    assert {name: facts["manifold"][name] for name in ("k", "query_k", "alpha", "gamma")} == {
        "k": 200,
        "query_k": 200,
        "alpha": 0.99,
        "gamma": 3.0,
    }
    assert facts["extractor"]["pooling"] == "mac"
    assert "scales" not in facts["extractor"]
    assert facts["whitening"]["from"] == "none"  # what comes along is for GeM
    with pytest.raises(InvalidInputError, match="preset"):
        Index.create(tmp_path / "other.manifind", photos, preset="other")


def test_an_index_is_made_by_default_with_zooms_and_its_own_whitening(photos: Path, tmp_path: Path) -> None:
    made = Index.create(tmp_path / "usual.manifind", photos)
    facts = made.info()
    assert facts["whitening"]["from"] == "learnt"
    assert len(facts["extractor"]["scales"]) == 3
    again = Index.open(made.path)
    assert again.search(photos / "3.png", top=1)[0].key == "3.png"
    assert again.extractor.fingerprint() == made.extractor.fingerprint()
