"""Photos are read and extracted ahead: in order, within bounds of memory, and until somebody leaves."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io import prefetch
from manifind.io.image import Photo
from manifind.io.prefetch import extract_ahead
from manifind.io.scan import ListedFile, list_photos
from tests.features.photo_files import photo_file


def found_in(root: Path) -> list[ListedFile]:
    return [item for item in list_photos(root) if isinstance(item, ListedFile)]


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def read_ahead(
    files: Iterable[ListedFile], *, threads: int = 2, **options: Any
) -> Generator[tuple[ListedFile, Photo | UnreadableImageError], None, None]:
    """Read photos ahead, two for each thread, and extract nothing."""
    with closing(extract_ahead(files, lambda _: None, threads=threads, **options)) as photos:
        for file, photo, _ in photos:
            yield file, photo


class TestReadAhead:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[ListedFile]:
        for shade in range(40):
            photo_file(tmp_path / f"{shade:02}.png", shade)
        return found_in(tmp_path)

    @pytest.mark.parametrize("threads", [1, 2, 4, 100])
    def test_photos_come_in_order(self, files: list[ListedFile], threads: int) -> None:
        outcomes = list(read_ahead(files, threads=threads))
        assert [one for one, _ in outcomes] == files
        shades = [int(photo.pixels[0, 0, 0]) for _, photo in outcomes if isinstance(photo, Photo)]
        assert shades == list(range(40))
        assert not reading_threads()

    def test_photos_that_cannot_be_read_come_with_their_reason(self, files: list[ListedFile]) -> None:
        files[3].path.unlink()
        files[5].path.write_bytes(files[5].path.read_bytes()[:-30])
        outcomes = [outcome for _, outcome in read_ahead(files)]
        bad = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, UnreadableImageError)}
        assert {i: error.reason for i, error in bad.items()} == {3: "no such file", 5: "truncated"}
        # A traceback would keep the photo's bytes for as long as the reason is kept.
        assert all(error.__traceback__ is None and error.__context__ is None for error in bad.values())

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_no_more_than_two_photos_for_each_thread_are_read_ahead(
        self, files: list[ListedFile], threads: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[Path] = []
        depth = 2 * threads

        def counted(path: Path, **options: int | None) -> Photo:
            begun.append(path)
            return Photo(np.zeros((1, 1, 3), np.uint8), 1, 1)

        monkeypatch.setattr(prefetch, "read_photo", counted)
        most = 0
        for taken, _ in enumerate(read_ahead(files, threads=threads), start=1):
            deadline = time.perf_counter() + (1 if most == depth else 30)
            while len(begun) < min(taken + depth, len(files)) and time.perf_counter() < deadline:
                time.sleep(0.001)
            assert len(begun) <= taken + depth
            most = max(most, len(begun) - taken)
        assert most == depth

    def test_nothing_is_taken_before_it_is_asked_for(self, files: list[ListedFile]) -> None:
        taken: list[ListedFile] = []

        def endless() -> Iterator[ListedFile]:
            while True:
                taken.append(files[0])
                yield files[0]

        reader = read_ahead(endless(), threads=2)
        assert not taken
        next(reader)
        assert len(taken) == 5
        reader.close()
        assert not reading_threads()

    @pytest.mark.parametrize("fatal", [KeyboardInterrupt, RuntimeError])
    def test_leaving_early_stops_the_reading(self, files: list[ListedFile], fatal: type[BaseException]) -> None:
        def take() -> None:
            reader = read_ahead(files * 100, threads=3)
            try:
                for number, _ in enumerate(reader):
                    if number == 5:
                        raise fatal
            finally:
                reader.close()

        began = time.perf_counter()
        with pytest.raises(fatal):
            take()
        assert time.perf_counter() - began < 60
        assert not reading_threads()

    def test_an_interrupt_while_it_waits_ends_it(
        self, files: list[ListedFile], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object, **__: object) -> Photo:
            raise KeyboardInterrupt

        monkeypatch.setattr(prefetch, "read_photo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(read_ahead(files))
        assert not reading_threads()

    def test_an_error_of_the_listing_ends_it(self, files: list[ListedFile]) -> None:
        def failing() -> Iterator[ListedFile]:
            yield from files[:3]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            list(read_ahead(failing()))
        assert not reading_threads()

    @pytest.mark.parametrize("threads", [1, 3])
    def test_descriptions_come_in_order_each_with_its_photo(self, files: list[ListedFile], threads: int) -> None:
        files[4].path.write_bytes(b"no photo")
        workers = set[str]()

        def shade(pixels: Any) -> int:
            workers.add(threading.current_thread().name)
            time.sleep(0.002 * (int(pixels[0, 0, 0]) % 3))  # some take longer than those after them
            return int(pixels[0, 0, 0])

        outcomes = list(extract_ahead(files, shade, threads=threads))
        assert [one for one, _, _ in outcomes] == files
        assert [made for _, _, made in outcomes] == [None if i == 4 else i for i in range(40)]
        assert [i for i, (_, photo, _) in enumerate(outcomes) if isinstance(photo, UnreadableImageError)] == [4]
        assert 1 <= len(workers) <= threads
        assert not reading_threads()

    def test_what_extraction_raises_is_raised_in_its_turn(self, files: list[ListedFile]) -> None:
        def failing(pixels: Any) -> int:
            return 1 // (int(pixels[0, 0, 0]) - 7)

        outcomes = extract_ahead(files, failing, threads=2)
        assert [next(outcomes)[0] for _ in range(7)] == files[:7]
        with pytest.raises(ZeroDivisionError):
            next(outcomes)
        assert not reading_threads()

    def test_the_options_of_reading_are_passed_on(self, files: list[ListedFile]) -> None:
        ((_, refused),) = read_ahead(files[:1], max_pixels=11)
        assert isinstance(refused, UnreadableImageError)
        ((_, reduced),) = read_ahead(files[:1], long_side=1)
        assert isinstance(reduced, Photo)
        assert reduced.pixels.shape == (1, 2, 3)

    @pytest.mark.parametrize(("memory", "at_once"), [(100, 1), (250, 2), (999, 4)])
    def test_no_more_photos_are_decoded_at_once_than_the_memory_holds(
        self, files: list[ListedFile], memory: int, at_once: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        guard, inside, most = threading.Condition(), 0, 0

        def counted(path: Path, admit: Callable[[int], None], **options: int | None) -> Photo:
            nonlocal inside, most
            admit(100 if path != files[7].path else 5000)  # one is larger than all there is
            with guard:
                inside += 1
                most = max(most, inside)
                guard.notify_all()
                guard.wait_for(lambda: most >= at_once, 30)
            time.sleep(0.003)
            with guard:
                inside -= 1
            return Photo(np.zeros((1, 1, 3), np.uint8), 1, 1)

        monkeypatch.setattr(prefetch, "read_photo", counted)
        outcomes = list(read_ahead(files, threads=4, memory=memory))
        assert [one for one, _ in outcomes] == files
        assert most == at_once

    def test_what_is_read_counts_until_the_next_is_asked_for(
        self, files: list[ListedFile], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[Path] = []

        def counted(path: Path, admit: Callable[[int], None], **options: int | None) -> Photo:
            admit(300)
            begun.append(path)
            return Photo(np.zeros((10, 10, 3), np.uint8), 1, 1)

        monkeypatch.setattr(prefetch, "read_photo", counted)
        reader = read_ahead(files, threads=4, memory=1000)
        for taken, _ in enumerate(reader, start=1):
            time.sleep(0.005)
            # Three of 300 bytes fit into 1000, the one that was handed out among them.
            assert len(begun) <= taken + 2
        assert len(begun) == len(files)

    @pytest.mark.parametrize("argument", ["threads", "long_side", "max_pixels", "max_bytes", "memory"])
    def test_the_numbers_must_be_whole(self, files: list[ListedFile], argument: str) -> None:
        with pytest.raises(InvalidInputError, match=argument):
            list(read_ahead(files, **{argument: 0}))
