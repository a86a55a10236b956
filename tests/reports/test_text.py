import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.reports.text import cell, visible

STARTS = "=+-@\t\r\n"
NAMES = st.text(st.sampled_from("=+-@\t\r\n;,'\"a1|＝"), max_size=12)


@pytest.mark.parametrize("start", STARTS)
def test_no_cell_begins_as_a_formula(start: str) -> None:
    assert cell(f"{start}1+1.jpg") == f"'{start}1+1.jpg"


def test_an_ordinary_name_stays_as_it_is() -> None:
    for name in ("a.jpg", "a=b.jpg", "holiday - 2.jpg", "'quoted'.jpg", "2020-01/a+b@c.jpg", ""):
        assert cell(name) == name


@given(NAMES)
def test_no_reading_of_a_table_has_a_formula(name: str) -> None:
    """Countries that write 1,5 part cells with semicolons, and whatever is pasted is parted by tabs."""
    written = io.StringIO()
    csv.writer(written).writerow(["1", cell(name), "0.5"])
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(written.getvalue(), newline=""), delimiter=separator):
            assert not any(part.startswith(tuple(STARTS)) and len(part.strip()) > 0 for part in row)


@given(NAMES, NAMES)
def test_two_names_never_become_one(one: str, other: str) -> None:
    assert (cell(one) == cell(other)) == (one == other)


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("invoice\u202egpj.exe") == "invoice\\u202egpj.exe"
    assert visible("a\u200bb") == "a\\u200bb"
    assert visible("\x1b[31mred") == "\\u001b[31mred"
    assert visible("two\nlines\tand\x00") == "two\\u000alines\\u0009and\\u0000"
    assert visible("\udc80") == "\\udc80"
    assert visible("\U000e0041") == "\\U000e0041"
    assert visible("pass\u200dword") == "pass\\u200dword"
    assert visible("\u3164\u2800\ufeff\u2066\u00ad") == "\\u3164\\u2800\\ufeff\\u2066\\u00ad"


def test_names_of_every_script_stay_as_they_are() -> None:
    for name in (
        "Ökonomie.jpg",
        "写真 1.png",
        "می‌خواهم.jpg",
        "क्‍ष.jpg",
        "❤️.jpg",
        "👨‍👩‍👧.png",
        "שלום.png",
        "صورة.jpg",
        "9\u202f41 AM.png",
    ):
        assert visible(name) == name


@given(st.text(max_size=30))
def test_every_character_that_is_left_has_a_look(text: str) -> None:
    kept = set(visible(text)) - {"\u200c", "\u200d", "\ufe0f"}
    assert not {unicodedata.category(one) for one in kept} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
