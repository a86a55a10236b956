from itertools import combinations

import pytest

from manifind.cluster.planes import blocks, lines, order_for
from manifind.errors import InvalidInput


@pytest.mark.parametrize("q", [2, 3, 5, 7, 11])
def test_each_pair_of_blocks_meets_in_exactly_one_task(q: int) -> None:
    found = lines(q)
    assert len(found) == q * q + q + 1
    assert {len(line) for line in found} == {q + 1}
    pairs = [pair for line in found for pair in combinations(line, 2)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == set(combinations(range(len(found)), 2))


def test_blocks_cover_the_rows_evenly() -> None:
    starts = blocks(1000, 3)
    assert (starts[0], starts[-1], len(starts)) == (0, 1000, 14)
    assert {int(size) for size in starts[1:] - starts[:-1]} <= {76, 77}


def test_the_order_is_the_least_whose_tasks_fit() -> None:
    row = 2048
    q = order_for(1_000_000, row, 2**29)
    share = (q + 1) / (q * q + q + 1)
    assert share * 1_000_000 * row <= 2**29
    assert q == 5
    with pytest.raises(InvalidInput, match="more memory"):
        order_for(10**9, row, 2**20)
