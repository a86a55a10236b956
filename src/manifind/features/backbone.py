"""Photo -> feature map: the networks.

What a backbone is stands in one place, its `BackboneSpec`. Any ONNX file whose output is a map (batch, channels,
height, width) that grows with the photo will do, or tokens (batch, tokens, channels) as transformers give. What the
file does not say about itself is read from a JSON file beside it, or measured by running it, or taken as usual for
networks trained on ImageNet.

>>> backbone = load_backbone("mobilenet_v2")       # comes with manifind
>>> backbone = load_backbone("mine.onnx")          # and mine.onnx.json, say {"mean": [0, 0, 0], "std": [255, 255, 255]}
>>> backbone.features(photo)                       # (h, w, 3) uint8 -> (C, H, W) float32
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice, check_float, check_int
from manifind.errors import DamagedError, InvalidInputError, MissingFileError
from manifind.features.tokens import LONG, SHORT, measure_patches, tokens_to_map
from manifind.networks import first_line, load_session
from manifind.types import FloatArray

Photo = npt.NDArray[np.uint8]

NETWORKS = Path(__file__).parent / "networks"
"""The networks that come with manifind."""

DEFAULT = "mobilenet_v2"
"""The network that is loaded unless another is asked for. An index asks for ``mobilenet_v2_int8``, the same network in
whole numbers of 8 bits, which is faster."""

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
LONG_SIDE = 768
SMALLEST_CELLS = 7
"""Cells that the shorter side of a map should have at least: small photos are enlarged up to there.

Of 0, 4, 7 and 10 cells, and of enlarging to the full long side, 7 (224 pixels for a stride of 32) found most in the
crops of Oxford5k by regional diffusion: 83.4, 83.5, 83.8, 83.8 and 81.2 mAP (``benchmarks/extraction.py --oxford``).
"""

DECLARED = ("name", "channels", "stride", "mean", "std", "colour_order", "long_side", "smallest_side", "output")
"""What a network may say about itself, in its file's metadata as ``manifind.<key>`` or in the JSON file beside it."""


@dataclass(frozen=True)
class BackboneSpec:
    """What there is to know about a network in order to use it."""

    name: str
    channels: int
    stride: int
    """Pixels of the photo to a cell of the map."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    """The network sees (value − mean) / std, where values run from 0 to 255, in `colour_order`."""
    std: tuple[float, float, float] = IMAGENET_STD
    colour_order: str = "rgb"
    """``"rgb"`` or ``"bgr"``."""
    long_side: int = LONG_SIDE
    """Photos larger than this are shrunk to it."""
    smallest_side: int = 0
    """Photos of a shorter side than this are enlarged; 0 stands for `SMALLEST_CELLS` strides."""
    sha256: str = ""
    """Checksum of the file or the weights."""
    output: str = ""
    """Which output of the network the map is."""
    patch: int = 0
    """Pixels of a patch's side where the network gives tokens: the sides of what it sees are multiples of that."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInputError(f"a backbone's name is {self.name!r}; give it a word.")
        stride = check_int(self.stride, "a backbone's stride")
        check_int(self.channels, "a backbone's channels")
        check_int(self.patch, "a backbone's patch", least=0)
        check_int(self.long_side, "a backbone's long_side", least=stride)
        smallest = check_int(self.smallest_side, "a backbone's smallest_side", least=0)
        check_choice(self.colour_order, ("rgb", "bgr"), "a backbone's colour_order")
        for field in ("mean", "std"):
            values = getattr(self, field)
            if not isinstance(values, list | tuple) or len(values) != 3:
                raise InvalidInputError(f"a backbone's {field} is {values!r}; give three numbers, one a colour.")
            numbers = tuple(check_float(value, f"a backbone's {field}") for value in values)
            object.__setattr__(self, field, numbers)
        if min(self.std) < 1:
            raise InvalidInputError(
                f"a backbone's std is {self.std}, below one; mean and std are for pixel values of 0 to 255: "
                "multiply those for values of 0 to 1 by 255."
            )
        object.__setattr__(self, "smallest_side", smallest or SMALLEST_CELLS * stride)


