"""Hold what lies in a release against what is in the repository: nothing is missing, nothing is there by accident.

python tools/contents.py dist
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "src/manifind/kernels/core/"
LICENCES = ("LICENSE", "licences/README.md", "licences/nanobind.txt", "licences/robin-map.txt")
NEVER = ("tests/", "benchmarks/", ".ci/", ".github/", ".venv/", "dist/")


def tracked() -> list[str]:
    """Return the files of the package, as git has them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/manifind"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def wrong_with_wheel(names: list[str], *, core: bool) -> list[str]:
    """Return what a wheel lacks, and what it should not have."""
    wanted = {name.removeprefix("src/") for name in tracked() if not name.startswith(SOURCES)}
    there = set(names)
    faults = [f"{name} is missing" for name in sorted(wanted - there)]
    more = {name for name in there - wanted if ".dist-info/" not in name}
    compiled = {name for name in more if name.startswith(("manifind/kernels/_core.", "manifind/kernels/_features."))}
    if len(compiled) != 2 * core:
        faults.append("an extension is missing" if core else "there is an extension where none belongs")
    faults += [f"{name} is there" for name in sorted(more - compiled)]
    return faults + [
        f"{licence} is missing"
        for licence in LICENCES
        if not any(name.endswith(f"licenses/{licence}") for name in names)
    ]


def wrong_with_archive(names: list[str]) -> list[str]:
    """Return what a source archive lacks, and what it should not have."""
    there = {name.partition("/")[2] for name in names}
    faults = [f"{name} is missing" for name in (*tracked(), *LICENCES, "pyproject.toml") if name not in there]
    return faults + [f"{name} is there" for name in sorted(there) if name.startswith(NEVER)]


def main(folder: Path) -> int:
    """Look at every file of a release; print its size, and what is wrong with it."""
    failed = 0
    for file in sorted(folder.iterdir()):
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                faults = wrong_with_wheel(wheel.namelist(), core="none-any" not in file.name)
        else:
            with tarfile.open(file) as archive:
                faults = wrong_with_archive([member.name for member in archive if member.isfile()])
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB", *faults, sep="\n  ")
        failed += len(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
