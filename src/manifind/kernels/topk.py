"""Top-k selection and the merge of top-k lists."""

import numpy as np
import numpy.typing as npt

from manifind.kernels.api import Neighbours


def argsort_topk(scores: npt.NDArray[np.floating], top: int | None) -> npt.NDArray[np.intp]:
    """Return the places of the `top` largest scores, descending, equal ones by place; None means all."""
    if top is None or top >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -top)[-top]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:top]]


def merge_topk(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Return the `k` best of two lists a row, best first; of equals those of the first list come first."""
    similarities = np.concatenate([first.similarities, second.similarities], axis=1)
    ids = np.concatenate([first.ids, second.ids], axis=1)
    best = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(ids, best, axis=1), np.take_along_axis(similarities, best, axis=1))
