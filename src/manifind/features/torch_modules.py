"""Networks of timm, torchvision and transformers, with weights from a file or folder on this machine.

========================================  ==============================================================================
``timm:NAME:FILE``                        a model of timm by its name, ``vit_small_patch14_dinov2`` say, and its weights
``torchvision:NAME:FILE``                 a model of torchvision, ``vit_b_16`` say, and its weights
a folder                                  what ``save_pretrained`` of transformers wrote: DINOv2, DINOv3, SigLIP, CLIP
========================================  ==============================================================================

Weights are files of ``safetensors`` or of ``torch.save``; of the latter weights alone are read, nothing that runs.
Nothing is fetched from anywhere.
"""

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInputError, MissingExtraError, MissingFileError
from manifind.features.torch_backbone import TorchBackbone
from manifind.networks import first_line

try:
    import torch
except ImportError as missing:
    raise MissingExtraError("running a torch network needs torch; pip install 'manifind[torch]'") from missing

PREPROCESSING = "preprocessor_config.json"
CLASSIFIERS = ("head", "fc.", "classifier")
"""How the layers of a classifier are called, which are left out."""


def load_torch_backbone(library: str, name: str, path: Path, device: str | None = None) -> TorchBackbone:
    """Return a network of one of these libraries; by default on the GPU where there is one."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if library == "transformers":
        module, scaling = _of_transformers(path)
        backbone = TorchBackbone(module, device=device, name=path.name)
        backbone.spec = dataclasses.replace(backbone.spec, **scaling)
        return backbone
    made = _make_model(library, name)
    try:
        missing, unknown = made.load_state_dict(_weights(path), strict=False)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{path} does not hold the weights of {library}'s {name} ({first_line(error)})."
        ) from error
    others = [*missing, *(each for each in unknown if not each.startswith(CLASSIFIERS))]
    if others:
        raise InvalidInputError(
            f"{path} does not hold the weights of {library}'s {name}: they differ in {others[0]!r}."
        )
    return TorchBackbone(made, device=device, name=name)


def _make_model(library: str, name: str) -> Any:
    """Return a model without weights worth having; transformers of timm for photos of any shape."""
    models = _import_library(library)
    try:
        if library == "torchvision":
            return models.models.get_model(name, weights=None)
        try:
            return models.create_model(name, pretrained=False, num_classes=0, dynamic_img_size=True)
        except TypeError:  # no transformer
            return models.create_model(name, pretrained=False, num_classes=0)
    except (RuntimeError, ValueError) as error:
        raise InvalidInputError(f"{library} has no model {name!r} ({first_line(error)}).") from error


def _weights(path: Path) -> Any:
    """Return the state dict in a file."""
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist; give the path of the network's weights.")
    try:
        if path.suffix == ".safetensors":
            state = importlib.import_module("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is cut short or something else fails in many ways
        raise InvalidInputError(
            f"{path} cannot be read as weights alone ({first_line(error)}); give a file of safetensors or torch.save."
        ) from error
    return state.get("state_dict", state) if isinstance(state, dict) else state


def _of_transformers(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return the network in a folder, the half that sees where it has two, and how its input is scaled."""
    automatic = _import_library("transformers").AutoModel
    try:
        module = automatic.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(f"{folder} is no network that transformers saved ({first_line(error)}).") from error
    said: dict[str, Any] = {}
    if (folder / PREPROCESSING).is_file():
        scaling = json.loads((folder / PREPROCESSING).read_text(encoding="utf-8"))
        for field, key in (("mean", "image_mean"), ("std", "image_std")):
            if key in scaling:
                said[field] = [255 * float(value) for value in scaling[key]]
    return getattr(module, "vision_model", module), said


def _import_library(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as missing:
        raise MissingExtraError(f"a network of {library} needs it; pip install {library}") from missing
