"""A pickle from elsewhere: plain values and arrays are read, and nothing that it asks for is run."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import InvalidInputError
from manifind.evaluation import read_truth
from manifind.evaluation.formats.unpickle import read_pickle
from tests.attack import pickles
from tests.errors import raises
from tests.evaluation.truths import listed, revisited


@pytest.mark.parametrize("number", range(10))
def test_every_protocol_and_the_names_of_numpy_1_and_2_are_read(tmp_path: Path, number: int) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickles.written()[number])
    assert (number < 6) or b"cnumpy.core.multiarray" in path.read_bytes()
    protocol = read_truth(path)
    assert [listed(protocol, 1, query) for query in range(2)] == [([0, 1, 2, 3], [4]), ([0], [5, 6])]
    assert [query.box for query in protocol.queries] == [(1, 2, 30, 40), (1, 2, 3, 4)]


@pytest.mark.parametrize("dtype", ["i1", "u2", "<i4", ">i8", "f2", ">f4", "f8", "?"])
@pytest.mark.parametrize("version", [0, 2, 4, 5])
def test_arrays_come_out_of_a_pickle_as_they_went_in(tmp_path: Path, dtype: str, version: int) -> None:
    rows = np.array([[0, 1, 1], [1, 0, 100]]).astype(dtype)
    stored = {"rows": rows, "columns": np.asfortranarray(rows), "none": rows[:0], "one": rows[1, 2], "again": rows}
    path = tmp_path / "some.pkl"
    path.write_bytes(pickle.dumps(stored, protocol=version))
    found = read_pickle(path)
    for name in ("rows", "columns", "none", "again"):
        assert found[name].dtype == rows.dtype
        np.testing.assert_array_equal(found[name], stored[name])
    assert found["one"] == rows[1, 2].item()
    assert isinstance(found["one"], bool | int | float)


@pytest.mark.parametrize("version", range(6))
def test_plain_values_come_out_of_a_pickle_and_names_alone_do_not(tmp_path: Path, version: int) -> None:
    path = tmp_path / "some.pkl"
    plain = {
        "none": None,
        "both": (True, False),
        "numbers": [1, -2, 2**40, 0.5],
        "text": "é",
        "within": [{"a": [None]}],
    }
    path.write_bytes(pickle.dumps(plain, protocol=version))
    assert read_pickle(path) == plain
    path.write_bytes(pickle.dumps({"dtype": np.ndarray}, protocol=version))
    with raises("unsafe-pickle"):
        read_pickle(path)


@pytest.mark.parametrize("name", pickles.hostile())
def test_a_hostile_pickle_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "gnd_x.pkl"
    path.write_bytes(pickles.hostile()[name])
    with raises("unsafe-pickle", InvalidInputError) as refused:
        read_pickle(path)
    assert str(refused.value).startswith(f"{path} is not a ground truth that can be read safely: it ")


def test_mutated_pickles_neither_crash_nor_stall_the_reader() -> None:
    """In a process of its own; ``python -m tests.attack.pickles`` tries thousands."""
    assert "'read': " in pickles.attack(400)


class _Runs:
    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("version", [0, 2, 4, 5])
@pytest.mark.parametrize("function", [os.system, os.mkdir, eval, exec, getattr, open, np.load, np.savetxt])
def test_nothing_in_a_pickle_is_run(tmp_path: Path, function: Callable[..., Any], version: int) -> None:
    mark = tmp_path / "mark"
    argument = {os.system: f"touch {mark}", eval: f"open({str(mark)!r}, 'w')", exec: f"open({str(mark)!r}, 'w')"}
    evil = _Runs(function, argument.get(function, str(mark)), *(["w"] if function is open else []))
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps({**revisited(), "more": [evil]}, protocol=version))
    before = sorted(tmp_path.iterdir())
    with raises("unsafe-pickle"):
        read_truth(path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_function_hidden_behind_an_allowed_name_is_not_found(tmp_path: Path) -> None:
    """Protocol 4 looks up dotted names: numpy.ndarray.tofile must not come through numpy.ndarray."""
    path = tmp_path / "gnd_x.pkl"
    path.write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.")
    with raises("unsafe-pickle"):
        read_pickle(path)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff" * 50, lambda b: b[5:]])
def test_a_damaged_pickle_is_refused_in_a_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(damage(pickle.dumps(revisited())))
    with raises("unsafe-pickle"):
        read_truth(path)
