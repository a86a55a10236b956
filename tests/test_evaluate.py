"""Average precision by hand, and against an independent computation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind import InvalidInput, Ranking
from manifind.evaluate import average_precision, mean_average_precision


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
    with pytest.raises(InvalidInput, match="every query"):
        mean_average_precision(rankings, [[], [], []])


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidInput, match="'trapezoid', 'mean'"):
        average_precision([1], [1], definition="median")
    with pytest.raises(InvalidInput, match="positives is empty"):
        average_precision([1], np.array([], int))
    with pytest.raises(InvalidInput, match="twice"):
        average_precision([9, 9, 1], [1])
    with pytest.raises(InvalidInput, match="both positive and junk"):
        average_precision([1, 2], [1], [1])
    assert average_precision([], [1]) == 0