class Backbone(Protocol):
    """A network that turns one photo into one feature map."""

    @property
    def spec(self) -> BackboneSpec:
        """What the network is."""

    def features(self, photo: Photo) -> FloatArray:
        """Return the (C, H, W) float32 feature map of an upright RGB photo, (h, w, 3) uint8."""


class OnnxBackbone:
    """A network in an ONNX file, run by onnxruntime.

    Parameters
    ----------
    path : path
        The ONNX file: one input (batch, 3, height, width) whose height and width are free, float32 or float16.
    spec : BackboneSpec, optional
        What the network is; by default what the file or the JSON file beside it says and a trial run shows.
    threads : int, optional
        Threads for one photo; by default as many as the process may use.
    """

    def __init__(
        self, path: str | os.PathLike[str], spec: BackboneSpec | None = None, *, threads: int | None = None
    ) -> None:
        path = Path(path)
        if not path.is_file():
            raise MissingFileError(f"{path} does not exist; give the path of an ONNX file.")
        threads = available_cores() if threads is None else check_int(threads, "threads")
        sha256 = checksum_of(path)
        if spec is not None and spec.sha256 not in ("", sha256):
            raise DamagedError(
                f"{path} is not the network it was (SHA-256 {sha256}, not {spec.sha256}); restore the file."
            )
        self.path = path
        self._threads = threads
        self._session = load_session(path, threads)
        self._input, self._dtype = _photo_input(self._session, path)
        declared = (
            _read_declaration(self._session, path) if spec is None else {"output": spec.output} if spec.output else {}
        )
        self._output = _map_output(self._session, declared.get("output"), path)
        if spec is None:
            spec = complete_spec(
                {"name": path.stem, **declared, "sha256": sha256, "output": self._output}, self._run, f"{path}"
            )
        self.spec = dataclasses.replace(spec, sha256=sha256, output=self._output)

    def features(self, photo: Photo) -> FloatArray:
        """Return the (C, H, W) float32 feature map of an upright RGB photo, (h, w, 3) uint8."""
        return features_of(photo, self.spec, self._run)

    def for_threads(self) -> "OnnxBackbone":
        """Return the same network, for several threads at once: each runs it alone."""
        return self if self._threads == 1 else OnnxBackbone(self.path, self.spec, threads=1)

    def _run(self, batch: FloatArray) -> npt.NDArray[Any]:
        try:
            made = self._session.run([self._output], {self._input: batch.astype(self._dtype, copy=False)})
        except Exception as error:  # onnxruntime has a class of its own for each kind, all below Exception
            size = " by ".join(map(str, batch.shape[:1:-1]))
            raise InvalidInputError(
                f"{self.path} does not run on a photo of {size} pixels ({first_line(error)}); "
                "export it with free height and width."
            ) from error
        return np.asarray(made[0])


def load_backbone(name_or_path: str | os.PathLike[str] = DEFAULT, *, threads: int | None = None) -> Backbone:
    """Return a network that comes with manifind, by its name, or anybody's: an ONNX file, or see `torch_modules`."""
    shipped = shipped_networks()
    if name_or_path in shipped:
        return OnnxBackbone(NETWORKS / f"{name_or_path}.onnx", threads=threads)
    source = _parse_library_source(name_or_path)
    if source is not None:
        from manifind.features.torch_modules import load_torch_backbone

        return load_torch_backbone(*source)
    if not Path(name_or_path).is_file():
        raise InvalidInputError(
            f"backbone {os.fspath(name_or_path)!r} is neither a file nor one of {', '.join(map(repr, shipped))}; "
            "give one of these, the path of an ONNX file, a folder that transformers saved, timm:NAME:FILE or "
            "torchvision:NAME:FILE."
        )
    return OnnxBackbone(name_or_path, threads=threads)


LIBRARIES = ("timm", "torchvision")


