"""Figure 1: scores in the plane are those of the diffusion, and the picture is drawn."""

import sys
from pathlib import Path

import numpy as np
import pytest

from manifind.demo.figure1 import (
    Diffused,
    diffuse_in_the_plane,
    figure1,
    nearest_in_the_plane,
    scores_in_the_plane,
    similarity,
)
from manifind.demo.synthetic import Bananas, bananas
from manifind.errors import ManifindError, MissingExtraError
from manifind.graph import Neighbours, mutual_affinity


@pytest.fixture(scope="module")
def data() -> Bananas:
    return bananas()


@pytest.fixture(scope="module")
def single(data: Bananas) -> Diffused:
    return diffuse_in_the_plane(data.points, data.queries[:1])


def test_nearest_in_the_plane_are_those_of_all_pairs(data: Bananas) -> None:
    found = nearest_in_the_plane(data.queries, data.points, 7)
    distances = np.linalg.norm(data.queries[:, None] - data.points, axis=-1)
    np.testing.assert_array_equal(found.ids, np.argsort(distances, axis=1)[:, :7])
    np.testing.assert_allclose(found.similarities, similarity(np.sort(distances, axis=1)[:, :7]), rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 0.99])
def test_a_point_with_its_own_edges_gets_its_own_score(data: Bananas, alpha: float) -> None:
    n = len(data.points)
    lists = nearest_in_the_plane(data.points, data.points, 9)
    A = mutual_affinity(Neighbours(lists.ids[:, 1:], lists.similarities[:, 1:]), gamma=1).toarray().astype(np.float64)
    A[5] = A[:, 5] = 0  # and one without edges
    degrees = A.sum(axis=1)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0)
    y = np.zeros(n)
    y[[5, 40, 300]] = 1, 0.5, 0.2
    f = (1 - alpha) * np.linalg.solve(np.eye(n) - alpha * scale[:, None] * A * scale, y)

    everyone = Neighbours(np.tile(np.arange(n, dtype=np.int32), (n, 1)), A.astype(np.float32))
    np.testing.assert_allclose(
        scores_in_the_plane(everyone, degrees.astype(np.float32), f.astype(np.float32), y, alpha=alpha),
        f,
        rtol=1e-4,
        atol=1e-7 * f.max(),
    )


def test_the_plane_agrees_with_the_points_in_it(single: Diffused) -> None:
    assert np.corrcoef(single.at(single.points), single.f)[0, 1] > 0.99


def test_scores_are_high_on_the_manifold_of_the_query_only(data: Bananas, single: Diffused) -> None:
    highest = [single.at(data.points[data.crescent_of == number]).max() for number in range(4)]
    assert highest[0] > 100 * max(highest[1:])
    assert np.median(single.f[data.crescent_of == 0]) > 0.1 * single.f.max()


def test_several_queries_capture_as_many_manifolds(data: Bananas) -> None:
    both = diffuse_in_the_plane(data.points, data.queries[[0, 3]])
    on = [both.f[data.crescent_of == number].max() / both.f.max() for number in range(4)]
    assert min(on[0], on[3]) > 0.5
    assert max(on[1], on[2]) < 0.01
    assert len(both.neighbours) == 20


def test_scores_vanish_far_from_the_data(single: Diffused) -> None:
    np.testing.assert_array_equal(single.at(np.array([[50.0, 50.0], [-9.0, 0.0]])), 0)


def test_scores_change_smoothly(single: Diffused) -> None:
    x = np.linspace(-1.3, 1.3, 2001)
    along = single.at(np.stack([x, np.full_like(x, 0.8)], axis=1))
    assert np.abs(np.diff(along)).max() < 0.02 * along.max()


def test_the_figure_is_saved_as_a_png(tmp_path: Path) -> None:
    figure1(tmp_path / "figure1.png")
    head = (tmp_path / "figure1.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == (1200, 672)


def test_the_figure_has_both_panels_in_the_colours_of_the_paper() -> None:
    figure = figure1()
    assert [panel.get_title() for panel in figure.axes] == ["(a) single query", "(b) multiple queries"]
    for panel, queries in zip(figure.axes, (1, 2), strict=True):
        dots = {c.get_label(): c for c in panel.collections if not str(c.get_label()).startswith("_")}
        counts = {name: len(c.get_offsets()) for name, c in dots.items()}  # type: ignore[arg-type]
        assert counts == {
            "data points": 600 - 10 * queries,
            "nearest neighbours of the query": 10 * queries,
            "query points": queries,
        }
        strongest = [int(np.argmax(c.get_facecolor()[0][:3])) for c in dots.values()]  # type: ignore[index]
        assert strongest == [2, 1, 0]  # blue, green, red


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["matplotlib", "matplotlib.figure"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as missing:
        figure1()
    assert "pip install 'manifind[plots]'" in str(missing.value)
    assert isinstance(missing.value, ManifindError)
    assert isinstance(missing.value, ImportError)
