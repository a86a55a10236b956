"""Ground truths as they are published, and a format of your own.

`read_truth` recognises each by its name and contents:

======================================== ==========================================================================
a folder of ``*_query.txt``              Oxford5k and Paris6k, with ``*_good.txt``, ``*_ok.txt``, ``*_junk.txt``
a folder of ``*/query`` and ``*/pos``    ILIAS: ``ilias_core``, with a box beside each photo
a JSON object of key → name, good, ok …  the same in one file
``gnd_*.pkl``                            Revisited Oxford and Paris: read without running anything in it
``gnd_*.mat``                            INSTRE, or the others as MATLAB has them; version 5 or 7.3
a JSON object of images and queries      Revisited in one file, where queries have ``easy`` and ``hard``; else your own
``*.csv``                                your own: query, box, positives, junk
``*.dat``, or another with "holidays"    INRIA Holidays: names of photos, a line each
======================================== ==========================================================================
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from manifind.errors import InvalidInputError, MissingFileError
from manifind.evaluation.formats.gnd import from_gnd
from manifind.evaluation.formats.json_csv import from_csv, from_json
from manifind.evaluation.formats.matlab import read_matlab
from manifind.evaluation.formats.text import holidays, ilias, needed_names, oxford_folder
from manifind.evaluation.formats.unpickle import read_pickle
from manifind.evaluation.protocol import Protocol, name_lookup


def read_truth(
    path: Path,
    names: Sequence[str] | None = None,
    *,
    query_counts: bool = False,
    copies: Mapping[str, str] | None = None,
) -> Protocol:
    """Read a ground truth.

    Parameters
    ----------
    path
        A file or a folder, as above.
    names
        The names of the collection's images, in order: for a ground truth that does not list the images itself.
    query_counts
        Whether a query's own photo counts as any other, in a ground truth of your own. Otherwise it is ignored.
    copies
        Names of files that are no images of the collection because each is identical to one, and that one's name.
    """
    if not copies or names is None:
        return _read(path, names, query_counts=query_counts).ignore_own_photos()
    find, place = name_lookup(names), {name: number for number, name in enumerate(names)}
    # A copy that name_lookup takes for its original already needs no name of its own.
    distinct = {copy: photo for copy, photo in copies.items() if find(copy) != place[photo]}
    read = _read(path, [*names, *distinct], query_counts=query_counts)
    return read.merge_copies(names, distinct).ignore_own_photos()


def _read(path: Path, names: Sequence[str] | None, *, query_counts: bool) -> Protocol:
    if path.is_dir():
        read = ilias if any(path.glob("*/query/Q*_bbox.txt")) else oxford_folder
        return read(path, needed_names(names, path))
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist; give the file or folder of a ground truth.")
    suffix = path.suffix.lower()
    if suffix in (".pkl", ".mat"):
        stored = read_pickle(path) if suffix == ".pkl" else read_matlab(path)
        try:
            return from_gnd(stored, path, first=0 if suffix == ".pkl" else 1)
        except InvalidInputError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidInputError(
                f"{path} is not laid out as a ground truth: {error}.", code="truth-layout"
            ) from error
    if suffix == ".csv":
        return from_csv(path, needed_names(names, path), query_counts=query_counts)
    if suffix == ".json":
        return from_json(path, names, query_counts=query_counts)
    if suffix == ".dat" or "holidays" in path.stem.lower():
        return holidays(path)
    raise InvalidInputError(
        f"{path} is no ground truth; give a .json, .csv, .pkl, .mat, .dat file or a folder of text files.",
        code="truth-format",
    )