def absolute_source(name_or_path: str) -> str:
    """Return a backbone as `load_backbone` takes it, wherever that is called from: files by their whole path."""
    if name_or_path in shipped_networks():  # whatever lies here under the same name
        return name_or_path
    source = _parse_library_source(name_or_path)
    if source is not None:
        library, name, path = source
        return str(path.resolve()) if library == "transformers" else f"{library}:{name}:{path.resolve()}"
    return str(Path(name_or_path).resolve()) if Path(name_or_path).suffix else name_or_path


def _parse_library_source(name_or_path: str | os.PathLike[str]) -> tuple[str, str, Path] | None:
    """Return the library, the model's name and the file or folder of a network of torch, or None."""
    library, *rest = os.fspath(name_or_path).split(":", 2)
    if library in LIBRARIES and len(rest) == 2:
        return library, rest[0], Path(rest[1])
    folder = Path(name_or_path)
    return ("transformers", folder.name, folder) if (folder / "config.json").is_file() else None


def shipped_networks() -> list[str]:
    """Return the names of the networks that come with manifind."""
    return sorted(path.stem for path in NETWORKS.glob("*.onnx"))


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a network's file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_photo(photo: object) -> Photo:
    """Return an upright RGB photo, (h, w, 3) uint8."""
    if not isinstance(photo, np.ndarray) or photo.dtype != np.uint8:
        kind = f"an array of {photo.dtype}" if isinstance(photo, np.ndarray) else f"a {type(photo).__name__}"
        raise InvalidInputError(f"photo is {kind}; give an RGB array (height, width, 3) of uint8.")
    if photo.ndim != 3 or photo.shape[2] != 3 or 0 in photo.shape:
        raise InvalidInputError(f"photo has shape {photo.shape}; give an RGB array (height, width, 3) of uint8.")
    return photo


def network_input(photo: Photo, spec: BackboneSpec) -> FloatArray:
    """Return what the network sees of a photo: (1, 3, h, w) float32, scaled as the spec says."""
    photo = check_photo(photo)
    seen = np.empty((1, 3, *photo.shape[:2]), np.float32)
    values = np.arange(256)
    for plane, mean, std, colour in zip(seen[0], spec.mean, spec.std, _colours(spec), strict=True):
        # There are 256 values a colour: looking each pixel up is quicker than arithmetic on all.
        table = ((values - mean) / std).astype(np.float32)
        np.take(table, photo[:, :, colour], out=plane, mode="clip")
    return seen


def features_of(photo: Photo, spec: BackboneSpec, run: Callable[[FloatArray], npt.NDArray[Any]]) -> FloatArray:
    """Return the (C, H, W) float32 feature map that a network's run gives for an upright RGB photo."""
    seen = network_input(photo, spec)
    if not spec.patch:
        return check_map(run(seen), spec)
    height, width = seen.shape[2:]
    if height % spec.patch or width % spec.patch:
        raise InvalidInputError(
            f"backbone {spec.name} sees photos in patches of {spec.patch} pixels and this one has {width} by {height}; "
            "give sides that are multiples of that, or leave the resizing to a RegionExtractor."
        )
    return check_map(tokens_to_map(run(seen), height, width, spec.patch), spec)


def check_map(made: npt.NDArray[Any], spec: BackboneSpec) -> FloatArray:
    """Return the one map of a network's output (1, C, H, W), as float32."""
    if made.ndim != 4 or made.shape[:2] != (1, spec.channels) or 0 in made.shape:
        raise InvalidInputError(
            f"backbone {spec.name} gave an output of shape {made.shape}; a map (1, {spec.channels}, height, width) was "
            "declared."
        )
    return np.ascontiguousarray(made[0], dtype=np.float32)


