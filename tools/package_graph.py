"""Draw the graph of the packages and their imports: docs/packages.svg.

    scripts/package-graph

Rows are the layers of ``tool.importlinter`` in pyproject.toml. An arrow goes from a package to a package that it
imports. Transitive imports are drawn faintly.
"""

import html
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
DRAWING = ROOT / "docs" / "packages.svg"
COMMON = ("errors", "types", "version", "checks", "storage", "networks", "groups", "boxes", "cache")
"""Packages that nearly all others import: their importers are counted, and no arrows are drawn."""

WIDTH, ROW, HEIGHT, BOX = 1000, 74, 34, 118


def layers() -> list[list[str]]:
    """Return the packages by layer, the topmost first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [[name.strip().removeprefix("manifind.") for name in row.split("|")] for row in contract["layers"]]


def imports() -> dict[str, set[str]]:
    """Return the other packages that each package imports, read by grimp; no code is run."""
    graph = grimp.build_graph("manifind", exclude_type_checking_imports=False, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules - {"manifind"}:
        package = module.split(".")[1]
        imported = {name.split(".")[1] for name in graph.find_modules_directly_imported_by(module) if "." in name}
        found.setdefault(package, set()).update(imported - {package})
    return found


def transitive_imports(uses: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports of a package that another of its imports reaches as well."""
    reach: dict[str, set[str]] = {}

    def reached(package: str) -> set[str]:
        if package not in reach:
            reach[package] = set()
            for other in uses.get(package, ()):
                reach[package] |= {other} | reached(other)
        return reach[package]

    return {
        (package, far)
        for package, others in uses.items()
        for far in others
        if any(far in reached(near) for near in others if near != far)
    }


def drawing() -> str:
    """Return the drawing as SVG."""
    uses = imports()
    rows = layers()
    listed = {package for row in rows for package in row}
    missing = set(uses) - listed
    if missing:
        raise SystemExit(f"{', '.join(sorted(missing))}: no layer of tool.importlinter has that package.")
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        step = WIDTH / (len(row) + 1)
        for place, package in enumerate(row):
            shift = (number % 2 - 0.5) * 60 if len(row) == 1 else 0
            places[package] = (step * (place + 1) + shift, 30 + number * ROW)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {30 + len(rows) * ROW}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        "<title>The packages of manifind and their imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#2a6fbb"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{30 + len(rows) * ROW}" fill="#ffffff"/>',
    ]
    transitive = transitive_imports(uses)
    arrows = sorted((package, other) for package, others in uses.items() for other in others if other not in COMMON)
    for package, other in sorted(arrows, key=lambda pair: pair not in transitive):
        (x0, y0), (x1, y1) = places[package], places[other]
        look = ' stroke-opacity="0.18"' if (package, other) in transitive else ' marker-end="url(#tip)"'
        top, end = y0 + HEIGHT, y1 - 2
        lines.append(
            f'<path d="M{x0:.0f} {top:.0f}C{x0:.0f} {top + 26:.0f} {x1:.0f} {end - 26:.0f} {x1:.0f} {end:.0f}" '
            f'fill="none" stroke="#2a6fbb" stroke-width="1.4"{look}/>'
        )
    for package, (x, y) in places.items():
        users = sum(package in others for others in uses.values())
        below = f"imported by {users}" if package in COMMON else ""
        fill = "#f3f1ea" if package in COMMON else "#e8f0f9"
        lines.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="6" fill="{fill}" '
            'stroke="#345"/>'
            f'<text x="{x:.0f}" y="{y + (15 if below else 22)}">{html.escape(package)}</text>'
            f'<text x="{x:.0f}" y="{y + 29}" font-size="10" fill="#556">{below}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
