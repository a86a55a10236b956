"""Draw the rooms of the house and who imports whom, from the imports themselves: docs/rooms.svg.

    scripts/rooms

Rows are the layers of ``tool.importlinter`` in pyproject.toml, which a check keeps to. An arrow goes from a room to a
room that it imports. An arrow that only repeats what two others say, by way of a room between, is drawn faintly.
"""

import ast
import html
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "manifind"
DRAWING = ROOT / "docs" / "rooms.svg"
BESIDE = ("errors", "types", "version", "checks", "storage", "networks", "layout", "boxes")
"""Rooms that nearly all others use; arrows to them would hide the rest, and their users are counted instead."""

WIDTH, ROW, HEIGHT, ROOM = 1000, 74, 34, 118


def layers() -> list[list[str]]:
    """Return the rooms by layer, the topmost first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [[name.strip().removeprefix("manifind.") for name in row.split("|")] for row in contract["layers"]]


def imports() -> dict[str, set[str]]:
    """Return for each room the other rooms that its files import, read and never run."""
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        uses = found.setdefault(room, set())
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            uses |= _rooms_of(node)
        uses.discard(room)
    return found


def _rooms_of(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "manifind":
        names = {alias.name for alias in node.names}
        return {_home(name) for name in names}
    if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("manifind."):
        return {(node.module or "").split(".")[1]}
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("manifind.")}
    return set()


def _home(name: str) -> str:
    """Return the room of a name that `manifind` itself offers, or of a room."""
    if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file():
        return name
    homes = {"Index": "index", "Answer": "index", "Hit": "index", "Manifold": "manifold", "Ranking": "ranking"}
    return homes.get(name, {"Client": "client", "__version__": "version"}.get(name, "errors"))


def short_cuts(uses: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports of a room that another room, which it imports too, reaches as well."""
    reach: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in reach:
            reach[room] = set()
            for other in uses.get(room, ()):
                reach[room] |= {other} | reached(other)
        return reach[room]

    return {
        (room, far)
        for room, others in uses.items()
        for far in others
        if any(far in reached(near) for near in others if near != far)
    }


def drawing() -> str:
    """Return the drawing."""
    uses = imports()
    rows = layers()
    listed = {room for row in rows for room in row}
    missing = set(uses) - listed
    if missing:
        raise SystemExit(f"{', '.join(sorted(missing))}: no layer of tool.importlinter has that room.")
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        step = WIDTH / (len(row) + 1)
        for place, room in enumerate(row):
            shift = (number % 2 - 0.5) * 60 if len(row) == 1 else 0
            places[room] = (step * (place + 1) + shift, 30 + number * ROW)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {30 + len(rows) * ROW}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        "<title>The rooms of manifind, and who imports whom</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#2a6fbb"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{30 + len(rows) * ROW}" fill="#ffffff"/>',
    ]
    faint = short_cuts(uses)
    arrows = sorted((room, other) for room, others in uses.items() for other in others if other not in BESIDE)
    for room, other in sorted(arrows, key=lambda pair: pair not in faint):
        (x0, y0), (x1, y1) = places[room], places[other]
        look = ' stroke-opacity="0.18"' if (room, other) in faint else ' marker-end="url(#tip)"'
        top, end = y0 + HEIGHT, y1 - 2
        lines.append(
            f'<path d="M{x0:.0f} {top:.0f}C{x0:.0f} {top + 26:.0f} {x1:.0f} {end - 26:.0f} {x1:.0f} {end:.0f}" '
            f'fill="none" stroke="#2a6fbb" stroke-width="1.4"{look}/>'
        )
    for room, (x, y) in places.items():
        users = sum(room in others for others in uses.values())
        below = f"used by {users} rooms" if room in BESIDE else ""
        fill = "#f3f1ea" if room in BESIDE else "#e8f0f9"
        lines.append(
            f'<rect x="{x - ROOM / 2:.0f}" y="{y}" width="{ROOM}" height="{HEIGHT}" rx="6" fill="{fill}" '
            'stroke="#345"/>'
            f'<text x="{x:.0f}" y="{y + (15 if below else 22)}">{html.escape(room)}</text>'
            f'<text x="{x:.0f}" y="{y + 29}" font-size="10" fill="#556">{below}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
