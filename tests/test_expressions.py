"""Whatever reads words from outside takes time that grows with their length, and no faster."""

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from manifind.cli.parameters import BOX, BYTES, EXAMPLE
from manifind.reports.text import cell, visible
from manifind.serve.guard import _cookies
from manifind.serve.schemas import ViewRequest, corners

SOURCE = Path(__file__).resolve().parents[1] / "src" / "manifind"
PIECES = ["1", ".", ",", "e", "-", "a", " ", "\\", "'", '"', ";", "@", "=", "\t", "\u202e"]
ENDS = ["", "!"]


def attacks(length: int) -> Iterator[str]:
    """Words that an expression can be read in many ways for, as far as anybody knows: repeated pieces, alone and in
    pairs, in a run and in four runs, with an end that fits and with ends that do not."""
    for one, other in product(PIECES, repeat=2):
        for end in ENDS:
            yield (one + other) * (length // 2) + end
            yield other.join([one * (length // 4)] * 4) + end


def reader_of_pattern(pattern: "re.Pattern[Any]", anywhere: bool) -> Callable[[str], object]:
    def read(text: str) -> None:
        subject: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
        pattern.match(subject)
        pattern.fullmatch(subject)
        if anywhere:
            pattern.sub(subject[:0], subject)

    return read


def expressions() -> dict[str, Callable[[str], object]]:
    """Every expression in the program: those of modules by name, and those within functions by their words."""
    found: dict[str, Callable[[str], object]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "import re\n" not in text:
            continue
        name = ".".join(("manifind", *file.relative_to(SOURCE).with_suffix("").parts))
        for key, value in vars(importlib.import_module(name)).items():
            for sub, one in value.items() if isinstance(value, dict) else [("", value)]:
                if isinstance(one, re.Pattern):
                    anywhere = re.search(rf"{key}\.(sub|search|finditer|findall|split)\(", text) is not None
                    found[f"{name}.{key} {sub}"] = reader_of_pattern(one, anywhere)
        for call in ast.walk(ast.parse(text)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if ast.unparse(call.func.value) == "re" and call.func.attr not in ("compile", "escape"):
                first = call.args[0]
                assert isinstance(first, ast.Constant), f"{name}: an expression that no test can see"
                anywhere = call.func.attr not in ("match", "fullmatch")
                found[f"{name}: {first.value!r}"] = reader_of_pattern(re.compile(first.value), anywhere)
    return found


READERS: dict[str, Callable[[str], object]] = {
    "a view in an address": lambda text: ViewRequest.short(f"k:{text}"),
    "a view with a box": lambda text: ViewRequest.short(f"k:a@{text}"),
    "an upload": lambda text: ViewRequest.short(f"u:{text}"),
    "a box": corners,
    "a cookie": _cookies,
    "a box on the command line": lambda text: BOX.convert(text, None, None),
    "a photo and a box on the command line": lambda text: EXAMPLE.convert(f"a@{text}", None, None),
    "an amount of memory": lambda text: BYTES.convert(text, None, None),
    "a cell": cell,
    "a visible name": visible,
    **expressions(),
}


LENGTHS = (16, 64, 512, 4096)


def seconds(read: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    with suppress(Exception):
        read(text)
    return time.thread_time() - start


@pytest.mark.parametrize("name", READERS)
def test_no_words_take_longer_to_read_than_their_length_says(name: str) -> None:
    """Eight times as long may take sixteen times the time: twice what it should, a quarter of what a square would."""
    read, before = READERS[name], 0.0
    for shorter, length in zip((16, *LENGTHS), LENGTHS, strict=False):
        allowed = max(2 * before * length / shorter, 0.004)
        worst = 0.0
        for text in attacks(length):
            took = seconds(read, text)
            for _ in range(9 if took < 1 else 1):  # not for another's sake: the machine has other things to do
                if took > allowed:
                    took = min(took, seconds(read, text))
            assert took <= allowed or shorter == length, f"{length} characters take {took:.4f} s: {text[:60]!r}…"
            worst = max(worst, took)
        before = worst
