"""A contact sheet: small pictures of results in rows, each with its rank and the outline of the object."""

from collections.abc import Sequence

from PIL import Image, ImageDraw

from manifind.reports.html import Picture

THUMBNAIL_HEIGHT, GAP, SHEET_WIDTH = 132, 6, 780
"""In pixels: of each photo, between two, and of a row."""
OUTLINE = (255, 106, 43)


def contact_sheet(found: Sequence[tuple[int, Picture]]) -> Image.Image:
    """Return photos, each given with its rank, in rows of `SHEET_WIDTH`."""
    tiles = [_tile(rank, picture) for rank, picture in found]
    rows: list[list[Image.Image]] = [[]]
    for tile in tiles:
        if rows[-1] and sum(one.width + GAP for one in rows[-1]) + tile.width > SHEET_WIDTH:
            rows.append([])
        rows[-1].append(tile)
    width = max(sum(one.width + GAP for one in row) for row in rows)
    sheet = Image.new("RGB", (max(1, width - GAP), len(rows) * (THUMBNAIL_HEIGHT + GAP) - GAP))
    for number, row in enumerate(rows):
        x = 0
        for tile in row:
            sheet.paste(tile, (x, number * (THUMBNAIL_HEIGHT + GAP)))
            x += tile.width + GAP
    return sheet


def _tile(rank: int, picture: Picture) -> Image.Image:
    scale = THUMBNAIL_HEIGHT / picture.height
    size = max(1, min(SHEET_WIDTH, round(picture.width * scale))), THUMBNAIL_HEIGHT
    tile = Image.fromarray(picture.pixels).resize(size, Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(tile)
    outlines = [list(outline) for outline in picture.outlines]
    if picture.box is not None:
        x0, y0, x1, y1 = picture.box
        outlines.append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    for outline in outlines:
        corners = [(x * scale, y * scale) for x, y in outline]
        draw.line([*corners, corners[0]], fill=OUTLINE, width=2)
    draw.rectangle((0, 0, 8 + 6 * len(str(rank)), 13), fill=(0, 0, 0))
    draw.text((4, 1), str(rank), fill=(255, 255, 255))
    return tile
