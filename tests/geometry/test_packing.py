import numpy as np
import pytest

from manifind.errors import Damaged, InvalidInput
from manifind.geometry import KINDS, ROW, Features, extract, pack, unpack
from tests.geometry.photographs import photograph


def made(kind: str) -> Features:
    return extract(photograph("motorcycle_left.png"), kind=kind, most=500)


@pytest.mark.parametrize("kind", KINDS)
def test_a_photo_takes_at_most_20_kb(kind: str) -> None:
    features = made(kind)
    rows = pack(features)
    assert len(features) == 500
    assert rows.shape == (500, ROW)
    assert rows.nbytes <= 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unpacked_is_near_to_what_was_packed(kind: str) -> None:
    features = made(kind)
    back = unpack(pack(features), features.width, features.height, kind)
    assert np.abs(back.points - features.points).max() < 0.01
    assert np.abs(np.log2(back.scales / features.scales)).max() <= 0.5 / 20 + 1e-3
    apart = back.angles - features.angles
    assert np.abs(np.angle(np.exp(1j * apart))).max() <= np.pi / 256 + 1e-3
    np.testing.assert_allclose(np.linalg.norm(back.descriptors, axis=1), 1, atol=1e-5)
    assert np.einsum("ij,ij->i", back.descriptors, features.descriptors).mean() > 0.95


def test_a_packed_photo_may_be_unpacked_at_another_size() -> None:
    features = made("sift")
    back = unpack(pack(features), 2 * features.width, 2 * features.height, "sift")
    assert np.abs(back.points / 2 - features.points).max() < 0.01
    assert np.abs(np.log2(back.scales / 2 / features.scales)).max() <= 0.5 / 20 + 1e-3


def test_a_photo_without_features_is_packed_to_nothing() -> None:
    features = extract(np.zeros((60, 80, 3), np.uint8))
    assert len(features) == 0
    assert len(unpack(pack(features), 80, 60)) == 0


def test_rows_of_another_form_are_refused() -> None:
    with pytest.raises(Damaged, match="uint8"):
        unpack(np.zeros((4, 7), np.uint8), 80, 60)
    with pytest.raises(InvalidInput, match="size"):
        unpack(np.zeros((4, ROW), np.uint8), 0, 60)
