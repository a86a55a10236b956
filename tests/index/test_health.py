"""What an index says of itself, without an index."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from manifind.graph import Neighbours
from manifind.index.config import WhiteningConfig
from manifind.index.maintenance.info import Health, by_part, describe_whitening, health, percent
from manifind.index.storage.manifest import Fingerprint, WhiteningOrigin
from manifind.index.storage.snapshot import CATALOGUE

LEARNT = WhiteningOrigin("learnt", photos=1000, spread=200.0)


@pytest.mark.parametrize(
    ("photos", "spread", "again"),
    [(1000, 200.0, False), (1900, 190.0, False), (10_000, 200.0, True), (1000, 20.0, True), (10_000, 20.0, True)],
)
def test_a_whitening_is_to_be_learnt_again_where_the_collection_grew_or_moved(
    photos: int, spread: float, again: bool
) -> None:
    words = describe_whitening(LEARNT, photos, spread, 512, WhiteningConfig())
    assert ("learning it again would be wise" in words) == again
    assert f"it has {photos:,} now" in words
    assert f"over 200 of 512 dimensions then, {spread:.0f} now" in words


def test_every_byte_of_an_index_is_of_one_part() -> None:
    sizes = {CATALOGUE: 1, "features.npy": 20, "neighbour_ids.npy": 300, "S_data.npy": 4000, "degrees.npy": 50_000}
    sizes |= {"weights.npy": 600_000, "vectors.npy": 7_000_000}
    assert by_part(sizes) == {
        "catalogue": 1,
        "local features": 20,
        "neighbours": 300,
        "graph": 654_000,
        "descriptors": 7_000_000,
    }
    assert by_part({}) == dict.fromkeys(by_part(sizes), 0)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0.0 %"), (0.0005, "less than 0.1 %"), (0.5, "50.0 %"), (0.9995, "more than 99.9 %"), (1, "100.0 %")],
)
def test_a_share_is_never_none_or_all_unless_it_is(share: float, words: str) -> None:
    assert percent(share) == words


def test_what_differs_between_two_ways_to_extract_is_named_by_its_value() -> None:
    facts = {"name": "small", "sha256": "a", "whitening": None, "scales": [1.0, 0.5], "long_side": 1024}
    others = {**facts, "sha256": "b", "scales": [1.0, 0.5]}
    one, other = (Fingerprint(facts["name"], each["sha256"], None, each) for each in (facts, others))  # type: ignore[arg-type]
    assert one.differences(other) == []
    changed = Fingerprint("small", "c", None, {**others, "scales": [1.0], "long_side": 768})
    assert one.differences(changed) == ["scales", "long_side"]


WELL = Health(
    regions=100,
    isolated_regions=0,
    largest_component=100,
    components=1,
    mean_mutual_degree=3.25,
    hubs=0,
    most_listed=9,
)


@pytest.mark.parametrize(
    ("changes", "said", "not_said"),
    [
        ({}, "A region has 3.2 mutual neighbours on average. Every region has at least one mutual neighbour.", "none"),
        ({"isolated_regions": 20}, "20.0 % of the regions have none", "larger k"),
        (
            {"isolated_regions": 21},
            "21.0 % of the regions have none: no chain of photos reaches them. A larger k",
            "at least",
        ),
        ({"largest_component": 51, "components": 7}, "51.0 % hang together", "pieces"),
        ({"largest_component": 50, "components": 7}, "in 7 pieces, the largest with 50.0 %", "hang together"),
        ({"hubs": 3}, "3 regions are hubs, which many others resemble (up to 9 of them)", "pieces"),
    ],
)
def test_the_health_of_a_graph_is_said_in_the_words_for_it(changes: dict[str, int], said: str, not_said: str) -> None:
    words = " ".join(replace(WELL, **changes).words())
    assert said in words
    assert not_said not in words


@pytest.mark.parametrize(("lists", "hubs"), [(20, 0), (21, 1)])
def test_a_hub_is_in_more_than_ten_times_as_many_lists_as_the_average(lists: int, hubs: int) -> None:
    n, k = 40, 2
    ids = np.stack([(np.arange(n) + 1) % (n - 1) + 1, (np.arange(n) + 2) % (n - 1) + 1], axis=1).astype(np.int32)
    ids[1 : 1 + lists, 0] = 0
    neighbours = Neighbours(ids, np.zeros((n, k), np.float32))
    found = health(sp.csr_array((n, n), dtype=np.float32), neighbours)
    assert (found.hubs, found.most_listed) == (hubs, lists)
