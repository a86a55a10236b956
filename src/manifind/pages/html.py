"""Self-contained HTML: a query with its results, or the chain of photos behind one of them. No script, no request."""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.types import Box

Corners = Sequence[tuple[float, float]]
"""x and y of each, in pixels of the photo."""

THUMBNAIL = 360
"""Long side of the pictures in a page, in pixels."""

STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#faf8f3, #161513); --ink: light-dark(#23201b, #ece7dd);
  --faint: light-dark(#655f54, #a8a195); --rule: light-dark(#e2dccf, #37342e); --mat: light-dark(#efebe2, #2a2824);
  --accent: light-dark(#8c2f1b, #f0926f); --asked: #2f9fe0; --found: #ff6a2b; --sure: light-dark(#22683b, #7fd197);
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", "URW Palladio L", Georgia, serif; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; background: var(--paper);
  color: var(--ink); margin: 2rem auto; padding: 0 1rem; max-width: 80rem; }
h1, h2 { font-family: var(--serif); font-weight: 600; line-height: 1.2; text-wrap: balance; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .8rem; } p { margin: .3rem 0; }
a { color: var(--accent); }
.row { display: flex; flex-wrap: wrap; gap: 1rem .8rem; align-items: flex-start; }
figure { margin: 0; flex: var(--aspect, 1.33) 1 calc(var(--aspect, 1.33) * 11.4rem);
  max-width: calc(var(--aspect, 1.33) * 17rem); min-width: 7.4rem; }
.photo { position: relative; background: var(--mat); border-radius: 3px; overflow: hidden; }
.photo img { display: block; width: 100%; height: auto; }
.photo svg { position: absolute; inset: 0; width: 100%; height: 100%; }
rect, polygon { fill: none; stroke: var(--found); vector-effect: non-scaling-stroke;
  filter: drop-shadow(0 0 1px #000c); }
figure.query rect { stroke: var(--asked); }
figcaption { padding: .3rem 0; font-size: .82rem; overflow-wrap: anywhere; }
figcaption b { font: 600 1rem/1 var(--serif); color: var(--accent); font-variant-numeric: lining-nums tabular-nums; }
.faint { color: var(--faint); } .verified { color: var(--sure); font-weight: 600; }
.doubtful .photo { filter: saturate(.35) opacity(.72); }
.line { flex: 1 0 100%; margin: 1.1rem 0 .5rem; padding-top: .7rem; border-top: 2px dashed var(--accent);
  font-family: var(--serif); font-weight: 600; color: var(--accent); font-size: 1.05rem; }
.filler { flex: 1000 0 0; }
.arrow { align-self: center; font-size: 1.4rem; color: var(--faint); text-align: center; }
.arrow small { display: block; font-size: .75rem; max-width: 7rem; }
.arrow.strong { color: var(--sure); font-weight: 700; } .arrow.weak { opacity: .6; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
.small figure { flex-basis: calc(var(--aspect, 1.33) * 6rem); max-width: calc(var(--aspect, 1.33) * 7.5rem); }
.small .row { gap: .6rem; }
.right { color: light-dark(#2b8a3e, #69db7c); } .wrong { color: light-dark(#c92a2a, #ff8787); }
img.wide { display: block; max-width: 100%; height: auto; background: white; border-radius: 6px; }
"""
"""The look of the service's page (``serve/page/style.css``)."""


@dataclass(frozen=True)
class Picture:
    """A photo for a page: its pixels at any size, its true size, and what to draw in it, boxes with their strength."""

    pixels: npt.NDArray[np.uint8]
    width: int
    height: int
    boxes: Sequence[tuple[Box, float]] = ()
    caption: str = ""
    """HTML."""
    query: bool = False
    outlines: Sequence[Corners] = ()
    """Corners of what geometry found, in place of boxes."""
    doubtful: bool = False
    """It stands below the line."""


def page(title: str, subtitle: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a page of sections, each a heading and HTML."""
    body = "".join(f"<h2>{html.escape(heading)}</h2>{content}" for heading, content in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{html.escape(title)}</h1><p class="faint">{html.escape(subtitle)}</p>{body}</body></html>\n'
    )


def gallery(pictures: Iterable[Picture], rule: str = "") -> str:
    """Return pictures side by side; a rule with these words stands before the first doubtful one."""
    parts = []
    for picture in pictures:
        if picture.doubtful and rule:
            parts.append(f'<div class="line">{html.escape(rule)}</div>')
            rule = ""
        parts.append(_figure(picture))
    return f'<div class="row">{"".join(parts)}<div class="filler"></div></div>'


def chain(pictures: Sequence[Picture], links: Sequence[str], looks: Sequence[str] = ()) -> str:
    """Return pictures with an arrow between each two, what is written under it, and how it looks."""
    parts = [_figure(pictures[0])]
    for picture, link, look in zip(pictures[1:], links, looks or [""] * len(links), strict=True):
        arrow = "⇢" if look == "weak" else "→"
        parts += [f'<div class="arrow {look}">{arrow}<small>{html.escape(link)}</small></div>', _figure(picture)]
    return f'<div class="row">{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: names in the first column, figures in the others."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def illustration(png: bytes, alt: str) -> str:
    """Return a drawing, as wide as the page."""
    return f'<img class="wide" alt="{html.escape(alt)}" src="{data_address(png, "png")}">'


def _figure(picture: Picture) -> str:
    shapes = "".join(
        f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" '
        f'stroke-width="{1 + 2 * strength:.1f}" opacity="{0.35 + 0.65 * strength:.2f}"/>'
        for (x0, y0, x1, y1), strength in picture.boxes
    )
    shapes += "".join(
        f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in seen)}" stroke-width="3"/>'
        for seen in (seen_part(outline, picture.width, picture.height) for outline in picture.outlines)
    )
    frame = f'viewBox="0 0 {picture.width} {picture.height}" preserveAspectRatio="none" aria-hidden="true"'
    overlay = f"<svg {frame}>{shapes}</svg>"
    kind = ' class="query"' if picture.query else ' class="doubtful"' if picture.doubtful else ""
    aspect = f"--aspect:{picture.width / picture.height:.3f}"
    return (
        f'<figure{kind} style="{aspect}"><div class="photo"><img alt="" src="{inline(picture.pixels)}">{overlay}</div>'
        f"<figcaption>{picture.caption}</figcaption></figure>"
    )


def seen_part(outline: Corners, width: float, height: float) -> list[tuple[float, float]]:
    """Return the part of an outline that lies in the photo: one that goes beyond it is closed along the border."""
    left = list(outline)
    for axis, sign, border in ((0, 1, 0.0), (0, -1, -width), (1, 1, 0.0), (1, -1, -height)):
        kept = []
        for before, here in zip((left[-1:] + left)[:-1], left, strict=True):
            out, into = sign * before[axis] - border, sign * here[axis] - border
            if (out < 0) != (into < 0):
                part = out / (out - into)
                kept.append((before[0] + part * (here[0] - before[0]), before[1] + part * (here[1] - before[1])))
            if into >= 0:
                kept.append(here)
        left = kept
    return left


def inline(pixels: npt.NDArray[np.uint8], side: int = THUMBNAIL) -> str:
    """Return a photo of at most so many pixels a side as an address that holds all of it."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return data_address(buffer.getvalue(), "jpeg")


def data_address(picture: bytes, kind: str) -> str:
    """Return a picture as an address that holds all of it."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()
