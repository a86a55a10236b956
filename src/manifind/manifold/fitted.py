"""A collection as a manifold holds it, and what makes searching it fast."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import ENGINES, Ground, Prepared, Setting, prepare
from manifind.diffusion.engines import Engine
from manifind.graph import UNKNOWN, Built, Neighbours, normalise, normalised_affinity
from manifind.kernels import Backend, Joining, Pool, Rows, System, backend
from manifind.layout import Layout
from manifind.manifold.parameters import Parameters
from manifind.manifold.saved import check_arrays, check_ids, of_engines, prepared_for, written_for
from manifind.types import FloatArray, Progress, Vectors

SIZE = 1000
"""The `size` of `Manifold.prepare` where none is given."""


@dataclass(eq=False)
class Fitted:
    """The fitted state: plain arrays, and what a backend made of them.

    The rows and the system are made when they are first asked for, so that opening a saved manifold reads nothing.
    They are then held here, with whatever they make of themselves: compressed rows, an ordered or divided matrix.
    """

    parameters: Parameters
    """The parameters that the manifold was fitted with."""
    backend: Backend
    vectors: Vectors
    layout: Layout
    lists: Neighbours
    """The neighbour lists, with the reserve that `update` draws on."""
    built: Built
    S: sp.csr_array
    degrees: FloatArray
    weights: FloatArray
    global_vectors: FloatArray
    sound: bool
    """Whether the ids of the graph are known to be in range. What came from a disk is looked at once."""
    prepared: dict[str, Prepared] = field(default_factory=dict)
    """What engines prepared off line, by the name of the engine."""
    saved: dict[str, Mapping[str, npt.NDArray[Any]]] = field(default_factory=dict)
    """What engines had prepared when the manifold was saved, by the name of the engine. It becomes `prepared` when it
    is first used."""
    _rows: Rows | None = None
    _global_rows: Rows | None = None
    _system: System | None = None
    _making: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def pool(self) -> Pool:
        """How region scores become scores of all images."""
        return Pool(self.layout.starts, self.weights)

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        backend: Backend,
        rows: Rows,
        vectors: Vectors,
        layout: Layout,
        lists: Neighbours,
        built: Built,
        weights: FloatArray,
        global_vectors: FloatArray,
    ) -> Self:
        """Return the state of a collection whose neighbour lists were found."""
        neighbours = lists.first(min(parameters.k, len(vectors) - 1))
        by = rows if isinstance(rows, Joining) else backend
        S, degrees = normalised_affinity(neighbours, parameters.gamma, by=by)
        return cls(
            parameters, backend, vectors, layout, lists, built, S, degrees, weights, global_vectors, True, _rows=rows
        )

    @classmethod
    def from_arrays(cls, parameters: Parameters, built: Built, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the state that `to_arrays` wrote; shapes and types that do not fit together are `Damaged`."""
        check_arrays(arrays, parameters.k)
        n = len(arrays["vectors"])
        S = sp.csr_array((arrays["S_data"], arrays["S_indices"], arrays["S_indptr"]), shape=(n, n))
        S.has_sorted_indices = True
        return cls(
            parameters,
            backend(parameters.device),
            arrays["vectors"],
            Layout(arrays["images"], arrays["starts"]),
            Neighbours(arrays["neighbour_ids"], arrays["neighbour_similarities"]),
            built,
            S,
            arrays["degrees"],
            arrays["weights"],
            arrays["global_vectors"],
            sound=False,
            saved=of_engines(arrays),
        )

    @classmethod
    def of_affinity(
        cls,
        parameters: Parameters,
        vectors: Vectors,
        layout: Layout,
        A: sp.csr_array,
        weights: FloatArray,
        global_vectors: FloatArray,
    ) -> Self:
        """Return the state of a part of a collection whose affinity was found elsewhere; A is spent."""
        device, n = backend(parameters.device), len(vectors)
        S, degrees = normalise(A)
        none = Neighbours(np.empty((n, 0), np.int32), np.empty((n, 0), np.float32))
        built = Built.by(UNKNOWN)
        # A part of a graph is solved on as it lies: putting it in order pays for many queries only.
        part = device.system(S, degrees).restrict(np.arange(n, dtype=np.int32))
        return cls(
            parameters, device, vectors, layout, none, built, S, degrees, weights, global_vectors, True, _system=part
        )

    @property
    def neighbours(self) -> Neighbours:
        """The k neighbours of each region, or all others where they are fewer."""
        return self.lists.first(min(self.parameters.k, len(self.vectors) - 1))

    @property
    def rows(self) -> Rows:
        """The descriptors as the backend searches them."""
        with self._making:
            if self._rows is None:
                self._rows = self.backend.rows(self.vectors)
            return self._rows

    @property
    def global_rows(self) -> Rows:
        """The images' global descriptors as the backend searches them."""
        with self._making:
            if self._global_rows is None:
                same = self.global_vectors is self.vectors
                self._global_rows = self.rows if same else self.backend.rows(self.global_vectors)
            return self._global_rows

    @property
    def system(self) -> System:
        """The graph as the backend solves on it; `Damaged` where one of its ids leads nowhere."""
        with self._making:
            if self._system is None:
                self.check()
                self._system = self.backend.system(self.S, self.degrees)
            return self._system

    def prepare(self, engine: Engine, size: int, setting: Setting, progress: Progress | None = None) -> Prepared:
        """Do what an engine needs off line."""
        ground = Ground(self.system, self.S, self.rows, self.neighbours.ids)
        made = self.prepared[engine.name] = prepare(engine.name, ground, size, setting, progress)
        return made

    def ready(self, engine: Engine, setting: Setting) -> Any:
        """Return what an engine needs for a search: what was prepared or saved, or what it prepares now."""
        if engine.prepare is None:
            return None
        with self._making:
            if engine.name not in self.prepared and engine.name in self.saved and engine.from_arrays is not None:
                saved = self.saved[engine.name]
                size, alpha = prepared_for(saved) if engine.needs_alpha else (0, None)
                state = engine.from_arrays(self.system, saved)
                self.prepared[engine.name] = Prepared(engine.name, size, alpha, state)
            made = self.prepared.get(engine.name)
            if made is None or not made.serves(setting.alpha):
                made = self.prepare(engine, SIZE if made is None else made.size, setting)
            return made.state

    def has(self, engine: str) -> bool:
        """Whether a search by this engine can begin at once, without preparing anything."""
        return engine in self.prepared or (engine in self.saved and ENGINES[engine].possible(self.system))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all of it as named arrays, with what engines made that is worth saving."""
        arrays = {
            "vectors": self.vectors,
            "images": self.layout.images,
            "starts": self.layout.starts,
            "neighbour_ids": self.lists.ids,
            "neighbour_similarities": self.lists.similarities,
            "S_data": self.S.data,
            "S_indices": self.S.indices,
            "S_indptr": self.S.indptr,
            "degrees": self.degrees,
            "weights": self.weights,
            "global_vectors": self.global_vectors,
        }
        made = dict(self.saved)
        for name, prepared in self.prepared.items():
            to_arrays = ENGINES[name].to_arrays
            if to_arrays is not None:
                made[name] = {**to_arrays(prepared.state), **written_for(prepared)}
        return arrays | {f"{name}_{part}": array for name, parts in made.items() for part, array in parts.items()}

    def check(self) -> None:
        """Raise `Damaged` where an id of the graph leads nowhere; looked at once."""
        with self._making:
            if not self.sound:
                check_ids(self.S, self.layout)
                self.sound = True

    def words(self) -> list[str]:
        """Say what is held to make searches fast."""
        return [repr(held) for held in (self._rows, self._system) if held is not None]
