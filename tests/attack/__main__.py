"""Attack an installation of manifind; every line says what was tried, and what came of it."""

import argparse
import importlib
import pkgutil
import sys
import tempfile
import time
from pathlib import Path

import tests.attack
from tests.attack import Attack, Place, program

PROGRAMS = {
    "photos": ("seconds of mutated photos", 20),
    "pickles": ("mutated pickles", 3000),
    "schema": ("requests made from the schema", 600),
}
"""Areas that are programs of their own, with what their argument counts: few enough for a run of five minutes."""


def areas() -> dict[str, dict[str, Attack]]:
    """Return the attacks of every area."""
    found: dict[str, dict[str, Attack]] = {}
    for module in pkgutil.iter_modules(tests.attack.__path__):
        if module.name in PROGRAMS:
            what, count = PROGRAMS[module.name]
            found[module.name] = {f"{count:,} {what}": program(module.name, count)}
        elif not module.name.startswith("_"):
            found[module.name] = importlib.import_module(f"tests.attack.{module.name}").ATTACKS
    return found


def main() -> int:
    """Run the attacks; 1 where one succeeded."""
    reader = argparse.ArgumentParser(prog="scripts/attack", description=__doc__)
    reader.add_argument("words", nargs="*", help="only areas and attacks with one of these words in their names")
    reader.add_argument("--python", default=sys.executable, help="the Python whose manifind is attacked")
    given = reader.parse_args()
    succeeded = 0
    with tempfile.TemporaryDirectory(prefix="manifind-attack-", ignore_cleanup_errors=True) as folder:
        for area, attacks in areas().items():
            place = Place(Path(folder) / area, given.python)
            place.folder.mkdir()
            for name, attack in attacks.items():
                if given.words and not any(word in f"{area}: {name}" for word in given.words):
                    continue
                start = time.perf_counter()
                try:
                    verdict, measured = "held", attack(place)
                except Exception as error:  # an attack that fails to run shows nothing: it counts as one that succeeded
                    verdict, measured = "BROKE", str(error) or type(error).__name__
                    succeeded += 1
                seconds = time.perf_counter() - start
                print(f"{verdict:6}{area}: {name} ({seconds:.1f} s): {measured}", flush=True)
    print(f"{succeeded} attacks succeeded." if succeeded else "No attack succeeded.")
    return 1 if succeeded else 0


if __name__ == "__main__":
    sys.exit(main())
