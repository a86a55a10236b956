"""Attack an index: thousands of damaged and hostile folders, each opened, searched, explained, checked and written to.

Whatever is in the folder, each of these calls either does its work or raises an error of manifind's own, in time and
within bounds of memory, and nothing outside the folder changes. Half of the folders are signed anew after the damage,
as somebody would who wants it to be believed.

``python -m tests.attack.index 3000`` tries so many, ``… 500 3000`` five hundred from number 3000 on, and ``… 1 17``
number 17 alone, with the traceback. What should not have happened is printed as it happens.
"""

import io
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from manifind import kernels
from manifind.cli.sets import write_sidecars, write_zip
from manifind.diffusion import solvers
from manifind.errors import ManifindError
from manifind.index import METHODS, Index, QueryRegions, retrieve, stored_query_view
from manifind.index.build import build
from manifind.index.sets import FILE as SETS
from manifind.kernels.costs import CostModel
from manifind.storage import store
from tests.attack import Attack, Place, broken, photos, picture, program
from tests.index.signing import sign
from tests.index.small import save_photo, small_extractor

SECONDS, MEMORY = 30, 8 * 2**30
CANARY = b"somebody else's"
MAX_SCORE = 1e6
"""Far above what any query of these photos scores in an undamaged index."""
EXTRACTOR = small_extractor()
DIVIDED = CostModel(max_whole_regions=0)

ODD: list[Any] = [None, True, -1, 0, 0.5, 1e308, 10**30, "", "x\0y", "\ud800", "/", "..", [], {}, [[]], {"a": 1}]

STATEMENTS = [
    "CREATE VIEW v AS SELECT 1",
    "DROP TABLE skipped; CREATE VIEW skipped AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT x AS key, x AS reason, x AS sha256, x AS bytes, x AS mtime_ns FROM c",
    "ALTER TABLE images RENAME TO old; CREATE VIEW images AS WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 "
    "FROM c) SELECT x AS number, 'k' AS key, 'h' AS sha256, 1 AS bytes, 1 AS mtime_ns, 4 AS width, 3 AS height FROM c",
    "CREATE TRIGGER t AFTER INSERT ON images BEGIN DELETE FROM images; END",
    "CREATE INDEX i ON images (hex(zeroblob(10000000)))",
    "CREATE TABLE more (x)",
    "DROP TABLE images",
    "DELETE FROM images",
    "DELETE FROM images WHERE number = 2",
    "UPDATE images SET number = number + 1000000",
    "UPDATE images SET number = -5 WHERE number = 0",
    "UPDATE images SET key = x'ff00ff' WHERE number = 1",
    "UPDATE images SET key = CAST(x'ff00ff' AS TEXT) WHERE number = 1",
    "UPDATE images SET key = '../../canary' WHERE number = 1",
    "UPDATE images SET key = '/etc/passwd' WHERE number = 1",
    "UPDATE images SET sha256 = x'00' WHERE number = 1",
    "UPDATE images SET width = 'wide', height = 1.5",
    "UPDATE images SET width = -1, height = 0",
    "UPDATE images SET bytes = 'many', mtime_ns = x'00'",
    "INSERT INTO skipped VALUES (x'00', x'00', x'00', x'00', x'00', x'00')",
    "INSERT INTO skipped VALUES ('a.png', 'duplicate', '0.png', 7, 'x', 'y')",
    "INSERT INTO skipped VALUES ('a.png', 'no such code', '', NULL, NULL, NULL)",
    "INSERT INTO skipped SELECT key || 'x', 'duplicate', key, sha256, bytes, mtime_ns FROM images",
]

SETS_COLUMNS = {
    "sets": ("name", "made", "search"),
    "members": ("name", "key", "box", "verdict", "added"),
    "seen": ("name",),
}
SETS_STATEMENTS = [
    *(
        f"UPDATE {table} SET {column} = {value}"  # noqa: S608 (of this file)
        for table, columns in SETS_COLUMNS.items()
        for column in columns
        for value in ("x'00ff'", "CAST(x'ff' AS TEXT)", "'../../canary'", "'[1, 2]'", "hex(zeroblob(90000))")
    ),
    "UPDATE members SET sha256 = x'00' || rowid",
    """UPDATE sets SET search = json_set(search, '$.views', json('[["/etc/passwd", [1, 2, 3, 1e999]]]'))""",
    "UPDATE sets SET search = json_set(search, '$.method', 'none')",
    "UPDATE sets SET search = replace(hex(zeroblob(9000)), '0', '[')",
    "DROP TABLE seen",
    "CREATE VIEW v AS SELECT 1",
]


