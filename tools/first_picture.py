"""Draw the picture of README: one query, what plain similarity finds first, and what manifind finds first.

    python tools/first_picture.py INDEX PHOTO X0,Y0,X1,Y1 [-o docs/first.jpg]

The photos of docs/first.jpg are from the Grocery Store dataset by Marcus Klasson (MIT licence): its folders
``test/Packages/Juice`` and ``test/Packages/Milk``, of which ``manifind index`` made the index with nothing but its
defaults. A photo counts as right if it lies in the folder of the query.
"""

import argparse
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from manifind import Hit, Index

SIDE, GAP, SHOWN = 150, 10, 6
RIGHT, WRONG, INK = "#1b9e54", "#c8202e", "#222222"


def tile(file: Path, colour: str | None, outline: list[tuple[float, float]] | None) -> Image.Image:
    """Return a photo at a fixed size, framed, with what matched outlined."""
    photo = Image.open(file).convert("RGB")
    scale = SIDE / max(photo.size)
    small = photo.resize((round(scale * photo.width), round(scale * photo.height)), Image.Resampling.LANCZOS)
    made = Image.new("RGB", (SIDE, SIDE), "white")
    at = (SIDE - small.width) // 2, (SIDE - small.height) // 2
    made.paste(small, at)
    drawn = ImageDraw.Draw(made)
    if outline:
        corners = [(at[0] + scale * x, at[1] + scale * y) for x, y in outline]
        drawn.line([*corners, corners[0]], fill="#ffd400", width=3)
    if colour:
        drawn.rectangle((0, 0, SIDE - 1, SIDE - 1), outline=colour, width=5)
    return made


def corners_of(hit: Hit) -> list[tuple[float, float]] | None:
    """Return the outline of what matched, or its box."""
    if hit.outline is not None:
        return [(float(x), float(y)) for x, y in hit.outline]
    if hit.box is None:
        return None
    x0, y0, x1, y1 = hit.box
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def picture(index: Index, key: str, box: tuple[float, float, float, float]) -> tuple[Image.Image, list[int]]:
    """Return the picture, and how many of each row are right."""
    height = 2 * (SIDE + 30) + GAP
    made = Image.new("RGB", ((SHOWN + 1) * (SIDE + GAP) + 50, height), "white")
    drawn = ImageDraw.Draw(made)
    font = ImageFont.load_default(15)
    x0, y0, x1, y1 = box
    drawn.text((GAP, (height - SIDE) // 2 - 24), "find this", fill=INK, font=font)
    around = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    made.paste(tile(index.root / key, None, around), (GAP, (height - SIDE) // 2))
    counts = []
    for row, (method, title) in enumerate((("plain", "plain similarity finds"), ("regional", "manifind finds"))):
        answer = index.search(key, box=box, top=SHOWN + 1, method=method)
        hits = [hit for hit in answer if hit.key != key][:SHOWN]
        top = row * (SIDE + 30 + GAP)
        drawn.text((SIDE + 60, top + 4), title, fill=INK, font=font)
        right = [Path(hit.key).parent == Path(key).parent for hit in hits]
        counts.append(sum(right))
        for place, (hit, good) in enumerate(zip(hits, right, strict=True)):
            shown = tile(index.root / hit.key, RIGHT if good else WRONG, corners_of(hit) if row else None)
            made.paste(shown, (SIDE + 60 + place * (SIDE + GAP), top + 26))
    return made, counts


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("photo", help="the key of a photo of the index")
    parser.add_argument("box", help="X0,Y0,X1,Y1")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/first.jpg"))
    given = parser.parse_args()
    x0, y0, x1, y1 = (float(part) for part in given.box.split(","))
    made, counts = picture(Index.open(given.index), given.photo, (x0, y0, x1, y1))
    made.save(given.output, quality=88)
    print(f"right of {SHOWN}: plain similarity {counts[0]}, manifind {counts[1]}")


if __name__ == "__main__":
    main()
