"""MATLAB files without MATLAB: version 5 by SciPy, version 7.3, which is HDF5, by h5py."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.io

from manifind.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    import h5py

HDF5 = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Whether the file is HDF5; MATLAB puts 512 bytes of its own before it."""
    with path.open("rb") as stream:
        head = stream.read(520)
    return head[:8] == HDF5 or head[512:520] == HDF5


def open_hdf5(path: Path) -> "h5py.File":
    """Open an HDF5 file for reading."""
    try:
        import h5py
    except ImportError as missing:
        raise MissingExtraError(f"{path} is HDF5, which needs h5py; pip install 'manifind[matlab]'") from missing
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read as HDF5 ({error}); it may be cut short.", code="matlab-file"
        ) from error


def read_matlab(path: Path) -> dict[str, Any]:
    """Return what a MATLAB file holds: cell arrays as lists, structures as dictionaries, text as strings."""
    if is_hdf5(path):
        with open_hdf5(path) as file:
            return {name: _from_hdf5(file, file[name]) for name in file if not name.startswith("#")}
    try:
        stored = scipy.io.loadmat(path, squeeze_me=False, struct_as_record=True)
    except (ValueError, TypeError, NotImplementedError, OSError, scipy.io.matlab.MatReadError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as a MATLAB file ({error}); it may be cut short.", code="matlab-file"
        ) from error
    return {name: _from_version5(value) for name, value in stored.items() if not name.startswith("__")}


def _from_version5(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.names:
        return [{name: _from_version5(record[name]) for name in value.dtype.names} for record in value.ravel(order="F")]
    if value.dtype == object:
        return [_from_version5(cell) for cell in value.ravel(order="F")]
    if value.dtype.kind in "US":
        return str(value.ravel()[0]) if value.size else ""
    return value


def _from_hdf5(file: "h5py.File", node: Any) -> Any:
    import h5py

    if isinstance(node, h5py.Group):
        columns = {name: _from_hdf5(file, child) for name, child in node.items()}
        lengths = {len(column) for column in columns.values() if isinstance(column, list)}
        # An array of structures is a structure of cell arrays of one length.
        if len(lengths) == 1 and all(isinstance(column, list) for column in columns.values()):
            return [{name: column[i] for name, column in columns.items()} for i in range(lengths.pop())]
        return columns
    if node.dtype == h5py.ref_dtype:
        return [_from_hdf5(file, file[reference]) for reference in cells(node)]
    values: npt.NDArray[Any] = node[()]
    kind = node.attrs.get("MATLAB_class", b"")
    if node.attrs.get("MATLAB_empty", 0):
        return "" if kind == b"char" else np.empty(0)
    if kind == b"char":
        return "".join(map(chr, values.ravel()))
    return values.T


def cells(node: Any) -> npt.NDArray[Any]:
    """Return the references of a cell array that is a row or a column."""
    references: npt.NDArray[Any] = np.asarray(node[()]).ravel()
    return references
