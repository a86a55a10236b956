"""Files of descriptors: of a collection's images, and of queries.

========================== =======================================================================================
a folder                   ``vectors.npy``, ``image_of.npy``, and ``names.json`` or ``names.txt``
``.npz``, ``.safetensors`` ``vectors``, ``image_of`` (or ``query_of``), ``names``; ``global_vectors`` if they are apart
``.npy``                   one row an image
``.mat``                   the layout of the paper's authors: ``glob.V``, ``glob.Q``, ``reg.V``, ``reg.Q`` (HDF5)
========================== =======================================================================================

Regions without global descriptors beside them are aggregated by the methods that want one descriptor an image. Names
of safetensors are a JSON list under ``names`` in its metadata.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError, MissingExtraError
from manifind.evaluation.descriptor_set import DescriptorSet, descriptor_set
from manifind.evaluation.matlab import cells, is_hdf5, open_hdf5


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
    arrays, own = _read_file(path)
    return descriptor_set(str(path), arrays, listed if listed is not None else own), None


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
            f"{path} cannot be read as names ({error}); give a JSON list, or text with a name a line."
        ) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"{path} is not a list of names; give a JSON list of strings.")
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
                raise InvalidInputError(f"{path} cannot be read: {error}") from error
        names = arrays.pop("names", None)
        return arrays, None if names is None else [str(name) for name in names]
    if suffix == ".safetensors":
        return _safetensors(path)
    raise InvalidInputError(f"{path} is no file of descriptors; give .npy, .npz, .safetensors, .mat, or a folder.")


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as NumPy's ({error}); it may be cut short, or have objects in it."
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
        raise InvalidInputError(f"{path} cannot be read as safetensors ({error}); save float16 or float32.") from error
    return arrays, json.loads(metadata["names"]) if "names" in metadata else None


def _authors(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Read the descriptors that the paper's authors released: a cell an image, its columns the regions."""
    if not is_hdf5(path):
        raise InvalidInputError(f"{path} is no MATLAB file of version 7.3 (HDF5), as the authors' descriptors are.")
    images: dict[str, npt.NDArray[Any]] = {}
    queries: dict[str, npt.NDArray[Any]] = {}
    with open_hdf5(path) as file:
        for group, rows, of in (("glob", "global_vectors", None), ("reg", "vectors", "_of")):
            for node, target, kind in (("V", images, "image"), ("Q", queries, "query")):
                if f"{group}/{node}" not in file:
                    continue
                found, counts = _cells(file, file[f"{group}/{node}"])
                target[rows] = found
                if of is not None:
                    target[f"{kind}{of}"] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    if not images:
        raise InvalidInputError(
            f"{path} has neither glob.V nor reg.V; give descriptors in the layout of the paper's authors."
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
