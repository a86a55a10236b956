"""Descriptors of a collection's images and of queries: read from files, checked, and put in the order of a protocol.

========================== =======================================================================================
a folder                   ``vectors.npy``, ``image_of.npy``, and ``names.json`` or ``names.txt``
``.npz``, ``.safetensors`` ``vectors``, ``image_of`` (or ``query_of``), ``names``; ``global_vectors`` if they are apart
``.npy``                   one row an image
``.mat``                   the layout of the paper's authors: ``glob.V``, ``glob.Q``, ``reg.V``, ``reg.Q`` (HDF5)
========================== =======================================================================================

Regions without global descriptors beside them are aggregated by the methods that want one descriptor an image. Names
of safetensors are a JSON list under ``names`` in its metadata.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import image_numbers, unit_vectors
from manifind.errors import InvalidInputError, MissingExtraError
from manifind.evaluation.formats.matlab import cells, is_hdf5, open_hdf5
from manifind.evaluation.protocol import Protocol, duplicate_names, name_lookup, preview
from manifind.groups import Layout
from manifind.types import FloatArray, IntArray

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Descriptors:
    """Unit rows and the image or query, from 0 without gaps, that each belongs to."""

    vectors: FloatArray
    of: IntArray

    @property
    def count(self) -> int:
        """How many images or queries there are."""
        return int(self.of[-1]) + 1 if len(self.of) else 0

    def subset(self, numbers: Sequence[int] | npt.NDArray[np.integer]) -> "Descriptors":
        """Return the descriptors of some images, in the order given, numbered anew from 0."""
        places = np.asarray(numbers, np.int64)
        if len(places) == self.count and (places == np.arange(self.count)).all():
            return self
        layout = Layout.of(self.of)
        return Descriptors(
            self.vectors[layout.regions_of(places)],
            np.repeat(np.arange(len(places), dtype=np.int32), layout.counts[places]),
        )

    def split(self) -> list[FloatArray]:
        """Return a list with the rows of each image or query."""
        ends = np.cumsum(np.bincount(self.of, minlength=self.count))[:-1]
        return np.split(self.vectors, ends)

    def concat(self, others: "Descriptors") -> "Descriptors":
        """Return these descriptors followed by the others, whose numbers come after these."""
        return Descriptors(
            np.concatenate([self.vectors, others.vectors]),
            np.concatenate([self.of, others.of + np.int32(self.count)]),
        )

    def checksum(self) -> str:
        """Return the SHA-256 of the descriptors and of their numbers."""
        digest = hashlib.sha256(repr(self.vectors.shape).encode())
        digest.update(np.ascontiguousarray(self.vectors).data)
        digest.update(np.ascontiguousarray(self.of).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class DescriptorSet:
    """A collection's images, or queries: by regions, by global descriptors, or both."""

    what: str
    """Where the descriptors came from, for errors and reports."""
    regional: Descriptors | None
    whole: Descriptors | None
    names: tuple[str, ...] | None = None

    @property
    def any(self) -> Descriptors:
        """Return the descriptors of regions, or the global descriptors where there are no others."""
        rows = self.regional or self.whole
        assert rows is not None  # noqa: S101 (one of them is there, see `descriptor_set`)
        return rows

    @property
    def count(self) -> int:
        """How many images or queries there are."""
        return self.any.count

    def subset(self, numbers: Sequence[int]) -> "DescriptorSet":
        """Return some of them, in the order given."""
        return replace(
            self,
            regional=None if self.regional is None else self.regional.subset(numbers),
            whole=None if self.whole is None else self.whole.subset(numbers),
            names=None if self.names is None else tuple(self.names[i] for i in numbers),
        )

    def concat(self, others: "DescriptorSet") -> "DescriptorSet":
        """Return these images followed by others, which are distractors."""
        if (self.regional is None) != (others.regional is None) or (self.whole is None) != (others.whole is None):
            raise InvalidInputError(
                f"{self.what} and {others.what} do not have the same kinds of descriptors; give both alike.",
                code="descriptor-kinds",
            )
        if self.any.vectors.shape[1] != others.any.vectors.shape[1]:
            raise InvalidInputError(
                f"{self.what} has {self.any.vectors.shape[1]} dimensions and {others.what} "
                f"{others.any.vectors.shape[1]}; extract both with the same network and whitening.",
                code="dimensions",
            )
        if self.names is None or others.names is None:
            raise InvalidInputError(
                f"{self.what} and {others.what} must both name their images to be put together.", code="no-image-names"
            )
        return replace(
            self,
            regional=self.regional and others.regional and self.regional.concat(others.regional),
            whole=self.whole and others.whole and self.whole.concat(others.whole),
            names=self.names + others.names,
        )

    def checksum(self) -> str:
        """Return the SHA-256 of all descriptors."""
        parts = ["" if kind is None else kind.checksum() for kind in (self.regional, self.whole)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def descriptor_set(
    what: str,
    arrays: Arrays,
    names: Sequence[str] | None = None,
    *,
    kind: str = "image",
) -> DescriptorSet:
    """Check descriptors and return them.

    `arrays` have ``vectors``, with ``image_of`` or ``query_of`` where there are several rows for one, and
    ``global_vectors``. `what` says where they came from, for errors; `kind` is "image" or "query".
    """
    if "vectors" not in arrays and "global_vectors" not in arrays:
        raise InvalidInputError(
            f"{what} has {preview(sorted(arrays)) or 'nothing'}; expected an array called vectors.", code="no-vectors"
        )
    regional = whole = None
    if "global_vectors" in arrays:
        whole = _descriptors(what, arrays["global_vectors"], None, kind, names)
    if "vectors" in arrays:
        of = arrays.get("image_of", arrays.get("query_of"))
        regions = _descriptors(what, arrays["vectors"], of, kind, names)
        if of is None and whole is None:
            whole = regions
        else:
            regional = regions
    if regional is not None and whole is not None and regional.count != whole.count:
        raise InvalidInputError(
            f"{what} has regions of {regional.count} and global descriptors of {whole.count} {_many(kind)}.",
            code="image-count",
        )
    descriptors = DescriptorSet(what, regional, whole, None if names is None else tuple(map(str, names)))
    if descriptors.names is not None:
        repeated = duplicate_names(descriptors.names)
        if repeated:
            raise InvalidInputError(
                f"{what} names {preview(repeated)} twice; give each {kind} a name of its own.", code="duplicate-name"
            )
    return descriptors


def _descriptors(
    what: str, vectors: npt.NDArray[Any], of: npt.NDArray[Any] | None, kind: str, names: Sequence[str] | None
) -> Descriptors:
    rows = unit_vectors(np.asarray(vectors), f"vectors of {what}")
    numbers = image_numbers(of, len(rows), f"{kind}_of of {what}")
    count = int(numbers[-1]) + 1
    if names is not None and count != len(names):
        more = (
            f"the first without a name is number {len(names)}"
            if count > len(names)
            else (f"the first without descriptors are {preview(list(map(str, names[count:])))}")
        )
        raise InvalidInputError(
            f"{what} has descriptors of {count} {_many(kind)} and {len(names)} names; {more}.", code="image-count"
        )
    absent = np.setdiff1d(np.arange(count), numbers)
    if len(absent):
        called = [str(names[i]) if names is not None else f"number {i}" for i in absent]
        raise InvalidInputError(
            f"{what} has no descriptor of {preview(called)}; extract every {kind}, or leave it out.",
            code="missing-descriptor",
        )
    return Descriptors(rows, numbers)


def _many(kind: str) -> str:
    return {"image": "images", "query": "queries"}[kind]


def align_images(collection: DescriptorSet, protocol: Protocol) -> DescriptorSet:
    """Return the descriptors of a protocol's images, in its order."""
    if collection.names is None:
        if collection.count != len(protocol.images):
            raise InvalidInputError(
                f"{collection.what} has descriptors of {collection.count} images and {protocol.name} is about "
                f"{len(protocol.images)}; give those of its images in its order, or name them (--names).",
                code="image-count",
            )
        return replace(collection, names=protocol.images)
    find = name_lookup(collection.names)
    places = [find(name) for name in protocol.images]
    missing = [name for name, place in zip(protocol.images, places, strict=True) if place is None]
    if missing:
        raise InvalidInputError(
            f"{collection.what} has no descriptors of images of {protocol.name}: {preview(missing)}.",
            code="missing-descriptor",
        )
    numbers = [place for place in places if place is not None]
    same = duplicate_names(collection.names[number] for number in numbers)
    if same:
        raise InvalidInputError(
            f"{protocol.name} has two images that both look like {preview(same[:1])} of {collection.what}.",
            code="ambiguous-name",
        )
    return replace(collection.subset(numbers), names=protocol.images)


def align_queries(queries: DescriptorSet, protocol: Protocol) -> DescriptorSet:
    """Return the descriptors of a protocol's queries, in its order."""
    if queries.names is not None:
        find = name_lookup(queries.names)
        places = [find(query.name) for query in protocol.queries]
        missing = [query.name for query, place in zip(protocol.queries, places, strict=True) if place is None]
        if missing:
            raise InvalidInputError(
                f"{queries.what} has no descriptors of queries of {protocol.name}: {preview(missing)}.",
                code="missing-descriptor",
            )
        return queries.subset([place for place in places if place is not None])
    if queries.count != len(protocol.queries):
        raise InvalidInputError(
            f"{queries.what} has descriptors of {queries.count} queries and {protocol.name} has "
            f"{len(protocol.queries)}; give those of its queries in its order.",
            code="query-count",
        )
    return queries


def read_collection(path: Path, names: Path | None = None) -> tuple[DescriptorSet, DescriptorSet | None]:
    """Read the descriptors of a collection, and of its queries where the same file has them."""
    listed = None if names is None else read_names(names)
    if path.is_dir():
        arrays = {file.stem: _load(file) for file in (path / "vectors.npy", path / "image_of.npy") if file.is_file()}
        if (path / "global_vectors.npy").is_file():
            arrays["global_vectors"] = _load(path / "global_vectors.npy")
        beside = next((path / name for name in ("names.json", "names.txt") if (path / name).is_file()), None)
        if listed is None and beside is not None:
            listed = read_names(beside)
        return descriptor_set(str(path), arrays, listed), None
    if path.suffix.lower() == ".mat":
        images, queries = _authors(path)
        return (
            descriptor_set(str(path), images, listed),
            descriptor_set(f"the queries of {path}", queries, kind="query") if queries else None,
        )
    arrays, stored_names = _read_file(path)
    return descriptor_set(str(path), arrays, listed if listed is not None else stored_names), None


def read_queries(path: Path) -> DescriptorSet:
    """Read the descriptors of queries."""
    if path.suffix.lower() == ".mat":
        _, queries = _authors(path)
        return descriptor_set(str(path), queries, kind="query")
    arrays, names = _read_file(path)
    return descriptor_set(str(path), arrays, names, kind="query")


def is_descriptors(path: Path) -> bool:
    """Whether a path leads to descriptors, and not to a folder of photos."""
    return path.is_file() or (path / "vectors.npy").is_file() or (path / "global_vectors.npy").is_file()


def read_names(path: Path) -> list[str]:
    """Read names of images: a JSON list, or a line each."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() != ".json":
            return [line.strip() for line in text.splitlines() if line.strip()]
        names = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{path} cannot be read as names ({error}); give a JSON list, or text with a name a line.",
            code="names-file",
        ) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"{path} is not a list of names; give a JSON list of strings.", code="names-file")
    return names


def _read_file(path: Path) -> tuple[dict[str, npt.NDArray[Any]], list[str] | None]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return {"vectors": _load(path)}, None
    if suffix == ".npz":
        with _load(path) as stored:
            try:
                arrays = {name: stored[name] for name in stored.files}
            except ValueError as error:
                raise InvalidInputError(f"{path} cannot be read: {error}", code="descriptor-file") from error
        names = arrays.pop("names", None)
        return arrays, None if names is None else [str(name) for name in names]
    if suffix == ".safetensors":
        return _safetensors(path)
    raise InvalidInputError(
        f"{path} is no file of descriptors; give .npy, .npz, .safetensors, .mat, or a folder.", code="descriptor-file"
    )


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as NumPy's ({error}); it may be cut short, or have objects in it.",
            code="descriptor-file",
        ) from error


def _safetensors(path: Path) -> tuple[dict[str, npt.NDArray[Any]], list[str] | None]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as missing:
        raise MissingExtraError(f"{path} needs safetensors; pip install 'manifind[safetensors]'") from missing
    try:
        with safe_open(path, framework="np") as stored:
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (it has no iterator)
            metadata = stored.metadata() or {}
    except (SafetensorError, TypeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as safetensors ({error}); save float16 or float32.", code="descriptor-file"
        ) from error
    return arrays, json.loads(metadata["names"]) if "names" in metadata else None


def _authors(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Read the descriptors that the paper's authors released: a cell an image, its columns the regions."""
    if not is_hdf5(path):
        raise InvalidInputError(
            f"{path} is no MATLAB file of version 7.3 (HDF5), as the authors' descriptors are.", code="descriptor-file"
        )
    images: dict[str, npt.NDArray[Any]] = {}
    queries: dict[str, npt.NDArray[Any]] = {}
    with open_hdf5(path) as file:
        for group, rows, of in (("glob", "global_vectors", None), ("reg", "vectors", "_of")):
            for node, target, kind in (("V", images, "image"), ("Q", queries, "query")):
                if f"{group}/{node}" not in file:
                    continue
                descriptors, counts = _cells(file, file[f"{group}/{node}"])
                target[rows] = descriptors
                if of is not None:
                    target[f"{kind}{of}"] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    if not images:
        raise InvalidInputError(
            f"{path} has neither glob.V nor reg.V; give descriptors in the layout of the paper's authors.",
            code="descriptor-file",
        )
    return images, queries


def _cells(file: Any, node: Any) -> tuple[npt.NDArray[Any], list[int]]:
    """Return the columns of all cells as rows, and how many each has; HDF5 has MATLAB's columns as rows already."""
    import h5py

    if node.dtype != h5py.ref_dtype:
        rows = np.asarray(node[()], np.float32)
        return rows, [1] * len(rows)
    references = cells(node)
    counts = [file[reference].shape[0] for reference in references]
    rows = np.empty((sum(counts), file[references[0]].shape[1]), np.float32)
    at = 0
    for reference, count in zip(references, counts, strict=True):
        rows[at : at + count] = file[reference][()]
        at += count
    return rows, counts
