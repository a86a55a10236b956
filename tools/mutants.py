"""The small changes of a file that `scripts/mutate` tries, drawn so that the same seed draws the same ones.

A change is known by what it changes, never by where that stands: lines that are added above it, or a file that is
written anew, leave the draw of all others as it was.
"""

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "manifind"

SKIPPED = ("RemoveDecorator", "VariableInserter", "VariableReplacer")
"""Operators that need arguments, or whose changes mostly do not import."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: Path
    operator: str
    occurrence: int
    line: int
    name: str
    """How the change is known from run to run: file, operator, the line's words, and which place in them."""

    @cached_property
    def code(self) -> str | None:
        """The changed file; None where the change makes no difference to what the program does, or no program."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        code = self.file.read_text(encoding="utf-8")
        changed: str | None = mutate_code(code, get_operator(self.operator)(), self.occurrence)
        return None if changed is None or meant(changed) in (meant(code), None) else changed

    @property
    def module(self) -> str:
        """The module that it changes."""
        parts = self.file.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def diff(self) -> str:
        """Return the change as a unified diff with a line around it."""
        before, after = self.file.read_text(encoding="utf-8").splitlines(), (self.code or "").splitlines()
        name = str(self.file.relative_to(ROOT))
        return "\n".join(difflib.unified_diff(before, after, name, name, n=1, lineterm=""))

    @cached_property
    def statement(self) -> range:
        """The lines of the innermost statement that is changed; of a loop or a condition, its head alone."""
        best, size = range(self.line, self.line + 1), float("inf")
        for node in ast.walk(self._tree):
            if isinstance(node, ast.stmt) and node.lineno <= self.line <= (node.end_lineno or node.lineno):
                body = getattr(node, "body", None)
                end = body[0].lineno if isinstance(body, list) and body else (node.end_lineno or node.lineno) + 1
                lines = range(node.lineno, max(end, node.lineno + 1))
                if self.line in lines and len(lines) < size:
                    best, size = lines, len(lines)
        return best

    @cached_property
    def where(self) -> str:
        """Where it stands: a function's "body", its "default"s, a "constant" of the module, or else the "module"."""
        own = [node for node in self._tree.body if node.lineno <= self.line <= (node.end_lineno or 0)]
        values = [node.value for node in own if isinstance(node, ast.Assign)]
        simple = ast.Constant | ast.UnaryOp | ast.BinOp | ast.Tuple
        place = "constant" if values and isinstance(values[0], simple) else "module"
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.body[0].lineno <= self.line <= (node.end_lineno or 0):
                    return "body"
                if node.lineno <= self.line < node.body[0].lineno:
                    place = "default"
        return place

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.file.read_text(encoding="utf-8"))


def places(file: Path) -> Iterator[Mutant]:
    """Yield every change of a file, many of which make no difference."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    code = file.read_text(encoding="utf-8")
    lines, nodes = code.splitlines(), list(ast_nodes(get_ast(code)))
    for operator in operator_names():
        if any(skipped in operator for skipped in SKIPPED):
            continue
        alike: Counter[tuple[str, int]] = Counter()
        found = [at for node in nodes for at in get_operator(operator)().mutation_positions(node)]
        for occurrence, ((line, column), _) in enumerate(found):
            words = lines[line - 1].strip()
            place = words, column - lines[line - 1].index(words)
            alike[place] += 1
            which = f"{operator.removeprefix('core/')} {alike[place]}"
            yield Mutant(
                file, operator, occurrence, line, f"{file.relative_to(PACKAGE)} | {words} | {place[1]} | {which}"
            )


def files_of(patterns: list[str]) -> list[Path]:
    """Return the files of a room."""
    return sorted(file for pattern in patterns for file in PACKAGE.glob(pattern))


def drawn(files: list[Path], count: int, seed: int) -> tuple[list[Mutant], int]:
    """Draw changes, at most one of each place in the code until all places had one; also return how many places."""

    def lot(*words: object) -> str:
        return hashlib.sha256(repr((seed, *words)).encode()).hexdigest()

    by_place: dict[str, list[Mutant]] = {}
    for file in files:
        for mutant in places(file):
            by_place.setdefault(mutant.name.rsplit(" | ", 1)[0], []).append(mutant)
    for mutants in by_place.values():
        mutants.sort(key=lambda mutant: lot(mutant.name))
    order = sorted(by_place, key=lot)
    chosen: list[Mutant] = []
    for turn in range(max(map(len, by_place.values()))):
        for place in order:
            if len(chosen) == count:
                return chosen, len(order)
            if turn == 0:
                # Where the first lot makes no difference (an annotation), the place's next one is tried.
                while by_place[place] and by_place[place][0].code is None:
                    by_place[place].pop(0)
            if turn < len(by_place[place]) and by_place[place][turn].code is not None:
                chosen.append(by_place[place][turn])
    return chosen, len(order)


def meant(code: str) -> str | None:
    """Return a program without its annotations and docstrings, or None where it is no program."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            arguments = node.args
            # Which of them may be given by name alone is a matter of taste too.
            arguments.args = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            arguments.defaults += [default for default in arguments.kw_defaults if default is not None]
            arguments.posonlyargs, arguments.kwonlyargs, arguments.kw_defaults = [], [], []
            for argument in arguments.args:
                argument.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]  # type: ignore[attr-defined]
    return ast.dump(tree)
