"""One writer at a time, and readers beside it."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifind import InvalidInputError
from manifind.features import RegionExtractor
from manifind.index import Index, explain_result
from tests.errors import raises
from tests.index.small import save_photo
from tests.index.upkeep.fresh import PARAMETERS, Counting


def test_a_second_writer_is_told_who_holds_the_index(made: Index) -> None:
    other = Index.open(made.path, extractor=made.extractor)
    seen = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(InvalidInputError, match=f"being written by process {os.getpid()}"):
            other.remove(["1.png"])
        seen.append(True)

    made.sync(progress=meanwhile)
    assert seen
    other.remove(["1.png"])  # and nobody has to remove the lock


def test_an_index_that_is_being_made_is_not_made_by_another(folder: Path, tmp_path: Path, extractor: Counting) -> None:
    seen = []

    def meanwhile(stage: str, done: int, total: int) -> None:
        if stage == "photos" and done == 3:
            with pytest.raises(InvalidInputError, match="being written by process"):
                Index.create(tmp_path / "i.manifind", folder, extractor=extractor, **PARAMETERS)
            seen.append(True)

    made = Index.create(tmp_path / "i.manifind", folder, extractor=extractor, progress=meanwhile, **PARAMETERS)
    assert seen
    assert (len(made), extractor.extracted) == (8, 8)


def test_results_and_readers_keep_the_generation_that_they_are_of(made: Index, folder: Path) -> None:
    reader = Index.open(made.path, extractor=made.extractor)
    result, before = made.search("6.png"), [(hit.key, hit.score) for hit in reader.search("7.png")]
    for number in range(4):
        (folder / f"{number}.png").unlink()
    made.sync()
    assert len(made) == 4
    # A result keeps its snapshot; a hit is plain data, and is explained on the snapshot of today.
    assert explain_result(result.original, result[-1].image).key == result[-1].key
    assert made.explain(result[0]).key == "6.png"
    gone = next(hit for hit in result if int(hit.key[0]) < 4)
    with raises("photo-removed"):
        made.explain(gone)
    assert len(reader) == 8
    assert [(hit.key, hit.score) for hit in reader.search("7.png")] == before
    reader.reload()
    assert len(reader) == 4


def test_a_writer_starts_from_what_others_wrote(made: Index, folder: Path) -> None:
    late = Index.open(made.path, extractor=made.extractor)
    made.remove(["1.png"])
    late.remove(["2.png"])
    assert {one.key for one in late.catalogue.images} == {"0.png", *(f"{i}.png" for i in range(3, 8))}


def test_a_dead_writers_lock_needs_nobody(made: Index) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom manifind.storage import store\n"
        "with store.writing(Path(sys.argv[1]), 'index'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", program, made.path], check=False)  # noqa: S603
    assert died.returncode == -9
    made.remove(["1.png"])


def test_a_closed_index_says_so(made: Index) -> None:
    with Index.open(made.path, extractor=made.extractor) as opened:
        assert opened.search("1.png", top=1)
    with pytest.raises(InvalidInputError, match="was closed"):
        opened.search("1.png")


def test_closing_twice_is_closing(made: Index) -> None:
    assert repr(made) == f"Index({str(made.path)!r}: 8 photos of {made.root}, generation 1)"
    made.close()
    made.close()
    assert repr(made) == f"Index({str(made.path)!r}, closed)"


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder where flushing costs nothing, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_readers_search_without_pause_while_a_writer_adds_and_removes(
    folder: Path, quick: Path, extractor: RegionExtractor
) -> None:
    made = Index.create(quick / "i.manifind", folder, extractor=extractor, **PARAMETERS)
    for seed in (30, 31, 32):
        save_photo(folder / "more" / f"{seed}.png", seed)
    query = made.photo("0.png").pixels
    stop, failed = threading.Event(), []
    answers: list[tuple[int, tuple[tuple[str, float], ...]]] = []

    def read() -> None:
        try:
            reader = Index.open(made.path, extractor=extractor)
            while not stop.is_set():
                reader.reload()
                hits = reader.search(query, top=None)
                answers.append((reader.generation, tuple((hit.key, round(hit.score, 5)) for hit in hits)))
        except BaseException as error:
            failed.append(error)
            raise

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    truth = {made.generation: tuple((hit.key, round(hit.score, 5)) for hit in made.search(query, top=None))}
    keys = ["more/30.png", "more/31.png", "more/32.png"]
    try:
        for turn in range(200):
            if turn % 2:
                made.remove(keys[: 1 + turn % 3])
            else:
                made.add([folder / "more"])
            truth[made.generation] = tuple((hit.key, round(hit.score, 5)) for hit in made.search(query, top=None))
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not failed
    assert len(truth) > 150
    assert len({generation for generation, _ in answers}) > 10
    assert all(answer == truth[generation] for generation, answer in answers)


def test_an_index_made_anew_at_the_same_place_is_noticed(made: Index, folder: Path, extractor: Counting) -> None:
    reader = Index.open(made.path, extractor=extractor)
    shutil.rmtree(made.path)
    (folder / "7.png").unlink()
    Index.create(made.path, folder, extractor=extractor, **PARAMETERS)
    reader.reload()
    assert len(reader) == 7