class Case(NamedTuple):
    """A folder to be attacked, and what chooses how."""

    path: Path
    outside: Path
    choose: random.Random
    signed: bool


# -- what is done to a folder -----------------------------------------------------------------------------------------


def flip_bits(case: Case) -> str:
    file = _any_file(case, ".npy", ".sqlite", ".json")
    content = bytearray(file.read_bytes())
    header = case.choose.random() < 0.4
    for _ in range(case.choose.choice([1, 1, 2, 20])):
        place = case.choose.randrange(min(len(content), 140) if header else len(content))
        content[place] ^= 1 << case.choose.randrange(8)
    file.write_bytes(content)
    return f"bits of {file.name}"


def cut_or_grow(case: Case) -> str:
    file = _any_file(case, ".npy", ".sqlite", ".json")
    size = file.stat().st_size
    new = case.choose.choice([0, 1, 10, 100, size // 2, size - 1, size + 1, size + 4096, 10**8])
    os.truncate(file, new)
    return f"{file.name} of {new} bytes"


def odd_array(case: Case) -> str:
    file = _any_file(case, ".npy")
    array = np.load(file)
    kind = case.choose.choice(["dtype", "shape", "values", "order", "empty", "scalar", "wide"])
    extreme = case.choose.choice([-1, -(2**31), 2**31 - 1, len(array), 10**6, 0])
    if kind == "dtype":
        array = array.astype(case.choose.choice(["f2", "f4", "f8", "i1", "i4", "i8", "u4", "?", ">f4", ">i4"]))
    elif kind == "shape":
        array = case.choose.choice([array[:-1], array[None], array.ravel(), array.T, array[:0], array[..., :1]])
    elif kind == "values":
        flat = array.reshape(-1)
        for _ in range(case.choose.choice([1, 3, 1000])):
            odd = [extreme] if array.dtype.kind == "i" else [extreme, np.nan, np.inf, -np.inf, 1e30, 0]
            with np.errstate(all="ignore"):
                flat[case.choose.randrange(len(flat))] = np.array(case.choose.choice(odd)).astype(array.dtype)
    elif kind == "order":
        array = np.asfortranarray(array) if array.ndim > 1 else array[::-1]
    elif kind == "empty":
        array = np.empty((0,) * array.ndim, array.dtype)
    elif kind == "scalar":
        with np.errstate(all="ignore"):
            array = np.array(extreme).astype(array.dtype)
    else:
        array = np.concatenate([array] * 3)
    np.save(file, array)
    return f"{file.name}: {kind}"


def odd_manifest(case: Case) -> str:
    manifest = json.loads((case.path / store.MANIFEST).read_text())
    del manifest["checksum"]
    places = list(_places(manifest))
    said = []
    for _ in range(case.choose.choice([1, 1, 2])):
        holder, name = case.choose.choice(places)
        if case.choose.random() < 0.2:
            holder.pop(name, None)
        else:
            holder[name] = case.choose.choice(ODD)
        said.append(name)
    sign(case.path, manifest)
    return f"manifest: {said}"


def odd_catalogue(case: Case) -> str:
    (file,) = case.path.glob("images-*.sqlite")
    statement = case.choose.choice(STATEMENTS)
    connection = sqlite3.connect(file)
    try:
        connection.executescript(statement)
        connection.commit()
    finally:
        connection.close()
    return f"catalogue: {statement[:60]}"


def odd_sets(case: Case) -> str:
    statement = case.choose.choice(SETS_STATEMENTS)
    connection = sqlite3.connect(case.path / SETS)
    try:
        connection.executescript(statement)
        connection.commit()
    finally:
        connection.close()
    return f"sets: {statement[:60]}"


def other_thing(case: Case) -> str:
    names = [file.name for file in case.path.iterdir()] + [".lock", ".part", store.DRAFT, "vectors-2.npy"]
    file = case.path / case.choose.choice(names)
    kind = case.choose.choice(["link", "link to folder", "second name", "folder", "pipe", "loop"])
    if file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    if kind == "link":
        file.symlink_to(case.outside / "canary")
    elif kind == "link to folder":
        file.symlink_to(case.outside)
    elif kind == "second name":
        os.link(case.outside / "canary", file)
    elif kind == "folder":
        (file / "below").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file.name)
    return f"{file.name} is a {kind}"


def linked_work(case: Case) -> str:
    """A writer's own folder, with links in it."""
    work = case.path / ".part" / "described"
    work.mkdir(parents=True)
    for name in ("header.json", "photos.jsonl", "vectors.f16", "boxes.f32"):
        if case.choose.random() < 0.5:
            (work / name).symlink_to(case.outside / "canary")
    (case.path / ".part" / "all.f16").symlink_to(case.outside / "canary")
    if case.choose.random() < 0.5:
        shutil.rmtree(work)
        work.symlink_to(case.outside)
    return "links in .part"


DAMAGES: list[Callable[[Case], str]] = [
    flip_bits,
    cut_or_grow,
    odd_array,
    odd_array,
    odd_manifest,
    odd_manifest,
    odd_catalogue,
    odd_sets,
    other_thing,
    linked_work,
]


# -- what is done with it ---------------------------------------------------------------------------------------------


def use(path: Path, choose: random.Random) -> None:
    """Do everything that can be done with an index; the first error that is manifind's own ends it."""
    for work in (search, look, export, write):
        try:
            work(path, choose)
        except (ManifindError, FileNotFoundError):
            pass
        except OSError as error:
            if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(path):
                raise


def search(path: Path, choose: random.Random) -> None:
    with Index.open(path, extractor=EXTRACTOR) as opened:
        answer = opened.search("0.png", method=choose.choice(METHODS))
        json.dumps([hit.key for hit in answer])
        assert all(abs(hit.score) < MAX_SCORE for hit in answer)
        (found,) = retrieve(
            opened.state, [QueryRegions.of([stored_query_view(opened.state, opened.catalogue[choose.randrange(5)])])], 3
        )
        answer = opened.search("1.png", (3, 4, 40, 40))
        for hit in answer[:3]:
            opened.explain(hit)
        assert answer.n_matches is not None
        assert len(found.ranking) <= 3


def look(path: Path, choose: random.Random) -> None:
    with Index.open(path, extractor=EXTRACTOR, verify=choose.random() < 0.5) as opened:
        opened.catalogue.copies_of("x")
        opened.info()
        opened.check()


def export(path: Path, choose: random.Random) -> None:
    with Index.open(path, extractor=EXTRACTOR) as opened:
        for photos in opened.sets:
            with redirect_stderr(io.StringIO()):
                write_zip(opened.root, photos, path.parent / "found.zip")
                write_sidecars(photos, path.parent / "sidecars")
            if photos.search is not None:
                opened.sets.new_matches(photos.name, remember=choose.random() < 0.5)
            with zipfile.ZipFile(path.parent / "found.zip") as archive:
                assert all(CANARY not in archive.read(name) for name in archive.namelist())


def write(path: Path, choose: random.Random) -> None:
    if choose.random() < 0.5:
        Index.repair(path, extractor=EXTRACTOR)
        return
    with Index.open(path, extractor=EXTRACTOR) as opened:
        opened.remove([opened.catalogue[2].key]) if choose.random() < 0.5 else opened.sync()


# -- the machinery ----------------------------------------------------------------------------------------------------


def made(folder: Path, *, divided: bool) -> Path:
    """Make the index that is attacked, in a process of its own: a process with threads must not be forked.

    A divided graph, which only large collections have, brings more files.
    """
    child = os.fork()
    if child == 0:
        if divided:
            setattr(build, "COSTS", DIVIDED)  # noqa: B010 (its import, not a name that it offers)
        for seed in range(5):
            save_photo(folder / "photos" / f"{seed}.png", seed)
        made = Index.create(folder / "whole.manifind", folder / "photos", extractor=EXTRACTOR, k=15, query_k=12)
        made.sets.add("a", ["0.png", ("1.png", (3, 4, 40, 40)), "2.png"])
        made.sets.save_search("a", [("0.png", None)], seen=["0.png"])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the index could not be made"
    return folder / "whole.manifind"


def attack(count: int, first: int = 0) -> dict[str, Any]:
    """Attack so many folders, from a number on; return how it went, with what should not have happened."""
    findings: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory() as temporary:
        whole = [made(Path(temporary) / name, divided=name == "divided") for name in ("plain", "divided")]
        for number in range(first, first + count):
            folder = Path(temporary) / f"case {number}"
            said, finding = _one(folder, whole[number % 2], number, told=count == 1)
            tried += 1
            if finding is not None:
                findings.append(f"{number}, {said}: {finding}")
                print(findings[-1], file=sys.stderr, flush=True)
    return {"cases": tried, "findings": findings}


def _one(folder: Path, whole: Path, number: int, *, told: bool) -> tuple[str, str | None]:
    choose = random.Random(number)  # noqa: S311 (the same folders every time)
    case = Case(folder / "i.manifind", folder / "outside", choose, choose.random() < 0.5)
    shutil.copytree(whole, case.path)
    (case.outside / "folder").mkdir(parents=True)
    (case.outside / "canary").write_bytes(CANARY)
    (case.outside / "folder" / "canary").write_bytes(CANARY)
    damage = choose.choice(DAMAGES)
    said = damage(case)
    if case.signed and damage in (flip_bits, cut_or_grow, odd_array, odd_catalogue):
        said += ", signed"
        _sign_files(case.path)
    status, words = _in_child(lambda: use(case.path, choose), mapped=choose.random() < 0.5, told=told)
    finding = None
    if status is not None:
        finding = f"{status} {words}".strip()
    elif [file.read_bytes() for file in sorted(case.outside.rglob("canary"))] != [CANARY] * 2 or (
        len(list(case.outside.rglob("*"))) != 3
    ):
        finding = "something outside of the folder was changed"
    shutil.rmtree(folder)
    return said, finding


def _in_child(work: Callable[[], None], *, mapped: bool, told: bool) -> tuple[str | None, str]:
    """Do some work in a process of its own; return how it failed, if it did, and what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(10 * SECONDS)  # it must end, however busy the machine is
        if mapped:
            store.SMALL = 64  # as if these files were large
        for module in (build, solvers):  # and the collection: a division is used where there is one
            setattr(module, "COSTS", DIVIDED)  # noqa: B010 (its import, not a name that it offers)
        try:
            work()
        except BaseException as error:
            if told:
                traceback.print_exc()
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = next(
                (one for one in reversed(traceback.extract_tb(error.__traceback__)) if "manifind" in one.filename), last
            )
            shown = f"{type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
            os.write(writer, shown.encode(errors="replace"))
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        words = stream.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}", words
    return ("raised", words) if os.WEXITSTATUS(status) else (None, words)


def _any_file(case: Case, *suffixes: str) -> Path:
    return case.choose.choice(sorted(file for file in case.path.iterdir() if file.suffix in suffixes))


def _places(tree: dict[str, Any]) -> Any:
    for name, value in list(tree.items()):
        yield tree, name
        if isinstance(value, dict):
            yield from _places(value)


def _sign_files(path: Path) -> None:
    try:
        manifest = json.loads((path / store.MANIFEST).read_text())
        del manifest["checksum"]
        for listed in manifest["files"].values():
            file = path / listed["file"]
            listed.update(bytes=file.stat().st_size, sha256=store.digest(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    sign(path, manifest)


def main(arguments: list[str]) -> int:
    """Attack, print what came out, and return an exit code."""
    kernels.set_threads(1)
    count = int(arguments[0]) if arguments else 3000
    result = attack(count, int(arguments[1]) if len(arguments) > 1 else 0)
    print(json.dumps(result))
    return 1 if result["findings"] else 0


def links(place: Place) -> str:
    """Let the names that are an index's own lead elsewhere, and write to it."""
    told, own = [], photos(place.new("linked photos"))
    whole = place.folder / "linked.manifind"
    if place.command("index", own, "-o", whole).returncode:
        broken("no index could be made")
    for number, name in enumerate((".part", ".lock", store.DRAFT, "manifest.json", "vectors-1.npy", "vectors-2.npy")):
        folder = place.new(name.strip("."))
        path, outside = folder / "i.manifind", folder / "outside"
        shutil.copytree(whole, path)
        outside.mkdir()
        (outside / "canary").write_bytes(CANARY)
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(outside if name == ".part" else outside / "canary")
        picture(1000 + number, 400, 300).save(own / f"new {number}.jpg")
        done = place.command("index", own, "-o", path, *(["--repair"] if name == "vectors-1.npy" else []))
        if (outside / "canary").read_bytes() != CANARY or len(list(outside.iterdir())) != 1:
            broken(f"what {name} led to was changed")
        if "Traceback" in done.stderr:
            broken(f"{name}: {done.stderr[-300:]}")
        told.append(f"{name} {'refused' if done.returncode else 'replaced'}")
    return ", ".join(told)


ATTACKS: dict[str, Attack] = {
    "400 damaged and hostile folders": program("index", 400),
    "names that are links": links,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
