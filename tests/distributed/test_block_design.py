from itertools import combinations

import pytest

from manifind.distributed.block_design import block_starts, choose_order, estimate_cost, plane_lines, task_rows
from manifind.errors import InvalidInputError


@pytest.mark.parametrize("q", [0, 1, 2, 3, 5, 7, 11])
def test_each_pair_of_blocks_meets_in_exactly_one_task(q: int) -> None:
    found = plane_lines(q)
    assert len(found) == q * q + q + 1
    assert {len(line) for line in found} == {q + 1}
    pairs = [pair for line in found for pair in combinations(line, 2)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == set(combinations(range(len(found)), 2))


def test_blocks_cover_the_rows_evenly() -> None:
    starts = block_starts(1000, 3)
    assert (starts[0], starts[-1], len(starts)) == (0, 1000, 14)
    assert {int(size) for size in starts[1:] - starts[:-1]} <= {76, 77}


def test_one_machine_that_has_room_compares_all_rows_in_one_task() -> None:
    assert choose_order(100_000, 2048, 2**30, 1) == 0
    assert task_rows(100_000, 0) == 100_000


def test_tasks_fit_into_memory_whatever_they_cost() -> None:
    for machines in (1, 4, 100):
        q = choose_order(1_000_000, 2048, 2**29, machines)
        assert task_rows(1_000_000, q) * 2048 <= 2**29
    with pytest.raises(InvalidInputError, match="more memory"):
        choose_order(10**9, 2048, 2**20, 1)


def test_many_machines_all_have_a_task() -> None:
    q = choose_order(5_000_000, 2048, 2**40, 50)
    assert q * q + q + 1 >= 50
    assert estimate_cost(5_000_000, q, 50) < estimate_cost(5_000_000, 2, 50) < estimate_cost(5_000_000, 0, 50)


def test_work_of_more_than_minutes_is_divided_even_on_one_machine() -> None:
    assert choose_order(2_000_000, 2048, 2**40, 1) >= 2
