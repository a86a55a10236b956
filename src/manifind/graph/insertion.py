"""New regions enter the k-NN lists of others, each at its place; what falls off the end is gone."""

import numpy as np
import numpy.typing as npt

from manifind.kernels import NO_NEIGHBOUR, Neighbours
from manifind.types import FloatArray, IntArray

MAX_SINGLE_INSERTS = 4
"""Newcomers to a list up to which each is inserted by itself; more are merged, which costs as many columns as there are
newcomers in all."""


def insert_new_rows(
    lists: Neighbours, products: FloatArray, coming: IntArray, complete: npt.NDArray[np.bool_]
) -> Neighbours:
    """Let regions that have come into the lists of others.

    Parameters
    ----------
    lists : Neighbours
        Of m regions.
    products : (m, c)
        The similarities of these to the regions that have come.
    coming : (c,)
        The numbers of the regions that have come.
    complete : (m,)
        Whether a list has everybody else but those who are coming.
    """
    counts = (lists.ids >= 0).sum(axis=1)
    # Into a list of everybody whoever comes belongs; into others, who is nearer than the last.
    open_ = complete & (counts < lists.ids.shape[1])
    last = np.where(open_, -np.inf, lists.similarities[np.arange(len(counts)), np.maximum(counts, 1) - 1])
    return _insert_marked(lists, products, products > last[:, None], coming)


def _insert_marked(lists: Neighbours, products: FloatArray, enters: npt.NDArray[np.bool_], new: IntArray) -> Neighbours:
    """Let each list take in the new regions marked in its row, each at its place; what falls off the end is gone."""
    ids, similarities = lists
    coming = enters.sum(axis=1)
    few = np.flatnonzero((coming > 0) & (coming <= MAX_SINGLE_INSERTS))
    if len(few):
        row, column = np.nonzero(enters[few])
        row = few[row]
        turn = np.arange(len(row)) - np.searchsorted(row, row)  # the how-manieth of its row
        for one in range(MAX_SINGLE_INSERTS):
            of_turn = turn == one
            _insert(ids, similarities, row[of_turn], new[column[of_turn]], products[row[of_turn], column[of_turn]])
    many = np.flatnonzero(coming > MAX_SINGLE_INSERTS)
    if len(many):
        width = ids.shape[1]
        joined = np.concatenate([similarities[many], np.where(enters[many], products[many], -np.inf)], axis=1)
        known = np.concatenate([ids[many], np.broadcast_to(new.astype(np.int32), (len(many), len(new)))], axis=1)
        known[np.isneginf(joined)] = NO_NEIGHBOUR
        best = np.argpartition(-joined, width - 1, axis=1)[:, :width]
        known, joined = np.take_along_axis(known, best, axis=1), np.take_along_axis(joined, best, axis=1)
        order = np.lexsort((known, -joined))  # of equals the lower id is first
        ids[many] = np.take_along_axis(known, order, axis=1)
        similarities[many] = np.take_along_axis(joined, order, axis=1)
    return Neighbours(ids, similarities)


def _insert(
    ids: IntArray,
    similarities: FloatArray,
    rows: npt.NDArray[np.intp],
    new: IntArray,
    similarity: FloatArray,
) -> None:
    """Insert one new region into each of the lists of different `rows`, in place."""
    columns = np.arange(ids.shape[1])
    nearer = similarities[rows] > similarity[:, None]
    first = (similarities[rows] == similarity[:, None]) & (ids[rows] < new[:, None])  # of equals the lower id is first
    at = (nearer | first).sum(axis=1)[:, None]
    source, here = columns - (columns > at), columns == at
    ids[rows] = np.where(here, new[:, None], np.take_along_axis(ids[rows], source, axis=1))
    similarities[rows] = np.where(here, similarity[:, None], np.take_along_axis(similarities[rows], source, axis=1))
