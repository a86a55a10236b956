"""Transformers of timm, torchvision and transformers, of random weights, against the library's own forward pass."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from manifind.errors import InvalidInputError
from manifind.features import load_backbone, load_extractor
from manifind.features.backbone import absolute_source, network_input
from tests.features.photo_files import noise

torch = pytest.importorskip("torch", reason="networks of torch need torch")

from manifind.features.torch_backbone import TorchBackbone  # noqa: E402 (torch comes first)

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def seen_by(backbone: TorchBackbone, photo: npt.NDArray[np.uint8]) -> Any:
    return torch.from_numpy(network_input(photo, backbone.spec))


def of_transformers(kind: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="networks of transformers need transformers")
    torch.manual_seed(0)
    match kind:
        case "dinov2":
            return transformers.Dinov2Model(transformers.Dinov2Config(patch_size=14, image_size=56, **SIZES))
        case "registers":
            config = transformers.Dinov2WithRegistersConfig(
                patch_size=14, image_size=56, num_register_tokens=4, **SIZES
            )
            return transformers.Dinov2WithRegistersModel(config)
        case "dinov3":
            config = transformers.DINOv3ViTConfig(patch_size=16, image_size=64, num_register_tokens=4, **SIZES)
            return transformers.DINOv3ViTModel(config)
        case "siglip":
            config = transformers.SiglipVisionConfig(patch_size=16, image_size=64, **SIZES)
            return transformers.SiglipVisionModel(config)
        case _:
            config = transformers.CLIPVisionConfig(patch_size=32, image_size=64, **SIZES)
            return transformers.CLIPVisionModel(config)


@pytest.mark.parametrize(
    ("kind", "patch", "leading"),
    [("dinov2", 14, 1), ("registers", 14, 5), ("dinov3", 16, 5), ("siglip", 16, 0), ("clip", 32, 1)],
)
def test_the_map_of_transformers_is_the_hidden_state_of_the_patches(kind: str, patch: int, leading: int) -> None:
    module = of_transformers(kind)
    backbone = TorchBackbone(module, name=kind)
    assert (backbone.spec.patch, backbone.spec.channels) == (patch, 16)
    photo = noise(3 * patch, 5 * patch)  # another shape than that of its training: positions are interpolated
    options = {"interpolate_pos_encoding": True} if kind in ("siglip", "clip") else {}
    with torch.inference_mode():
        tokens = module(seen_by(backbone, photo), **options).last_hidden_state
    assert tokens.shape[1] == leading + 15
    expected = tokens[0, leading:].reshape(3, 5, 16).permute(2, 0, 1).numpy()
    np.testing.assert_allclose(backbone.features(photo), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "leading"), [("vit_tiny_patch16_224", 1), ("vit_small_patch14_reg4_dinov2", 5)])
def test_the_map_of_timm_is_that_of_its_features(name: str, leading: int) -> None:
    timm = pytest.importorskip("timm", reason="networks of timm need timm")
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, num_classes=0, dynamic_img_size=True, depth=1)
    backbone = TorchBackbone(module)
    patch = backbone.spec.patch
    np.testing.assert_allclose(backbone.spec.mean, 255 * np.array(module.pretrained_cfg["mean"]), rtol=1e-6)
    photo = noise(2 * patch, 3 * patch)
    with torch.inference_mode():
        tokens = module.forward_features(seen_by(backbone, photo))
    assert tokens.shape[1] == leading + 6
    expected = tokens[0, leading:].reshape(2, 3, -1).permute(2, 0, 1).numpy()
    np.testing.assert_allclose(backbone.features(photo), expected, atol=1e-5)


def test_a_module_of_one_size_says_how_it_is_made_for_all() -> None:
    timm = pytest.importorskip("timm", reason="networks of timm need timm")
    with pytest.raises(InvalidInputError, match="dynamic_img_size=True"):
        TorchBackbone(timm.create_model("vit_tiny_patch16_224", pretrained=False, depth=1))


def test_torchvisions_transformer_sees_its_own_size_as_it_does_itself_and_others_too() -> None:
    torchvision = pytest.importorskip("torchvision", reason="networks of torchvision need torchvision")
    torch.manual_seed(0)
    sizes = {"patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}
    module = torchvision.models.VisionTransformer(image_size=64, **sizes).eval()
    module.encoder.pos_embedding.data.normal_()
    backbone = TorchBackbone(module)
    photo = noise(64, 64)
    seen = seen_by(backbone, photo)
    with torch.inference_mode():
        tokens = module._process_input(seen)
        tokens = module.encoder(torch.cat([module.class_token, tokens], dim=1))
    expected = tokens[0, 1:].reshape(4, 4, 16).permute(2, 0, 1).numpy()
    np.testing.assert_allclose(backbone.features(photo), expected, atol=1e-5)
    assert backbone.features(noise(32, 80)).shape == (16, 2, 5)


def test_a_folder_that_transformers_saved_is_a_backbone_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_transformers("dinov2").save_pretrained(tmp_path / "dino")
    (tmp_path / "dino" / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
    monkeypatch.chdir(tmp_path)
    extractor = load_extractor(absolute_source("dino"))
    assert extractor.backbone.spec.mean == (0, 0, 0)
    assert extractor.backbone.spec.std == (255, 255, 255)
    assert extractor.extract(noise(90, 130)).vectors.shape[1] == 16
    assert absolute_source("dino") == str(tmp_path / "dino")


def test_a_model_of_timm_takes_its_weights_from_a_file(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="networks of timm need timm")
    torch.manual_seed(0)
    trained = timm.create_model("vit_tiny_patch16_224", pretrained=False, dynamic_img_size=True)
    torch.save(trained.state_dict(), tmp_path / "w.pth")
    source = f"timm:vit_tiny_patch16_224:{tmp_path / 'w.pth'}"
    assert absolute_source(source) == source
    photo = noise(32, 48)
    np.testing.assert_allclose(load_backbone(source).features(photo), TorchBackbone(trained).features(photo), atol=1e-5)
    with pytest.raises(InvalidInputError, match="does not hold the weights"):
        load_backbone(f"timm:vit_small_patch16_224:{tmp_path / 'w.pth'}")
    with pytest.raises(InvalidInputError, match="has no model 'nonsense'"):
        load_backbone(f"timm:nonsense:{tmp_path / 'w.pth'}")
