"""What somebody who means harm would try, tried by one command: ``scripts/attack``.

Each module of this package is an area and has ``ATTACKS``: functions by the name of what is attacked. A function takes
a `Place` and returns, in a few words, what was measured; where the attack succeeds, it calls `broken`, or an assertion
of its own fails. Everything runs against an installation of manifind in processes of its own, so that another one can
be attacked as well (``scripts/attack --python OTHER/bin/python``).
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
from PIL import Image

PHOTOS = 12


@dataclass(frozen=True)
class Place:
    """Where attacks are made: a folder of their own, and the installation that is attacked."""

    folder: Path
    python: str

    def new(self, name: str) -> Path:
        """Return a folder that nobody else uses."""
        made = self.folder / name
        made.mkdir()
        return made

    def command(self, *words: object, seconds: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run ``manifind`` with these words."""
        return subprocess.run(  # noqa: S603
            [self.python, "-m", "manifind.cli", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    @cached_property
    def photos(self) -> Path:
        """A folder of small photos, a large one of 36 million pixels, and some with odd names."""
        return photos(self.new("photos"), large=True)

    @cached_property
    def index(self) -> Path:
        """An index of `photos`; whoever changes it copies it first."""
        made = self.folder / "photos.manifind"
        answer = self.command("index", self.photos, "-o", made)
        if answer.returncode:
            broken(f"no index could be made: {answer.stderr[-300:]}")
        return made


Attack = Callable[[Place], str]


def broken(sentence: str) -> NoReturn:
    """Say that an attack succeeded."""
    raise AssertionError(sentence)


def program(area: str, count: int) -> Attack:
    """Return the attack that an area makes by itself: it fails with its exit code, and its last line says what was."""

    def attack(place: Place) -> str:
        done = subprocess.run(  # noqa: S603
            [place.python, "-m", f"tests.attack.{area}", str(count)],
            check=False,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        if done.returncode:
            broken(f"{done.stdout[-1500:]}{done.stderr[-500:]}")
        return done.stdout.splitlines()[-1]

    return attack


def photos(folder: Path, *, large: bool = False, first: int = 0) -> Path:
    """Fill a folder with photos that differ."""
    for number in range(first, first + PHOTOS):
        picture(number, 400, 300).save(folder / f"{number:02d}.jpg", quality=90)
    for number, name in enumerate(("=1+1.png", "turned\u202egnp.exe.png")):
        picture(100 + first + number, 300, 200).save(folder / name)
    if large:
        picture(7, 7200, 5000).save(folder / "large.jpg", quality=85)
    return folder


def picture(seed: int, width: int, height: int) -> Image.Image:
    """A picture that no other seed makes: blots of colour."""
    blots = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize((width, height), Image.Resampling.BICUBIC)
