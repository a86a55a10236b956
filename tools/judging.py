"""Which tests run a line, and whether they notice a change of it.

The tests of a room are collected once and run once as they are, each with the lines that it runs written down. A change
is then judged by the tests alone that run the changed statement, the fastest first, in a process that parts from this
one after everything was imported. That process gives the changed functions their new code, or imports the changed
module in place of the one on disk, and is gone with it: no file of the project is touched, so that nothing has to be
put back, whenever and however a run ends.
"""

import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from mutants import ROOT, Mutant

KEPT = ROOT / "out" / "mutants"
HERE = Path(os.environ.setdefault("MUTANTS", str(KEPT / f"run-{os.getpid()}")))
"""The folder of this run, which processes that part from this one inherit."""


LONGEST = 8.0
"""Seconds of a core that a test may take, with its lines written down and its fixtures, to be asked at all."""


class TooLongError(BaseException):
    """A test takes too long to be asked about every change."""


def too_long(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (Python's)
    """End a test."""
    raise TooLongError


class Recorder:
    """Writes down which lines of some files each test runs, itself or by the fixtures that it uses."""

    def __init__(self, files: list[Path]) -> None:
        self.files = {str(file) for file in files}
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.uses: dict[str, list[str]] = {}
        self.now: set[tuple[str, int]] = set()

    def call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        """Look into functions of the files alone."""
        if frame.f_code.co_filename not in self.files:
            return None
        return self.line(frame, event, arg)

    def line(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:  # noqa: ARG002 (Python's)
        """Write down a line."""
        self.now.add((frame.f_code.co_filename, frame.f_lineno))
        return self.line

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Give what a fixture runs to all tests that use it."""
        name = f"{fixturedef.baseid}::{fixturedef.argname}"
        before, self.now, began = self.now, self.lines.setdefault(name, set()), time.process_time()
        try:
            return (yield)
        finally:
            self.now = before
            self.seconds[name] = self.seconds.get(name, 0) + time.process_time() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        """Give what a test runs to that test, in every thread."""
        threading.settrace(self.call)
        sys.settrace(self.call)
        defined = item._fixtureinfo.name2fixturedefs.values()
        uses = [f"{one.baseid}::{one.argname}" for several in defined for one in several]
        known = sum(self.seconds.get(name, 0) for name in uses)
        signal.signal(signal.SIGPROF, too_long)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        self.now, began = self.lines.setdefault(item.nodeid, set()), time.process_time()
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            fixtures = sum(self.seconds.get(name, 0) for name in uses) - known
            self.seconds[item.nodeid] = max(0.0, time.process_time() - began - fixtures)
            self.uses[item.nodeid] = uses


class Failures:
    """Remembers which tests did not pass."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a test that failed or was skipped."""
        if not report.passed:
            self.tests.append(report.nodeid)


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


def apart(work: Callable[[], object], seconds: float) -> int | None:
    """Do work in a process of its own and return its exit code, 0 where the work is true; None where it hung.

    It may take so many seconds of a core, which other work on the machine does not change, or twenty times as many of
    the clock.
    The process and all that it started end with this call, also where Ctrl-C ends it.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        said = os.open(HERE / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        code = 2
        try:
            code = 0 if work() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + 20 * seconds
    ended = False
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ended = True
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of every function in a module's code."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from codes(one)


SIMPLE = (bool, int, float, str, tuple)
"""Constants of these kinds can be given another value wherever they were imported."""


def graft(mutant: Mutant) -> None:
    """Make a change in a module that is imported: its functions get other code and defaults, its constants values."""
    compiled = compile(mutant.code or "", str(mutant.file), "exec")
    new = {(one.co_qualname, one.co_firstlineno): one for one in codes(compiled)}
    old = [
        one
        for one in gc.get_objects()
        if isinstance(one, FunctionType) and one.__code__.co_filename == str(mutant.file)
    ]
    for function in old:
        code = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code
    if mutant.where == "body":
        return
    new_module = ModuleType(mutant.module)
    new_module.__dict__.update(__package__=mutant.module.rpartition(".")[0], __file__=str(mutant.file))
    exec(compiled, new_module.__dict__)  # noqa: S102 (our own module)
    made = {
        one.__qualname__: one
        for one in gc.get_objects()
        if isinstance(one, FunctionType) and one.__globals__ is new_module.__dict__
    }
    for function in old:
        if function.__qualname__ in made:
            function.__defaults__ = made[function.__qualname__].__defaults__
            function.__kwdefaults__ = made[function.__qualname__].__kwdefaults__
    for name, before in list(vars(sys.modules[mutant.module]).items()):
        after = getattr(new_module, name, None)
        if isinstance(before, SIMPLE) and isinstance(after, SIMPLE) and before != after:
            for module in [one for key, one in sys.modules.items() if key.partition(".")[0] in ("manifind", "tests")]:
                if getattr(module, name, None) == before:
                    setattr(module, name, after)


class Judges:
    """The tests of a room, with the lines that each runs. A plugin of pytest: it has collected them."""

    def __init__(
        self, room: str, files: list[Path], tests: list[str], items: list[pytest.Item], since: str | None
    ) -> None:
        mine = [item for item in items if any(item.nodeid.startswith(test) for test in tests)]
        self._items: dict[str, Any] = {item.nodeid: item for item in mine}
        source = _digest(b"".join(file.read_bytes() for file in files))
        texts = {name: _digest(inspect.getsource(item.function).encode()) for name, item in self._items.items()}
        kept = KEPT / f"{room}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        if known.get("of") != source:
            known = {"of": source, "texts": {}, "seconds": {}, "uses": {}, "lines": {}, "failed": {}}
        new = [test for test in texts if known["texts"].get(test) != texts[test]]
        if new:
            apart(lambda: self._record(files, new), 3600)
            if not (HERE / "recorded").exists():
                raise RuntimeError(f"the tests of {room} do not run: {(HERE / 'said').read_text()[-3000:]}")
            for name, values in json.loads((HERE / "recorded").read_text()).items():
                known[name].update(values)
            known["texts"] = texts
            kept.write_text(json.dumps(known))
        self._seconds: dict[str, float] = known["seconds"]
        self._uses = {test: names for test, names in known["uses"].items() if test in self._items}
        self.failed = [test for test in self._uses if known["failed"][test]]
        own = {name: {(file, line) for file, line in lines} for name, lines in known["lines"].items()}
        self._bites: Counter[str] = Counter()
        self.added = {test for test in self._items if since is not None and not _was_there(test, since)}
        self._lines = {
            test: own[test].union(*(own.get(name, set()) for name in uses))
            for test, uses in self._uses.items()
            if test not in self.failed
        }

    def _run(self, tests: Sequence[str], plugins: Sequence[object] = (), *, on: bool = False) -> list[str]:
        """Run tests until one fails, or all of them; return those that did not pass."""
        failures = Failures()
        items = [self._items[test] for test in tests]
        for plugin in (failures, *plugins):
            items[0].config.pluginmanager.register(plugin)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures.tests and not on:
                (HERE / "bitten").write_text(failures.tests[0])
                break
        return failures.tests

    def _record(self, files: list[Path], tests: list[str]) -> bool:
        recorder = Recorder(files)
        failed = self._run(tests, [recorder], on=True)
        sys.settrace(None)
        lines = {name: sorted(lines) for name, lines in recorder.lines.items()}
        failed_or_not = {test: test in failed for test in tests}
        told = {"seconds": recorder.seconds, "uses": recorder.uses, "lines": lines, "failed": failed_or_not}
        (HERE / "recorded").write_text(json.dumps(told))
        return True

    def of(self, mutant: Mutant, seconds: float) -> tuple[list[str], float]:
        """Return the tests that run a change and take so long at most, and how long they take.

        Those come first that noticed most changes before, then the fastest; tests that were added, after all others.
        What runs at import alone is judged by all tests of the files of which one runs anything of its module.
        """
        file = str(mutant.file)
        changed = {(file, line) for line in mutant.statement}
        ran = [test for test, lines in self._lines.items() if lines & changed]
        if mutant.where != "body" or not ran:
            near = {_file(test) for test, lines in self._lines.items() if any(one == file for one, _ in lines)}
            ran = [test for test in self._lines if _file(test) in near]

        def cost(test: str, paid: set[str]) -> float:
            return self._seconds[test] + sum(self._seconds.get(name, 0) for name in set(self._uses[test]) - paid)

        paid: set[str] = set()
        total, chosen = 0.0, list[str]()
        for several in ([test for test in ran if test not in self.added], [test for test in ran if test in self.added]):
            until = total + seconds
            for number, test in enumerate(sorted(several, key=lambda test: cost(test, set()))):
                own = cost(test, paid)
                if number == 0 or total + own <= until:
                    total += own
                    paid |= set(self._uses[test])
                    chosen.append(test)
        return sorted(chosen, key=lambda test: (test in self.added, -self._bites[test])), total

    def runs(self, mutant: Mutant) -> bool:
        """Whether a test runs a change of the body of a function."""
        changed = {(str(mutant.file), line) for line in mutant.statement}
        return any(lines & changed for lines in self._lines.values())

    def notice(self, mutant: Mutant, chosen: list[str], expected: float) -> str | None:
        """Run tests with a change in place; return which one fails, "time" where they take too long, None if none."""
        scratch = HERE / "changed.py"

        def work() -> bool:
            if mutant.module not in sys.modules:
                scratch.write_text(mutant.code or "", encoding="utf-8")
                sys.meta_path.insert(0, InPlace(mutant, scratch))
            else:
                graft(mutant)
            return not self._run(chosen)

        def anew() -> bool:
            scratch.write_text(mutant.code or "", encoding="utf-8")
            told = json.dumps([mutant.module, str(mutant.file), str(scratch), chosen])
            os.execv(sys.executable, [sys.executable, __file__, told])  # noqa: S606 (ourselves)

        # A function that no test runs may run at import.
        idle = mutant.where == "body" and not self.runs(mutant)
        fresh = (mutant.where == "module" or idle) and mutant.module in sys.modules
        try:
            if apart(anew if fresh else work, 2 * expected + (15 if fresh else 4)) == 0:
                return None
            test = (HERE / "bitten").read_text() if (HERE / "bitten").exists() else "time"
            self._bites[test] += 1
            return test
        finally:
            for left in (HERE / "bitten", scratch):
                left.unlink(missing_ok=True)
            shutil.rmtree(HERE / "tmp", ignore_errors=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file(test: str) -> str:
    return test.split("::")[0]


@cache
def _text(file: str, revision: str) -> str:
    shown = subprocess.run(["git", "show", f"{revision}:{file}"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return shown.stdout


def _was_there(test: str, revision: str) -> bool:
    """Whether a test was there at a revision."""
    return f"def {test.rpartition('::')[2].partition('[')[0]}(" in _text(_file(test), revision)


class Bench:
    """Collects tests, lets hypothesis try few examples of each, and then does something else than running them."""

    def __init__(self, instead: Callable[[list[pytest.Item]], None]) -> None:
        self.instead = instead

    def pytest_collection(self) -> None:
        """Take the place of the profile that the tests have loaded by now."""
        from hypothesis import HealthCheck, settings

        few = settings(max_examples=6, derandomize=True, database=None, deadline=None)
        settings.register_profile("few", few, suppress_health_check=list(HealthCheck))
        settings.load_profile("few")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do it."""
        self.instead(session.items)
        return True


def collect(tests: Sequence[str], instead: Callable[[list[pytest.Item]], None]) -> None:
    """Collect tests and call a function with them, inside pytest."""
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    arguments = ["-o", "addopts=", "-s", "-p", "no:cacheprovider", "-p", "no:terminal", f"--basetemp={HERE / 'tmp'}"]
    pytest.main([*arguments, *dict.fromkeys(tests)], plugins=[Bench(instead)])


def main() -> int:
    """Run tests with a changed module in place of the one on disk, in a fresh process."""
    module, file, scratch, chosen = json.loads(sys.argv[1])
    sys.meta_path.insert(0, InPlace(Mutant(Path(file), "", 0, 0, module), Path(scratch)))
    outcome: list[bool] = []

    def run(items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        failures = Failures()
        items[0].config.pluginmanager.register(failures)
        for test in chosen:
            by_name[test].ihook.pytest_runtest_protocol(item=by_name[test], nextitem=None)
            if failures.tests:
                (HERE / "bitten").write_text(test)
                break
        outcome.append(not failures.tests)

    collect([_file(test) for test in chosen], run)
    return 0 if outcome == [True] else 1


if __name__ == "__main__":
    sys.exit(main())
