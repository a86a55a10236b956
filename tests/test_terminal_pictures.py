"""Pictures in terminals, read back as a terminal would."""

import base64
import io
import re

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind.cli.terminal_pictures import check_protocol, picture_protocol, show_picture, strip
from manifind.errors import InvalidInputError
from manifind.index import Hit, QueryRegions, QueryView
from manifind.reports.html import SHEET_WIDTH, Picture


@pytest.fixture
def picture() -> Image.Image:
    """Four flat fields and a stripe, of a height that no band of sixels divides."""
    pixels = np.zeros((20, 31, 3), np.uint8)
    pixels[:10, :15], pixels[:10, 15:], pixels[10:, :15] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    pixels[4, :] = 255
    return Image.fromarray(pixels)


def unpacked_sixels(text: str) -> npt.NDArray[np.float64]:
    """Draw what sixels say: the pixels of a terminal."""
    head = re.match(r'\x1bPq"1;1;(\d+);(\d+)', text)
    assert head is not None
    width, height = map(int, head.groups())
    canvas, palette = np.zeros((height, width, 3)), {}
    x = y = colour = 0
    for match in re.finditer(
        r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|(\$)|(-)", text[head.end() : -2]
    ):
        number, *rgb, chosen, count, repeated, single, back, down = match.groups()
        if number is not None:
            palette[int(number)] = [2.55 * float(one) for one in rgb]
        elif chosen is not None:
            colour = int(chosen)
        elif back or down:
            x, y = 0, y + 6 * bool(down)
        else:
            times, bits = int(count or 1), ord(repeated or single) - 63
            for row in range(6):
                if bits >> row & 1:
                    canvas[y + row, x : x + times] = palette[colour]
            x += times
    return canvas


def test_sixels_are_the_picture(picture: Image.Image) -> None:
    np.testing.assert_allclose(unpacked_sixels(show_picture(picture, "sixel")), np.asarray(picture), atol=3)


def test_kitty_and_iterm_are_sent_the_picture(picture: Image.Image) -> None:
    large = picture.resize((900, 700))
    commands = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", show_picture(large, "kitty"))
    assert [options for options, _ in commands] == ["a=T,f=100,m=1", *["m=1"] * (len(commands) - 2), "m=0"]
    assert all(len(part) <= 4096 for _, part in commands)
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+):(.*)\a", show_picture(large, "iterm"))
    assert found is not None
    for data in ("".join(part for _, part in commands), found[2]):
        sent = base64.b64decode(data)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(sent))), np.asarray(large))
    assert int(found[1]) == len(sent)


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_a_terminal_says_who_it_is(environment: dict[str, str], protocol: str | None) -> None:
    assert picture_protocol(environment) == protocol
    with pytest.raises(InvalidInputError, match="--html"):
        check_protocol(environment, is_terminal=False)


def test_photos_stand_in_rows_with_rank_and_outline() -> None:
    query = QueryRegions.of([QueryView(np.ones((1, 1), np.float32), np.zeros((1, 4), np.float32))])
    pixels = np.full((120, 160, 3), 90, np.uint8)
    found = [
        (
            Hit(rank=rank, key="a.png", score=1.0, box=None, regions=(), duplicates=(), image=rank, query=query),
            Picture(pixels, 1600, 1200, outlines=[[(800, 600), (1500, 600), (1500, 1100), (800, 1100)]]),
        )
        for rank in range(1, 8)
    ]
    sheet = np.asarray(strip(found))
    assert sheet.shape == (132 * 2 + 6, 4 * 176 + 3 * 6, 3)
    assert sheet.shape[1] <= SHEET_WIDTH
    orange = (sheet == (255, 106, 43)).all(axis=2)
    assert orange[:132, :176].any()
    assert not orange[:60, :80].any()  # the outline is where the object is
