"""Photo -> feature map by torch: any module of the user's, and the paper's networks from their published checkpoints.

Needs ``pip install 'manifind[torch]'``; importing this module without it raises `MissingExtraError`.

>>> backbone = TorchBackbone(torchvision.models.mobilenet_v3_large(weights="DEFAULT").features, name="mobilenet_v3")
>>> backbone = TorchBackbone(timm.create_model("resnet50", pretrained=True, features_only=True), name="resnet50")
>>> backbone = TorchBackbone(timm.create_model("vit_small_patch14_dinov2", pretrained=True, dynamic_img_size=True))
>>> backbone = TorchBackbone(transformers.AutoModel.from_pretrained("facebook/dinov2-small"), name="dinov2")
>>> trained = load_retrieval_checkpoint("retrievalSfM120k-resnet101-gem.pth")
>>> RegionExtractor(trained.backbone, trained.whitening, pooling=trained.pooling, p=trained.p)
"""

import codecs
import dataclasses
import hashlib
import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice
from manifind.errors import DamagedError, InvalidInputError, MissingExtraError, MissingFileError
from manifind.features.backbone import BackboneSpec, Photo, complete_spec, features_of
from manifind.features.whitening import Whitening
from manifind.networks import first_line
from manifind.types import FloatArray

try:
    import torch
    from torch import nn
except ImportError as missing:
    raise MissingExtraError("running a torch network needs torch; pip install 'manifind[torch]'") from missing

VGG16 = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512)
"""Channels of the 3 × 3 convolutions of VGG16's configuration D (Simonyan, Zisserman, 2015), up to its last pooling."""

RESNET_BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
"""Bottlenecks of each stage (He et al., 2016, table 1)."""

ARCHITECTURES = ("vgg16", *RESNET_BLOCKS)

POOLINGS = {"mac": "mac", "rmac": "mac", "spoc": "spoc", "gem": "gem"}
"""What a checkpoint calls its pooling -> what it is here, where regions are pooled in any case."""

TOKENS = ("last_hidden_state", "x_norm_patchtokens")
"""What transformers, and DINOv2's own program, call the tokens in what they return."""


class TorchBackbone:
    """A torch module that returns a map (batch, channels, height, width), or several of which the last is meant.

    A transformer may return tokens (batch, tokens, channels) in place of a map: those of timm, torchvision and
    transformers are asked for theirs, with the embeddings of positions interpolated to the shape of the photo.

    Parameters
    ----------
    module : torch.nn.Module
        The network; it is put in evaluation mode and on `device`.
    spec : BackboneSpec, optional
        What the network is; by default the scaling that a module of timm says, else ImageNet's, with what a trial run
        shows.
    device : str
        Where it runs: ``"cpu"``, ``"cuda"``.
    name : str, optional
        What to call it without a spec; by default its class's name.
    """

    def __init__(
        self, module: Any, spec: BackboneSpec | None = None, *, device: str = "cpu", name: str | None = None
    ) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidInputError(f"module is a {type(module).__name__}; give a torch.nn.Module.")
        sha256 = weights_sha256(module.state_dict())
        if spec is not None and spec.sha256 not in ("", sha256):
            raise DamagedError(
                f"the weights of {spec.name} are not what they were (SHA-256 {sha256}, not {spec.sha256})."
            )
        self._call = feature_function(module.eval().to(device))
        self._device = device
        self._name = spec.name if spec is not None else name or type(module).__name__
        if spec is None:
            spec = complete_spec({"name": self._name, **_scaling_of_timm(module)}, self._run, self._name)
        self.spec = dataclasses.replace(spec, sha256=sha256)

    def features(self, photo: Photo) -> FloatArray:
        """Return the (C, H, W) float32 feature map of an upright RGB photo, (h, w, 3) uint8."""
        return features_of(photo, self.spec, self._run)

    def _run(self, batch: FloatArray) -> npt.NDArray[Any]:
        try:
            with torch.inference_mode():
                output = self._call(torch.from_numpy(batch).to(self._device))
        except (RuntimeError, ValueError, AssertionError, IndexError) as error:
            size = " by ".join(map(str, batch.shape[:1:-1]))
            raise InvalidInputError(
                f"{self._name} does not run on a photo of {size} pixels ({first_line(error)}); give a module for "
                "photos of any shape: one of timm is made so with dynamic_img_size=True."
            ) from error
        if isinstance(output, Mapping):
            output = next((output[key] for key in TOKENS if key in output), list(output.values()))
        if isinstance(output, list | tuple) and output:
            output = output[-1]
        if not isinstance(output, torch.Tensor):
            raise InvalidInputError(
                f"{self._name} returns a {type(output).__name__}; give a module that returns one map "
                "(batch, channels, height, width)."
            )
        return np.asarray(output.float().cpu().numpy())


