"""Average precision by hand, and against an independent computation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from manifind import Ranking
from manifind.evaluation import average_precision, mean_average_precision, precision_at, precision_of_positives
from manifind.evaluation.measures import average_precision_at, bootstrap_ci, precision_and_recall, sign_flip_test
from manifind.kernels.topk import argsort_topk
from tests.errors import raises

some_images = st.sets(st.integers(0, 24), min_size=1)


@pytest.mark.parametrize(
    ("ranked", "positives", "junk", "trapezoid", "mean"),
    [
        ([1, 2, 3], [1, 2, 3], [], 1.0, 1.0),
        ([9, 1], [1], [], (0 + 1 / 2) / 2, 1 / 2),
        ([1, 9, 2], [1, 2], [], (1 + (1 / 2 + 2 / 3) / 2) / 2, (1 + 2 / 3) / 2),
        ([7, 1, 9, 8, 2], [1, 2], [7, 8], (1 + (1 / 2 + 2 / 3) / 2) / 2, (1 + 2 / 3) / 2),
        ([9, 8], [1], [], 0.0, 0.0),  # no positive found
        ([7, 8], [1], [7, 8], 0.0, 0.0),  # all junk
        ([1], [1, 2, 3, 4], [], 1 / 4, 1 / 4),  # positives beyond the list's end
        ([], [1], [], 0.0, 0.0),
    ],
)
def test_hand_worked_cases(ranked, positives, junk, trapezoid, mean) -> None:  # type: ignore[no-untyped-def]
    assert average_precision(np.array(ranked, int), positives, junk) == pytest.approx(trapezoid)
    assert average_precision(np.array(ranked, int), positives, junk, definition="mean") == pytest.approx(mean)


@given(
    st.permutations(range(25)), st.sets(st.integers(0, 24), min_size=1), st.sets(st.integers(0, 24)), st.integers(0, 25)
)
def test_both_definitions_equal_walking_down_the_list(
    ranked: list[int], positives: set[int], junk: set[int], length: int
) -> None:
    junk -= positives
    area = precisions = 0.0
    seen = hits = 0
    recall_before, precision_before = 0.0, 1.0
    for image in ranked[:length]:
        if image in junk:
            continue
        seen += 1
        if image in positives:
            hits += 1
            precisions += hits / seen
        recall, precision = hits / len(positives), hits / seen
        area += (recall - recall_before) * (precision_before + precision) / 2
        recall_before, precision_before = recall, precision
    given_ = np.array(ranked[:length], int)
    assert average_precision(given_, list(positives), list(junk)) == pytest.approx(area)
    assert average_precision(given_, list(positives), list(junk), definition="mean") == pytest.approx(
        precisions / len(positives)
    )


def test_the_mean_leaves_out_queries_without_positives() -> None:
    scores = np.zeros(2, np.float32)
    rankings = [Ranking(np.array(images, np.int32), scores) for images in ([1, 2], [2, 1], [1, 2])]
    assert mean_average_precision(rankings, [[1], [1], []], definition="mean") == pytest.approx(0.75)
    assert mean_average_precision(rankings, [[1], [1], []], [[], [2], []], definition="mean") == 1
    with raises("no-positives"):
        mean_average_precision(rankings, [[], [], []])


def test_bad_input_is_named() -> None:
    with raises("invalid-input"):
        average_precision([1], [1], definition="median")
    with raises("no-positives"):
        average_precision([1], np.array([], int))
    with raises("duplicate-image"):
        average_precision([9, 9, 1], [1])
    with raises("positive-and-junk"):
        average_precision([1, 2], [1], [1])
    assert average_precision([], [1]) == 0


@given(st.permutations(range(25)), some_images)
def test_the_mean_of_precisions_is_what_scikit_learn_computes(ranked: list[int], positives: set[int]) -> None:
    labels = [image in positives for image in ranked]
    truth = average_precision_score(labels, -np.arange(25))
    assert average_precision(ranked, list(positives), definition="mean") == pytest.approx(truth)


@given(
    st.lists(st.integers(0, 3), min_size=25, max_size=25), some_images, st.sets(st.integers(0, 24)), st.integers(1, 30)
)
def test_equal_scores_are_ranked_by_number_and_junk_among_them_is_passed_over(
    scores: list[int], positives: set[int], junk: set[int], top: int
) -> None:
    """Removing junk from the collection beforehand is the same as ignoring it."""
    junk -= positives
    ranked = argsort_topk(np.array(scores, np.float32), top)
    by_hand = sorted(range(25), key=lambda image: (-scores[image], image))[:top]
    assert ranked.tolist() == by_hand
    without = np.array([image for image in by_hand if image not in junk], int)
    for definition in ("trapezoid", "mean"):
        ignored = average_precision(ranked, list(positives), list(junk), definition=definition)
        assert ignored == pytest.approx(average_precision(without, list(positives), definition=definition))


@given(st.permutations(range(25)), some_images, st.sets(st.integers(0, 24)), st.integers(0, 25), st.integers(1, 12))
def test_precision_at_a_rank_and_of_each_positive_equal_counting(
    ranked: list[int], positives: set[int], junk: set[int], length: int, k: int
) -> None:
    junk -= positives
    seen = [image for image in ranked[:length] if image not in junk]
    places = [place for place, image in enumerate(seen, start=1) if image in positives]
    given_ = np.array(ranked[:length], int)

    def counted(most: int) -> float:
        return sum(place <= most for place in places) / most

    last = max(places, default=k)
    assert precision_at(given_, list(positives), k, list(junk)) == pytest.approx(counted(min(k, last)))
    assert precision_at(given_, list(positives), k, list(junk), last=False) == pytest.approx(counted(k))
    wanted = sorted(positives)
    truth = [counted(seen.index(image) + 1) if image in seen else 0.0 for image in wanted]
    np.testing.assert_allclose(precision_of_positives(given_, wanted, list(junk)), truth)


def test_hand_worked_precisions() -> None:
    """Ranks 1, 3 of positives 5, 6 with 7 junk: the order of `positives` is kept, a lost one has none."""
    np.testing.assert_allclose(precision_of_positives([5, 7, 9, 6], [6, 5, 4], [7]), [2 / 3, 1, 0])
    assert precision_at([5, 7, 9, 6], [5, 6], 10, [7]) == pytest.approx(2 / 3)
    assert precision_at([5, 9, 8], [5, 6], 10) == 1
    assert precision_at([9, 8], [5], 1) == 0


# -- cut at a rank -----------------------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.sets(st.integers(0, 11), min_size=1), st.integers(1, 15))
def test_average_precision_cut_at_a_rank_is_the_sum_of_its_definition(
    ranked: list[int], wanted: set[int], k: int
) -> None:
    """mAP@100 of Google Landmarks and mAP@1k of ILIAS: 1 / min(m, k) Σ P(j) rel(j) over the first k places."""
    total = 0.0
    for j in range(1, min(k, 12) + 1):
        if ranked[j - 1] in wanted:
            total += sum(image in wanted for image in ranked[:j]) / j
    assert average_precision_at(ranked, list(wanted), k) == pytest.approx(total / min(len(wanted), k))


def test_precision_and_recall_above_a_line_pass_over_junk() -> None:
    ranked, wanted, junk = [7, 1, 9, 2, 3, 4], [1, 2, 5], [7]
    assert precision_and_recall(ranked, wanted, 4, junk) == pytest.approx((2 / 3, 2 / 3))
    assert precision_and_recall(ranked, wanted, 1, junk) == (1, 0)
    assert precision_and_recall(ranked, wanted, 0, junk) == (1, 0)


# -- how sure ----------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_resampled_means() -> None:
    """Of many values the means of samples are normal, with the standard error of the textbook."""
    values = np.random.default_rng(1).normal(50, 10, 400)
    low, high = bootstrap_ci([*values, np.nan])
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.2)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3, 1.0])
def test_the_paired_test_is_that_of_all_sign_flips(shift: float) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 9))
    a += shift
    differences = a - b
    flips = np.array(list(itertools.product([-1, 1], repeat=9)))
    exact = np.mean(np.abs(flips @ differences) >= abs(differences.sum()) - 1e-9)
    assert sign_flip_test(a, [b, a]).tolist() == pytest.approx([exact, 1], abs=0.02)
    assert sign_flip_test(a, [a]) == 1
