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

THUMBNAIL = 360
"""Long side of the pictures in a page, in pixels."""

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#ddd, #444); --faint: light-dark(#666, #aaa); --mark: #e8590c; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 75rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
figure { margin: 0; width: 15rem; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
figure.query { border: 2px solid var(--mark); }
.photo { position: relative; } .photo img { display: block; width: 100%; height: auto; }
.photo svg { position: absolute; inset: 0; width: 100%; height: 100%; }
rect { fill: none; stroke: var(--mark); vector-effect: non-scaling-stroke; }
figcaption { padding: .4rem .6rem; font-size: .85rem; overflow-wrap: anywhere; }
figcaption b { font-variant-numeric: tabular-nums; } .faint { color: var(--faint); }
.arrow { align-self: center; font-size: 1.4rem; color: var(--faint); text-align: center; }
.arrow small { display: block; font-size: .75rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
.small figure { width: 8.4rem; } .small .row { gap: .6rem; }
.right { color: light-dark(#2b8a3e, #69db7c); } .wrong { color: light-dark(#c92a2a, #ff8787); }
img.wide { display: block; max-width: 100%; height: auto; background: white; border-radius: 6px; }
"""


@dataclass(frozen=True)
class Picture:
    """A photo for a page: its pixels at any size, its true size, and the boxes to outline with their strength."""

    pixels: npt.NDArray[np.uint8]
    width: int
    height: int
    boxes: Sequence[tuple[Box, float]] = ()
    caption: str = ""
    """HTML."""
    query: bool = False


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


def gallery(pictures: Iterable[Picture]) -> str:
    """Return pictures side by side."""
    return f'<div class="row">{"".join(map(_figure, pictures))}</div>'


def chain(pictures: Sequence[Picture], links: Sequence[str]) -> str:
    """Return pictures with an arrow between each two, and what is written under it."""
    parts = [_figure(pictures[0])]
    for picture, link in zip(pictures[1:], links, strict=True):
        parts += [f'<div class="arrow">→<small>{html.escape(link)}</small></div>', _figure(picture)]
    return f'<div class="row">{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: names in the first column, figures in the others."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def illustration(png: bytes, alt: str) -> str:
    """Return a drawing, as wide as the page."""
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    return f'<img class="wide" alt="{html.escape(alt)}" src="{source}">'


def _figure(picture: Picture) -> str:
    shapes = "".join(
        f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" '
        f'stroke-width="{1 + 2 * strength:.1f}" opacity="{0.35 + 0.65 * strength:.2f}"/>'
        for (x0, y0, x1, y1), strength in picture.boxes
    )
    frame = f'viewBox="0 0 {picture.width} {picture.height}" preserveAspectRatio="none" aria-hidden="true"'
    overlay = f"<svg {frame}>{shapes}</svg>"
    kind = ' class="query"' if picture.query else ""
    return (
        f'<figure{kind}><div class="photo"><img alt="" src="{_inline(picture.pixels)}">{overlay}</div>'
        f"<figcaption>{picture.caption}</figcaption></figure>"
    )


def _inline(pixels: npt.NDArray[np.uint8]) -> str:
    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