def feature_function(module: Any) -> Callable[[Any], Any]:
    """Return what to call for a module's map or tokens: not its classifier, and for a photo of any shape."""
    if hasattr(module, "conv_proj") and hasattr(getattr(module, "encoder", None), "pos_embedding"):
        return partial(_tokens_of_torchvision, module)
    if hasattr(module, "forward_features"):
        return partial(module.forward_features)
    if "interpolate_pos_encoding" in inspect.signature(module.forward).parameters:
        return partial(module, interpolate_pos_encoding=True)
    # torchvision's classifiers keep their convolutions apart.
    features = getattr(module, "features", None)
    return partial(features if isinstance(features, nn.Module) and hasattr(module, "classifier") else module)


def _tokens_of_torchvision(module: Any, photos: Any) -> Any:
    """Return the tokens of torchvision's vision transformer, which itself takes photos of one size alone."""
    patches = module.conv_proj(photos)
    rows, columns = patches.shape[2:]
    tokens = torch.cat([module.class_token.expand(len(photos), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
    encoder = module.encoder
    own, places = encoder.pos_embedding[:, :1], encoder.pos_embedding[:, 1:]
    side = math.isqrt(places.shape[1])
    if (rows, columns) != (side, side):
        grid = places.transpose(1, 2).reshape(1, -1, side, side)
        grid = nn.functional.interpolate(grid, (rows, columns), mode="bicubic", antialias=True, align_corners=False)
        places = grid.flatten(2).transpose(1, 2)
    return encoder.ln(encoder.layers(encoder.dropout(tokens + torch.cat([own, places], dim=1))))


def _scaling_of_timm(module: Any) -> dict[str, Any]:
    """Return the mean and the standard deviation that a module of timm wants its input scaled by."""
    said = getattr(module, "pretrained_cfg", None) or {}
    return {field: [255 * float(value) for value in said[field]] for field in ("mean", "std") if field in said}


@dataclass(frozen=True, eq=False)
class RetrievalNetwork:
    """A network trained for retrieval, with how its responses are meant to be pooled and whitened."""

    backbone: TorchBackbone
    whitening: Whitening | None
    pooling: str
    p: float
    """GeM's exponent; 3 where the pooling is another."""


def load_retrieval_checkpoint(
    path: str | os.PathLike[str], *, device: str = "cpu", learnt_on: str | None = None
) -> RetrievalNetwork:
    """Read a network fine-tuned for retrieval, VGG16 or a ResNet, from its published checkpoint.

    The file is the one of Radenović, Tolias and Chum's training program: ``meta`` (architecture, pooling, mean, std,
    learnt whitenings) and ``state_dict`` (``features.…``, ``pool.p``, ``whiten.…``). Only weights are read from it;
    code in the file is never run.

    Parameters
    ----------
    path : path
        The ``.pth`` file.
    device : str
        Where the network runs.
    learnt_on : str, optional
        Which of several whitenings to take, by the set it was learnt on; by default the first in the file. A whitening
        that is a layer of the network goes before all.
    """
    path = Path(path)
    meta, state = _read_checkpoint(path)
    architecture = check_choice(meta.get("architecture"), ARCHITECTURES, f"{path}: architecture")
    pooling = check_choice(meta.get("pooling"), POOLINGS, f"{path}: pooling")
    network = trunk(architecture)
    layers = {key.removeprefix("features."): value for key, value in state.items() if key.startswith("features.")}
    try:
        network.load_state_dict(layers)
    except RuntimeError as error:
        sentence = " ".join(str(error).split())[:300]
        raise InvalidInputError(f"{path} does not hold the weights of {architecture} ({sentence}).") from error
    others = {key: value for key, value in state.items() if not key.startswith("features.")}
    # With regional pooling, the layers of pooling and whitening are one room deeper.
    p = others.pop("pool.p", others.pop("pool.rpool.p", None))
    layer = _layer(others, "whiten") or _layer(others, "pool.whiten")
    if others:
        raise InvalidInputError(f"{path} has layers that are not known here: {', '.join(map(repr, sorted(others)))}.")
    said: dict[str, Any] = {"name": f"{architecture}-{path.stem}"}
    for field in ("mean", "std"):
        if field in meta:
            said[field] = [255 * float(value) for value in meta[field]]
    backbone = TorchBackbone(network, device=device, name=architecture)
    backbone.spec = dataclasses.replace(backbone.spec, **said)
    return RetrievalNetwork(
        backbone=backbone,
        whitening=_whitening_of_layer(*layer) if layer else _learnt_whitening(meta.get("Lw"), learnt_on, path),
        pooling=POOLINGS[pooling],
        p=3.0 if p is None else float(p),
    )


def weights_sha256(state: Mapping[str, Any]) -> str:
    """Return a checksum of a state dict: of the names, types, shapes and bytes of its tensors."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def trunk(architecture: str) -> Any:
    """Return the convolutional part of a network, without weights worth having; layers are named as in checkpoints."""
    return _vgg16() if architecture == "vgg16" else _resnet(RESNET_BLOCKS[architecture])


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Narrow, filter, widen, add the input: the block of the deep residual networks."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return torch.relu(self.bn3(self.conv3(x)) + shortcut)


def _vgg16() -> Any:
    layers: list[Any] = []
    inputs = 3
    for step in VGG16:
        if isinstance(step, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(inputs, step, 3, padding=1), nn.ReLU()]
            inputs = step
    return nn.Sequential(*layers)


def _resnet(blocks: tuple[int, ...]) -> Any:
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        bottlenecks = []
        for block in range(count):
            bottlenecks.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
        layers.append(nn.Sequential(*bottlenecks))
    return nn.Sequential(*layers)


def _read_checkpoint(path: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist; give the path of a retrieval checkpoint.")
    try:
        with torch.serialization.safe_globals(_numpy_globals()):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is cut short or something else fails in many ways
        raise InvalidInputError(
            f"{path} cannot be read as weights alone ({first_line(error)}); give a retrieval checkpoint as published."
        ) from error
    meta = content.get("meta") if isinstance(content, Mapping) else None
    state = content.get("state_dict") if isinstance(content, Mapping) else None
    if not isinstance(meta, Mapping) or not isinstance(state, Mapping):
        raise InvalidInputError(
            f"{path} has no 'meta' and 'state_dict'; give a retrieval checkpoint as published, "
            "or make a TorchBackbone of the network."
        )
    return meta, dict(state)


def _numpy_globals() -> list[Any]:
    """Return the parts of a pickled NumPy array, under NumPy's old names and new: whitenings are stored so."""
    array = np.zeros(1)
    make_array, make_scalar = array.__reduce__()[0], array[0].__reduce__()[0]
    named: list[Any] = [np.ndarray, np.dtype, (codecs.encode, "_codecs.encode")]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        named += [(make_array, f"{module}._reconstruct"), (make_scalar, f"{module}.scalar")]
    return named + [type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8")]


def _layer(others: dict[str, Any], name: str) -> tuple[Any, Any] | None:
    """Take the weight and bias of a whitening layer out of `others`, where there is one."""
    if f"{name}.weight" not in others:
        return None
    weight = others.pop(f"{name}.weight").double().numpy()
    bias = others.pop(f"{name}.bias", None)
    return weight, np.zeros(len(weight)) if bias is None else bias.double().numpy()


def _whitening_of_layer(weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64]) -> Whitening:
    """Return W v + b as W (v − mean), where W mean = −b."""
    mean = np.linalg.lstsq(weight, -bias, rcond=None)[0]
    return Whitening(mean.astype(np.float32), weight.T.astype(np.float32))


def _learnt_whitening(learnt: Any, learnt_on: str | None, path: Path) -> Whitening | None:
    """Return one of the whitenings learnt after training, {set: {"ss": {"m": (D, 1), "P": (d, D)}, "ms": …}}."""
    if not learnt:
        return None
    if not isinstance(learnt, Mapping):
        raise InvalidInputError(
            f"{path} has a whitening of type {type(learnt).__name__}; give a checkpoint as published."
        )
    chosen: Any = learnt
    if "P" not in chosen:
        chosen = chosen[check_choice(learnt_on if learnt_on is not None else next(iter(chosen)), chosen, "learnt_on")]
    if isinstance(chosen, Mapping) and "P" not in chosen:
        chosen = chosen.get("ss")  # extraction runs at a single scale here
    if not isinstance(chosen, Mapping) or not {"m", "P"} <= chosen.keys():
        raise InvalidInputError(
            f"{path} has a whitening without m and P for a single scale; give a checkpoint as published."
        )
    mean, project = np.asarray(chosen["m"], np.float32).reshape(-1), np.asarray(chosen["P"], np.float32).T
    return Whitening(mean, project)
