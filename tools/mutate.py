"""Do the tests bite? Change the code in small ways, one at a time, and see whether a test fails.

    scripts/mutate ranking graph diffusion --sample 20        # twenty changes of each room
    scripts/mutate geometry --sample 50 --seed 3 --seconds 300

The changes are cosmic-ray's, drawn with a seed. Changes of annotations and docstrings alone are none. Each runs the
tests of its room in a process of its own, which has the changed module in place of the one on disk: no file is touched.
A change that no test notices is a survivor; it is printed, and is either a test that is missing or a change that makes
no difference. Results are kept in out/mutants.json: a run that was stopped, or ran out of --seconds, goes on, and
--again tries survivors once more.
"""

import argparse
import ast
import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
KEPT = ROOT / "out" / "mutants.json"

ROOMS = {
    "ranking": (["ranking.py"], ["tests/test_ranking.py"]),
    "graph": (["graph/*.py"], ["tests/test_graph.py", "tests/test_choosing.py", "tests/test_update.py"]),
    "diffusion": (
        ["diffusion/*.py"],
        ["tests/test_expressions.py", "tests/test_truth.py", "tests/test_prepared_engines.py", "tests/test_local.py"],
    ),
    "geometry": (["geometry/*.py"], ["tests/geometry"]),
    "evaluate": (["evaluate/*.py"], ["tests/evaluate"]),
    "index": (["index/*.py"], ["tests/index"]),
}
"""The files of each room, below the package, and the tests that answer for them."""

SKIPPED = ("RemoveDecorator", "VariableInserter", "VariableReplacer")
"""Operators that need arguments, or whose changes mostly do not import."""

LOADED = ("numpy", "scipy.sparse.linalg", "scipy.spatial", "PIL.Image", "sklearn.datasets", "faiss")
"""Imported once, before processes part."""


class Mutant:
    """One change of one file."""

    def __init__(self, file: Path, operator: str, occurrence: int, code: str) -> None:
        self.file, self.operator, self.occurrence, self.code = file, operator, occurrence, code

    @property
    def name(self) -> str:
        """How it is known from run to run: the change itself, wherever it stands."""
        return f"{self.file.relative_to(SOURCE)} {self.operator} {self.change()}"

    @property
    def module(self) -> str:
        """The module that it changes."""
        parts = self.file.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def change(self) -> str:
        """Return the lines that differ."""
        before, after = self.file.read_text(encoding="utf-8").splitlines(), self.code.splitlines()
        lines = [
            line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:3] not in ("---", "+++")
        ]
        return "\n".join(line if line.startswith("@@") else line.strip() for line in lines)


def places(file: Path) -> list[tuple[Path, str, int]]:
    """Return where a file can be changed, and how: the operator and which of its places."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(file.read_text(encoding="utf-8"))))
    found = []
    for name in operator_names():
        if not any(skipped in name for skipped in SKIPPED):
            operator = get_operator(name)()
            count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            found += [(file, name, occurrence) for occurrence in range(count)]
    return found


def mutant_at(file: Path, operator: str, occurrence: int) -> Mutant | None:
    """Return the change of a place; None where it changes nothing that the program does."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = file.read_text(encoding="utf-8")
    changed = mutate_code(code, get_operator(operator)(), occurrence)
    if changed is None or meant(changed) in (meant(code), None):
        return None
    return Mutant(file, operator.removeprefix("core/"), occurrence, changed)


def meant(code: str) -> str | None:
    """Return a program without its annotations and docstrings, or None where it is no program."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in [*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs]:
                argument.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]  # type: ignore[attr-defined]
    return ast.dump(tree)


class InPlace(importlib.abc.MetaPathFinder):
    """Finds a changed module before the one on disk."""

    def __init__(self, mutant: Mutant, file: Path) -> None:
        self.mutant, self.file = mutant, file

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (Python's signature)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the changed module, if it is asked for."""
        if name != self.mutant.module:
            return None
        package = [str(self.mutant.file.parent)] if self.mutant.file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.file, submodule_search_locations=package)


class FewExamples:
    """Lets hypothesis try few examples, the same ones for every change."""

    def pytest_collection(self) -> None:
        """Take the place of the profile that the tests have loaded by now."""
        from hypothesis import HealthCheck, settings

        few = settings(max_examples=10, derandomize=True, database=None, deadline=None)
        settings.register_profile("few", few, suppress_health_check=list(HealthCheck))
        settings.load_profile("few")


def passes(mutant: Mutant | None, tests: list[str], seconds: float) -> bool:
    """Run tests in a process of their own, with a change in place; False where one fails or they take too long."""
    scratch = KEPT.parent / f"mutant-{os.getpid()}.py"
    if mutant is not None:
        scratch.write_text(mutant.code, encoding="utf-8")
    child = os.fork()
    if child == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if mutant is not None:
            sys.meta_path.insert(0, InPlace(mutant, scratch))
        import pytest

        code = 1
        try:
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[FewExamples()]))
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False
    finally:
        scratch.unlink(missing_ok=True)


def sample(room: str, count: int, seed: int) -> list[Mutant]:
    """Draw changes of a room."""
    patterns, _ = ROOMS[room]
    files = sorted(file for pattern in patterns for file in (SOURCE / "manifind").glob(pattern))
    everywhere = [place for file in files for place in places(file)]
    random.Random(seed).shuffle(everywhere)  # noqa: S311
    drawn: list[Mutant] = []
    for place in everywhere:
        if len(drawn) == count:
            break
        mutant = mutant_at(*place)
        if mutant is not None:
            drawn.append(mutant)
    print(f"{room}: {len(everywhere)} places in {len(files)} files, {len(drawn)} tried", flush=True)
    return drawn


def main() -> int:
    """Try changes until all are done or the time is up; return 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="+", choices=sorted(ROOMS))
    parser.add_argument("--sample", type=int, default=20, help="changes of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; the next run goes on")
    parser.add_argument("--again", action="store_true", help="try survivors once more, with the tests as they are now")
    given = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    for name in LOADED:
        importlib.import_module(name)
    KEPT.parent.mkdir(exist_ok=True)
    known: dict[str, bool] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    until = time.monotonic() + given.seconds
    survived = 0
    for room in given.rooms:
        tests = ROOMS[room][1]
        drawn = sample(room, given.sample, given.seed)
        began = time.monotonic()
        if any(mutant.name not in known or (given.again and not known[mutant.name]) for mutant in drawn) and not passes(
            None, tests, 900
        ):
            raise SystemExit(f"the tests of {room} fail without any change: {' '.join(tests)}")
        limit = 4 * (time.monotonic() - began) + 20
        for mutant in drawn:
            if mutant.name not in known or (given.again and not known[mutant.name]):
                if time.monotonic() > until:
                    break
                known[mutant.name] = not passes(mutant, tests, limit)
                KEPT.write_text(json.dumps(known, indent=1))
        tried = [mutant for mutant in drawn if mutant.name in known]
        alive = [mutant for mutant in tried if not known[mutant.name]]
        survived += len(alive)
        share = 100 * (len(tried) - len(alive)) / max(1, len(tried))
        print(f"{room}: {len(tried) - len(alive)} of {len(tried)} noticed ({share:.0f} %)", flush=True)
        for mutant in alive:
            print(f"\n{mutant.file.relative_to(ROOT)}, {mutant.operator}\n{mutant.change()}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