def complete_spec(
    declared: Mapping[str, Any], run: Callable[[FloatArray], npt.NDArray[Any]], where: str
) -> BackboneSpec:
    """Return the spec of a network from its declaration and from a trial run or two."""
    short, long = 128, 256
    try:
        output = run(np.zeros((1, 3, short, long), np.float32))
    except InvalidInputError:
        # Some transformers refuse sides that are no whole number of patches.
        short, long = SHORT, LONG
        output = run(np.zeros((1, 3, short, long), np.float32))
    if output.ndim == 3:
        patches = measure_patches(run, where)
        return _merge_trial(
            declared, {"channels": patches.channels, "stride": patches.side, "patch": patches.side}, where
        )
    if output.ndim != 4 or 0 in output.shape or output.shape[3] <= output.shape[2]:
        raise InvalidInputError(
            f"{where} gives an output of shape {output.shape} for a photo of {long} by {short} pixels; a map "
            "(1, channels, height, width) that grows with the photo is needed, or tokens (1, patches, channels): leave "
            "out the layers from global pooling on."
        )
    trial = {
        "channels": output.shape[1],
        "stride": round((long - short) / (output.shape[3] - output.shape[2])),
    }
    return _merge_trial(declared, trial, where)


def _merge_trial(declared: Mapping[str, Any], trial: Mapping[str, int], where: str) -> BackboneSpec:
    """Return the spec of the declared fields and those of a trial run, which must agree."""
    for field, value in trial.items():
        if declared.get(field, value) != value:
            raise InvalidInputError(
                f"{where} is declared with {field} {declared[field]!r} but has {value}; correct the declaration."
            )
    return BackboneSpec(**{**declared, **trial})


def _photo_input(session: Any, path: Path) -> tuple[str, type[np.floating[Any]]]:
    """Return the name and the type of the network's one input."""
    inputs = session.get_inputs()
    types: dict[str, type[np.floating[Any]]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in types:
        found = ", ".join(f"{each.name} {each.shape} {each.type}" for each in inputs)
        raise InvalidInputError(f"{path} takes {found}; one floating-point input (batch, 3, height, width) is needed.")
    batch, colours, height, width = inputs[0].shape
    if (isinstance(colours, int) and colours != 3) or (isinstance(batch, int) and batch != 1):
        raise InvalidInputError(f"{path} takes {inputs[0].shape}; an input (batch, 3, height, width) is needed.")
    if isinstance(height, int) or isinstance(width, int):
        raise InvalidInputError(
            f"{path} takes photos of {width} by {height} pixels only; export it with free height and width."
        )
    return inputs[0].name, types[inputs[0].type]


def _map_output(session: Any, wanted: str | None, path: Path) -> str:
    """Return the name of the output that is a map: the one wanted, or the first of four axes."""
    shapes = {each.name: each.shape for each in session.get_outputs()}
    # An output of unknown rank has no shape here; the trial run shows it.
    maps = sorted((name for name, shape in shapes.items() if len(shape) in (0, 3, 4)), key=lambda n: -len(shapes[n]))
    if wanted is not None and wanted not in shapes:
        raise InvalidInputError(f"{path} has no output {wanted!r}; choose one of {', '.join(map(repr, shapes))}.")
    if (wanted or "") not in maps and (wanted is not None or not maps):
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidInputError(
            f"{path} gives {found}; a map (batch, channels, height, width) is needed, or tokens (batch, patches, "
            "channels): leave out the layers from global pooling on."
        )
    return wanted if wanted is not None else maps[0]


def _read_declaration(session: Any, path: Path) -> dict[str, Any]:
    """Return what the file says about itself, and over it what the JSON file beside it says."""
    beside = path.with_name(f"{path.name}.json")
    prefix = "manifind."
    metadata = session.get_modelmeta().custom_metadata_map
    try:
        declared = {key.removeprefix(prefix): json.loads(metadata[key]) for key in metadata if key.startswith(prefix)}
    except ValueError as error:
        raise InvalidInputError(f"{path} has metadata that is not JSON ({error}); write each value as JSON.") from error
    if beside.is_file():
        try:
            declared |= json.loads(beside.read_text(encoding="utf-8"))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{beside} is not a JSON object ({error}); correct or remove it.") from error
    unknown = sorted(declared.keys() - set(DECLARED))
    if unknown:
        raise InvalidInputError(
            f"{path} is declared with {', '.join(map(repr, unknown))}; a backbone has {', '.join(DECLARED)}."
        )
    return declared


def _colours(spec: BackboneSpec) -> tuple[int, ...]:
    return (0, 1, 2) if spec.colour_order == "rgb" else (2, 1, 0)
