"""Try an installed manifind as a stranger would: photos, descriptors and commands, in an empty folder.

    python trial.py [--core | --no-core]

Needs what a default install brings and nothing else. Prints what it found and how large the install is; fails where
something that must hold does not.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import manifind
from manifind import kernels

THINGS, SCENES = 4, 6


def backdrop(seed: int) -> Image.Image:
    """Return soft patches of dull colours."""
    dull = np.random.default_rng(seed).integers(90, 150, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(dull).resize((320, 240), Image.Resampling.BICUBIC)


def thing(number: int) -> Image.Image:
    """Return a pattern that no other number has: rings, stripes, squares or dots, with a little dirt for corners."""
    picture = Image.new("RGB", (160, 160), ("gold", "navy", "darkgreen", "white")[number % 4])
    drawn = ImageDraw.Draw(picture)
    colours = (("crimson", "black"), ("orange", "white"), ("yellow", "red"), ("blue", "black"))[number % 4]
    for step in range(0, 160, 20):
        colour = colours[step // 20 % 2]
        if number % 4 == 0:
            drawn.ellipse((step / 2, step / 2, 160 - step / 2, 160 - step / 2), fill=colour)
        elif number % 4 == 1:
            drawn.polygon([(step, 0), (step + 10, 0), (step - 50, 160), (step - 60, 160)], fill=colour)
        elif number % 4 == 2:
            for other in range(0, 160, 40):
                drawn.rectangle((step, other + step % 40, step + 19, other + step % 40 + 19), fill=colour)
        else:
            for other in range(0, 160, 20):
                drawn.ellipse((step + 3, other + 3, step + 15, other + 15), fill=colours[(step + other) // 20 % 2])
    rng = np.random.default_rng(number)
    for x, y in rng.integers(0, 150, (40, 2)).tolist():
        drawn.rectangle((x, y, x + 5, y + 3), fill=tuple(rng.integers(0, 256, 3).tolist()))
    return picture


def make_photos(folder: Path) -> None:
    """Write scenes with one of a few things in each, and scenes with none."""
    folder.mkdir()
    for number in range(THINGS + 1):
        for view in range(SCENES):
            photo = backdrop(100 * number + view)
            if number:
                side = 90 + 12 * view
                photo.paste(thing(number).resize((side, side)), (10 + 20 * view, 5 + 8 * view))
            photo.save(folder / f"{'nothing' if not number else f'thing{number}'}-{view}.png")


def command(*words: str) -> str:
    """Run a command of manifind and return what it prints."""
    program = [sys.executable, "-m", "manifind.cli", *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"manifind {' '.join(words)} exits with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def photos() -> None:
    """Make an index, find a thing by a box in one photo, change the folder, and check."""
    make_photos(Path("photos"))
    command("index", "photos")
    photo, box = "photos/thing2-0.png", (10, 5, 100, 95)
    found = [hit.key for hit in manifind.Index.open("photos.manifind").search(photo, box, top=SCENES)]
    right = sum(key.startswith("thing2") for key in found)
    print(f"search: {right} of the first {SCENES} are right ({', '.join(found)})")
    if right < SCENES - 1:
        raise SystemExit("a thing is not found in photos that plainly show it.")
    asked = ("search", "photos.manifind", photo, "--box", ",".join(map(str, box)), "--json", "--top", str(SCENES))
    results = json.loads(command(*asked))["results"]
    matches = [hit["key"] for hit in results if hit["is_match"]]
    print(f"matches: {', '.join(matches)}")
    if not matches or not all(key.startswith("thing2") for key in matches):
        raise SystemExit("the photos said to match are not those of the thing.")
    if kernels.compiled() and sum(hit["verified"] is True for hit in results) < SCENES - 1:
        raise SystemExit("geometry verifies too little.")
    Path("photos/thing2-5.png").unlink()
    command("index", "photos")
    command("check", "photos.manifind")
    facts = json.loads(command("info", "photos.manifind", "--json"))
    if facts["photos"] != (THINGS + 1) * SCENES - 1:
        raise SystemExit(f"the index has {facts['photos']} photos.")


def descriptors() -> None:
    """Search descriptors, save, and load: f is compared with the dense solution."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 24))
    rows = np.repeat(centres, 10, axis=0) + 0.6 * rng.standard_normal((200, 24))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    manifold = manifind.Manifold(k=10, query_k=5, max_iter=200, tol=1e-10).fit(rows)
    ranking = manifold.search(rows[:1], top=10)
    similarities = np.maximum(rows @ rows[0], 0).astype(np.float64) ** 3
    y = np.where(similarities >= np.sort(similarities)[-5], similarities, 0)
    dense = np.linalg.solve(np.eye(200) - 0.99 * manifold.S_.toarray().astype(np.float64), 0.01 * y)
    if not np.allclose(ranking.scores, np.sort(dense)[::-1][:10], rtol=1e-4):
        raise SystemExit("the scores are not the solution of (I - αS) f = (1 - α) y.")
    manifold.save("rows.manifold")
    again = manifind.Manifold.load("rows.manifold").search(rows[:1], top=10)
    if again.images.tolist() != ranking.images.tolist():
        raise SystemExit("a loaded manifold ranks otherwise.")
    print("descriptors: the scores are those of the dense solution")


def evaluation() -> None:
    """Measure on the photos, by a truth of one's own."""
    positives = [f"thing1-{view}.png" for view in range(1, SCENES)]
    query = {"image": "thing1-0.png", "box": [10, 5, 100, 95], "positives": positives}
    Path("truth.json").write_text(json.dumps({"name": "things", "queries": [query]}))
    table = command("evaluate", "photos.manifind", "--truth", "truth.json", "--json", "--no-cache")
    figures = {row["title"]: row["mAP_trapezoid"] for row in json.loads(table)["results"]}
    print("evaluate:", ", ".join(f"{title} {figure:.1f}" for title, figure in figures.items()))


def completion() -> None:
    """Let a shell complete a word."""
    asked = {"_MANIFIND_COMPLETE": "bash_complete", "COMP_WORDS": "manifind rep", "COMP_CWORD": "1"}
    program = str(Path(sysconfig.get_path("scripts")) / "manifind")
    told = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, **asked})  # noqa: S603
    if "repeats" not in told.stdout:
        raise SystemExit(f"the shell cannot complete a command: {told.stdout}{told.stderr}")
    print("the shell completes commands")


def size() -> str:
    """Return how large the install is, packages that make environments left out."""
    ours = [one for one in metadata.distributions() if one.metadata["Name"] not in ("pip", "setuptools", "wheel")]
    count = 0
    for distribution in ours:
        files = (Path(str(distribution.locate_file(file))) for file in distribution.files or ())
        count += sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc")
    return f"{len(ours)} packages, {count / 1e6:.0f} MB"


def main(words: list[str]) -> None:
    """Try everything, in a folder that is gone afterwards."""
    installed = Path(manifind.__file__)
    if not installed.is_relative_to(sysconfig.get_path("platlib")) and not installed.is_relative_to(
        sysconfig.get_path("purelib")
    ):
        raise SystemExit(f"manifind is imported from {installed}, which is no install.")
    core = kernels.compiled()
    if ("--core" in words and not core) or ("--no-core" in words and core):
        raise SystemExit(f"the compiled core: {json.loads(command('info', '--system', '--json'))['core']}.")
    print(command("--version").strip(), "with" if core else "without", "the compiled core:", size())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            photos()
            descriptors()
            evaluation()
            completion()
        finally:
            os.chdir(installed.parent)


if __name__ == "__main__":
    main(sys.argv[1:])
