"""Reading ``gnd_*.pkl`` without running what is in it.

A pickle is a program for a small machine with a stack. This reader is such a machine of its own: it takes the opcodes
one by one and builds lists, dictionaries, text, numbers and numeric arrays. Arrays are made from their bytes, once
their type and size were checked; NumPy's own reading of pickles trusts what the file says of both. Everything else is
refused by name. What was built is measured before anybody walks through it: a list may hold itself, or a small file
stand for billions of entries.
"""

import math
import pickletools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError

MAX_BYTES = 2**26
"""The most bytes that a ground truth may have. Those that are published have less than a megabyte."""
MAX_OPCODES = 2**22
MAX_ENTRIES, MAX_CHARACTERS = 2**22, 2**26
"""The most entries that all lists may have together, and the most characters and numbers. What is referred to twice
counts twice."""
MAX_DEPTH = 16
MAX_DIMENSIONS = 4
"""The most dimensions that an array may have."""
DTYPE = re.compile(r"b1|[iu][1248]|f[248]")
MARK = object()


class _RefusedError(Exception):
    """The file holds something that is not read; the message says what it is."""


class _Name(NamedTuple):
    """A name that the file asks for, of those that are known."""

    text: str


@dataclass(eq=False)
class _Unbuilt:
    """An object that waits for its state. `places` are the places where the machine remembers it meanwhile."""

    places: list[int] = field(default_factory=list, init=False)


class _Array(_Unbuilt):
    """An array, of which nothing is known yet."""


@dataclass(eq=False)
class _Dtype(_Unbuilt):
    """A type of numbers, and the order of its bytes."""

    kind: str
    order: str = "="

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order.replace("|", "=") + self.kind)


def _dtype(kind: object, *_: object) -> _Dtype:
    if not isinstance(kind, str) or not DTYPE.fullmatch(kind):
        raise _RefusedError(f"it has an array of {kind!r}, and only numbers are read")
    return _Dtype(kind)


def _with_order(dtype: _Dtype, state: object) -> _Dtype:
    """Return a type with the byte order of its state: (version, order, no subarray, no names, no fields, …)."""
    match state:
        case (int(), "<" | ">" | "=" | "|" as order, None, None, None, *_):
            return _Dtype(dtype.kind, order)
    raise _RefusedError("it has an array whose type has parts")


def _raw(data: object) -> bytes:
    if isinstance(data, str):
        return data.encode("latin1")
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    raise _RefusedError("it has an array without its bytes")


def _array(dtype: object, shape: object, data: object, order: str) -> npt.NDArray[Any]:
    raw = _raw(data)
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or len(shape) > MAX_DIMENSIONS:
        raise _RefusedError("it has an array that is none")
    if not all(type(side) is int and 0 <= side < 2**31 for side in shape):
        raise _RefusedError("it has an array with sides that are no sizes")
    if math.prod(shape) * dtype.numpy().itemsize != len(raw):
        raise _RefusedError(f"it has an array of {shape} with {len(raw)} bytes")
    return np.frombuffer(raw, dtype.numpy()).reshape(shape, order="F" if order == "F" else "C").copy()


def _of_state(state: object) -> npt.NDArray[Any]:
    match state:
        case (int(), tuple() as shape, _Dtype() as dtype, bool() | int() as fortran, data):
            return _array(dtype, shape, data, "F" if fortran else "C")
    raise _RefusedError("it has an array whose state is none")


def _scalar(dtype: object, data: object) -> int | float | bool:
    number: int | float | bool = _array(dtype, (), data, "C").item()
    return number


CALLS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _dtype,
    "numpy._core.multiarray._reconstruct": lambda *_: _Array(),
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": lambda data, dtype, shape, order: _array(dtype, shape, data, order),
    # Old protocols write bytes as text with its encoding, and no bytes as a call without arguments.
    "_codecs.encode": lambda text, _encoding="latin1": _raw(text),
    "builtins.bytes": lambda: b"",
}
"""The functions that are called in place of those that a file names. They can do nothing else than build plain data."""
NAMES = {"numpy.ndarray", *CALLS}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
TEXT = {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}


