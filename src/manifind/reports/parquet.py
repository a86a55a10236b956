"""Results, regions and vectors as Parquet, by pyarrow (``manifind[parquet]``)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manifind.errors import MissingExtraError
from manifind.index import Index

ROWS = 16_384
"""Regions that are written at once."""


def write_results(
    file: Path, results: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, mirrored: bool = False
) -> None:
    """Write results as `hit_data` returned them, with the columns of a catalogue under ``metadata``."""
    pa, pq = _pyarrow()
    box = ("x0", "y0", "x1", "y1")
    schema = pa.schema(
        [
            ("rank", pa.int32()),
            ("key", pa.string()),
            ("score", pa.float64()),
            *((name, pa.float64()) for name in box),
            ("is_match", pa.bool_()),
            ("verified", pa.bool_()),
            ("grade", pa.string()),
            ("inliers", pa.int32()),
            ("expanded", pa.bool_()),
            ("outline", pa.list_(pa.list_(pa.float64()))),
            ("part", pa.list_(pa.list_(pa.float64()))),
            ("duplicates", pa.list_(pa.string())),
            *([("mirrored", pa.bool_())] if mirrored else []),
            *([("metadata", pa.struct([(name, pa.string()) for name in columns]))] if columns else []),
        ]
    )
    rows = []
    for one in results:
        row = {name: one.get(name) for name in schema.names}
        row |= dict(zip(box, one["box"] or [None] * 4, strict=True))
        rows.append(row)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def write_regions(file: Path, index: Index, *, vectors: bool = True) -> int:
    """Write the regions of an index, a row each: key, box, pooling weight, and descriptor; return how many."""
    pa, pq = _pyarrow()
    manifold, boxes = index.manifold, index.boxes
    count, dimension = manifold.vectors_.shape
    image_of, weights = manifold.layout_.image_of, np.asarray(manifold.weights_)
    images = index.catalogue.images
    fields = [("key", pa.string()), ("sha256", pa.string())]
    fields += [(name, pa.float32()) for name in ("x0", "y0", "x1", "y1", "weight")]
    if vectors:
        fields.append(("vector", pa.list_(pa.float32(), dimension)))
    schema = pa.schema(fields)
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, count, ROWS):
            rows = slice(start, min(start + ROWS, count))
            numbers = image_of[rows]
            data: list[Any] = [pa.array([getattr(images[i], name) for i in numbers]) for name in ("key", "sha256")]
            data += [pa.array(np.asarray(boxes[rows, side], np.float32)) for side in range(4)]
            data.append(pa.array(np.asarray(weights[rows], np.float32)))
            if vectors:
                flat = np.asarray(manifold.vectors_[rows], np.float32).ravel()
                data.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), dimension))
            arrays = [pa.array(one) if not isinstance(one, pa.Array) else one for one in data]
            writer.write_batch(
                pa.record_batch([one.cast(schema.field(i).type) for i, one in enumerate(arrays)], schema)
            )
    return int(count)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtraError("writing Parquet needs pyarrow; pip install 'manifind[parquet]'") from missing
    return pa, parquet
