"""What installing manifind brings: every package with its licence and size, held against a list of those looked at.

    scripts/audit            # a default install
    scripts/audit serve      # with an extra

The list is tools/audited.txt, a package and its licence a line. Whoever adds a package to it has read the licence, and
looked for what it does that nobody asked for: telemetry, downloads, files outside the index.
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

LOOKED_AT = Path(__file__).with_name("audited.txt")


def brought(name: str, extras: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Return the packages that an installed one needs, and what these need, by name."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, tuple(extras))]
    seen = set(waiting)
    while waiting:
        wanted, its_extras = waiting.pop()
        distribution = metadata.distribution(wanted)
        found[plain(wanted)] = distribution
        for line in distribution.requires or ():
            needed = Requirement(line)
            step = needed.name, tuple(sorted(needed.extras))
            here = needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in ("", *its_extras))
            if here and step not in seen:
                seen.add(step)
                waiting.append(step)
    return found


def plain(name: str) -> str:
    """Return a package's name as the index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(distribution: metadata.Distribution) -> str:
    """Return what a package says of its licence, in a few words."""
    said = distribution.metadata
    if "License-Expression" in said:
        return said["License-Expression"]
    classified = [line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or [] if line.startswith("License")]
    if classified:
        return " / ".join(sorted(classified))
    return (said["License"].strip() or "not said").splitlines()[0] if "License" in said else "not said"


def size(distribution: metadata.Distribution) -> int:
    """Return the bytes of a package's files."""
    files = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    return sum(file.stat().st_size for file in files if file.is_file())


def main(extras: list[str]) -> int:
    """Print the table; return 1 where something in it is new."""
    looked_at = {}
    for line in LOOKED_AT.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, words = line.partition(" ")
            looked_at[name] = words.strip()
    packages = brought("manifind", extras)
    packages.pop("manifind")
    new = []
    total = 0
    for name, distribution in sorted(packages.items()):
        words, count = licence(distribution), size(distribution)
        total += count
        print(f"{name:<24} {distribution.version:<12} {count / 1e6:8.1f} MB  {words}")
        if looked_at.get(name) != words:
            new.append(f"{name} {words}")
    print(f"{len(packages)} packages, {total / 1e6:.0f} MB")
    if new:
        print("nobody has looked at these; look, then add them to tools/audited.txt:", *new, sep="\n", file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