class _Machine:
    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._size = size

    def step(self, code: str, argument: Any) -> None:
        stack = self.stack
        if code in TEXT or code in BYTES:
            stack.append(argument)
        elif code in NUMBERS:
            if isinstance(argument, int) and not -(2**63) <= argument < 2**64:
                raise _RefusedError("it has a number of more than 64 bits")
            stack.append(argument)
        elif code in CONSTANTS:
            stack.append(CONSTANTS[code])
        elif code in EMPTY:
            stack.append(EMPTY[code]())
        elif code == "MARK":
            stack.append(MARK)
        elif code in ("PROTO", "FRAME"):
            pass
        elif code == "POP":
            stack.pop()
        elif code == "POP_MARK":
            self._above_mark()
        elif code in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = len(self._memo) if code == "MEMOIZE" else argument
            if not 0 <= place < self._size:
                raise _RefusedError("it numbers what it remembers beyond its own size")
            self._memo[place] = stack[-1]
            if isinstance(stack[-1], _Unbuilt):
                stack[-1].places.append(place)
        elif code in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif code in ("TUPLE", "LIST"):
            entries = self._above_mark()
            stack.append(tuple(entries) if code == "TUPLE" else entries)
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(code[-1])
            entries = [stack.pop() for _ in range(count)][::-1]
            stack.append(tuple(entries))
        elif code == "APPEND":
            entry = stack.pop()
            self._top(list).append(entry)
        elif code == "APPENDS":
            entries = self._above_mark()
            self._top(list).extend(entries)
        elif code == "DICT":
            entries = self._above_mark()
            stack.append({})
            self._set(entries)
        elif code == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._set([key, value])
        elif code == "SETITEMS":
            self._set(self._above_mark())
        elif code == "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        elif code == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(_named(module, name))
        elif code == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            if not isinstance(called, _Name) or called.text not in CALLS or not isinstance(arguments, tuple):
                raise _RefusedError("it calls what is no function")
            stack.append(CALLS[called.text](*arguments))
        elif code == "BUILD":
            state, built = stack.pop(), stack.pop()
            if isinstance(built, _Dtype):
                self._replace(built, _with_order(built, state))
            elif isinstance(built, _Array):
                self._replace(built, _of_state(state))
            else:
                raise _RefusedError(f"it sets the state of a {type(built).__name__}")
        else:
            raise _RefusedError(f"it uses {code}")

    def _replace(self, before: _Unbuilt, after: object) -> None:
        """Push what has its state now, and remember it where it was remembered without."""
        self.stack.append(after)
        for place in before.places:
            self._memo[place] = after

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise _RefusedError(f"it fills a {type(self.stack[-1]).__name__} as a {kind.__name__}")
        return self.stack[-1]

    def _above_mark(self) -> list[Any]:
        entries: list[Any] = []
        while (entry := self.stack.pop()) is not MARK:
            entries.append(entry)
        return entries[::-1]

    def _set(self, entries: list[Any]) -> None:
        into = self._top(dict)
        for key, value in zip(entries[::2], entries[1::2], strict=True):
            # Text alone: the hashes of numbers can be chosen so that all collide.
            if type(key) is not str:
                raise _RefusedError(f"it has a dictionary with a {type(key).__name__} for a key")
            into[key] = value


def _named(module: object, name: object) -> _Name:
    text = f"{module}.{name}"
    if text.startswith("numpy.core."):
        text = "numpy._core." + text.removeprefix("numpy.core.")
    text = {"__builtin__.bytes": "builtins.bytes"}.get(text, text)
    if text not in NAMES:
        raise _RefusedError(f"it asks for {text}")
    return _Name(text)


def _check(value: object) -> None:
    """Refuse what is not plain, too deep, or too much."""
    waiting, entries, characters = [(value, 0)], 0, 0
    while waiting:
        entry, depth = waiting.pop()
        within: Iterable[object] = ()
        if isinstance(entry, np.ndarray):
            characters += entry.size
        elif isinstance(entry, str):
            characters += len(entry)
            entry.encode()  # text that cannot be written is refused here
        elif isinstance(entry, dict):
            within = (each for pair in entry.items() for each in pair)
        elif type(entry) in (list, tuple):
            within = entry  # type: ignore[assignment]
        elif not (entry is None or isinstance(entry, bool | int | float)):
            raise _RefusedError(f"it has a {type(entry).__name__.strip('_').lower()} where a value should be")
        waiting += [(each, depth + 1) for each in within]
        entries += 1
        if depth > MAX_DEPTH:
            raise _RefusedError(f"it has lists within lists more than {MAX_DEPTH} deep")
        if entries + len(waiting) > MAX_ENTRIES or characters > MAX_CHARACTERS:
            raise _RefusedError("it stands for far more than its own size")


def read_pickle(path: Path) -> Any:
    """Return the lists, dictionaries, text, numbers and arrays of a pickle; `InvalidInputError` if it has others."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InvalidInputError(
            f"{path} has {size} bytes, more than a ground truth; give a gnd_*.pkl file.", code="unsafe-pickle"
        )
    machine = _Machine(size)
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(path.read_bytes())):
            if number > MAX_OPCODES:
                raise _RefusedError(f"it has more than {MAX_OPCODES} steps")  # noqa: TRY301
            if opcode.name != "STOP":
                machine.step(opcode.name, argument)
        (value,) = machine.stack
        _check(value)
    except Exception as error:  # a damaged pickle may raise anything
        why = error if isinstance(error, _RefusedError) else f"it is damaged ({error})"
        raise InvalidInputError(
            f"{path} is not a ground truth that can be read safely: {why}; nothing of it was run. Take it from where "
            "it was published.",
            code="unsafe-pickle",
        ) from error
    return value
