"""Where the driver and its workers exchange files: a folder that all of them see, or an object store.

An object store is given by an address of fsspec (``s3://bucket/folder``, ``gs://…``, ``file:///folder``), for which its
own package must be installed (s3fs, gcsfs). A file is there when it is whole, whoever else writes the same at the same
time: it gets its name last.
"""

import hashlib
import importlib
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import ManifindError, MissingExtraError
from manifind.remote.store import StoreUnavailableError
from manifind.storage import disk
from manifind.storage.arrays import NotAnArrayError, read_array

ROWS_PER_READ = 2**14
"""Rows of an array that are read or written at a time."""


@dataclass(frozen=True)
class ExchangeDir:
    """The files of one folder, which travels to workers by its name."""

    where: str
    apart: bool = False
    """Whether workers may see nothing else of what the driver sees, so that all they read must be brought here."""

    @classmethod
    def open(cls, where: str) -> "ExchangeDir":
        """Return the files of a folder, made if it is not there, or of an object store, as the user named it."""
        if "://" in where:
            return cls(where, apart=True)
        disk.make_folder(Path(where))
        return cls(str(Path(where).resolve()), apart=True)  # a worker has another working folder

    @property
    def folder(self) -> Path | None:
        """The folder where it is one that is seen here, and not in an object store."""
        return None if "://" in self.where else Path(self.where)

    def within(self, name: str) -> "ExchangeDir":
        """Return the files of a folder below; it is made when something is written."""
        return replace(self, where=f"{self.where.rstrip('/')}/{name}")

    def exists(self, name: str) -> bool:
        """Say whether a file is there."""
        if self.folder is not None:
            return (self.folder / name).exists()
        with _store(self.where) as (system, root):
            return bool(system.exists(f"{root}/{name}"))

    def names(self) -> list[str]:
        """Return the names of all files and folders."""
        if self.folder is not None:
            return sorted(file.name for file in self.folder.iterdir()) if self.folder.is_dir() else []
        with _store(self.where) as (system, root):
            there = system.ls(root, detail=False) if system.exists(root) else []
        return sorted(file.rstrip("/").rpartition("/")[2] for file in there)

    def write(self, name: str, chunks: Iterable[disk.Bytes]) -> None:
        """Write a file."""
        draft = f".{name}.{token_hex(4)}"
        if self.folder is not None:
            disk.write(self.folder / draft, chunks)
            disk.replace(self.folder / draft, self.folder / name)
            return
        with _store(self.where) as (system, root):
            system.makedirs(root, exist_ok=True)
            with system.open(f"{root}/{draft}", "wb") as stream:
                for chunk in chunks:
                    stream.write(chunk)
            system.mv(f"{root}/{draft}", f"{root}/{name}")

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        if self.folder is not None:
            with (self.folder / name).open("rb") as stream:
                stream.seek(start)
                return stream.read(-1 if end is None else end - start)
        with _store(self.where) as (system, root):
            content: bytes = system.cat_file(f"{root}/{name}", start=start, end=end)
        return content

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return the array of an ``.npy`` file: mapped where it lies in a folder."""
        try:
            return read_array(Path(self.where) / name, None if self.folder is not None else self.read(name))
        except NotAnArrayError as error:
            raise StoreUnavailableError(
                f"{name} of {self.where} is no array ({error}); remove it and begin again."
            ) from error

    def arrays(self, name: str, count: int) -> list[npt.NDArray[Any]]:
        """Return the arrays of a file of `npy_files`."""
        stream = io.BytesIO(self.read(name))
        return [np.load(stream, allow_pickle=False) for _ in range(count)]

    def remove(self, name: str) -> None:
        """Remove a file."""
        if self.folder is not None:
            disk.remove(self.folder / name)
            return
        with _store(self.where) as (system, root):
            system.rm_file(f"{root}/{name}")

    def make(self) -> None:
        """Make the folder, where it is one."""
        if self.folder is not None:
            disk.make_own_folder(self.folder)

    def clear(self) -> None:
        """Remove the folder with all that is in it."""
        if self.folder is not None:
            disk.remove_folder(self.folder)
            return
        with _store(self.where) as (system, root):
            if system.exists(root):
                system.rm(root, recursive=True)


@dataclass(frozen=True)
class ArrayFile:
    """Rows of plain numbers in one file, read a slice at a time."""

    exchange: ExchangeDir
    name: str
    kind: str
    shape: tuple[int, int]

    def __getitem__(self, span: slice) -> npt.NDArray[Any]:
        """Return some rows: mapped where the file lies in a folder."""
        start, end, _ = span.indices(self.shape[0])
        if start >= end:
            return np.empty((0, self.shape[1]), self.kind)
        if self.exchange.folder is not None:
            mapped: npt.NDArray[Any] = np.memmap(self.exchange.folder / self.name, self.kind, "r", shape=self.shape)
            return mapped[start:end]
        size = self.shape[1] * np.dtype(self.kind).itemsize
        content = self.exchange.read(self.name, start * size, end * size)
        return np.frombuffer(content, self.kind).reshape(-1, self.shape[1])

    @classmethod
    def write(cls, array: npt.NDArray[Any], name: str, exchange: ExchangeDir) -> "ArrayFile":
        """Write the rows of an array to a file for all to see, unless it is there."""
        if not exchange.exists(name):
            blocks = (array[start : start + ROWS_PER_READ] for start in range(0, len(array), ROWS_PER_READ))
            exchange.write(name, (np.ascontiguousarray(block).tobytes() for block in blocks))
        return cls(exchange, name, array.dtype.str, (array.shape[0], array.shape[1]))

    @classmethod
    def share(cls, array: npt.NDArray[Any], file: Path, exchange: ExchangeDir) -> "ArrayFile":
        """Return an array that lies in a file as workers see it: there, or brought to where they see it."""
        if isinstance(array, np.memmap):
            array.flush()  # what was changed in it is there for all to see
        if exchange.apart:
            return cls.write(array, file.name, exchange)
        return cls(ExchangeDir(str(file.parent)), file.name, array.dtype.str, (array.shape[0], array.shape[1]))


def npy_files(*arrays: npt.NDArray[Any]) -> list[disk.Bytes]:
    """Return the content of one file with several arrays."""
    content = io.BytesIO()
    for array in arrays:
        np.save(content, array)
    return [content.getvalue()]


def digest_arrays(*arrays: npt.NDArray[Any]) -> str:
    """Return what tells arrays from others, for the names of folders; some rows are read at a time."""
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays:
        for start in range(0, len(array), ROWS_PER_READ):
            digest.update(np.ascontiguousarray(array[start : start + ROWS_PER_READ]).data)
    return digest.hexdigest()


def read_division(exchange: ExchangeDir, name: str, fits: Callable[[int], bool]) -> int | None:
    """Return how work was divided by a driver that began it: the number after `name` in a folder's, where it fits."""
    for there in exchange.names():
        number = there.removeprefix(name)
        if there.startswith(name) and number.isdecimal() and fits(int(number)):
            return int(number)
    return None


@contextmanager
def _store(where: str) -> Iterator[tuple[Any, str]]:
    """Give what fsspec reads and writes with, and the folder as it knows it; what goes wrong there is one sentence."""
    try:
        try:
            # Others write there at the same time: what was listed a moment ago says nothing.
            system, root = importlib.import_module("fsspec.core").url_to_fs(where, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise MissingExtraError(
                f"{where} cannot be reached ({error}); install what fsspec needs for it."
            ) from error
        yield system, str(root).rstrip("/")
    except ManifindError:
        raise
    except Exception as error:  # each store has errors of its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise StoreUnavailableError(
            f"{where} did not answer ({reason}); see that it is there and that you may write to it, and try again."
        ) from error
