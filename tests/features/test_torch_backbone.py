import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.errors import DamagedError, InvalidInputError
from manifind.features import BackboneSpec, load_extractor
from manifind.features.backbone import network_input
from tests.features.photo_files import noise

torch = pytest.importorskip("torch", reason="networks of torch need torch")

from manifind.features.torch_backbone import (  # noqa: E402 (torch comes first)
    RESNET_BLOCKS,
    TorchBackbone,
    load_retrieval_checkpoint,
    trunk,
    weights_sha256,
)


def small_network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 4, 4), torch.nn.ReLU())


def test_any_module_is_measured_and_run() -> None:
    module = small_network()
    backbone = TorchBackbone(module, name="small")
    assert (backbone.spec.name, backbone.spec.channels, backbone.spec.stride) == ("small", 6, 4)
    photo = noise(20, 32)
    with torch.inference_mode():
        expected = module(torch.from_numpy(network_input(photo, backbone.spec)))[0].numpy()
    np.testing.assert_array_equal(backbone.features(photo), expected)


def returning(change: Callable[[Any], Any]) -> Any:
    """A network that returns something made of its map."""
    network = small_network()
    network.register_forward_hook(lambda module, given, made: change(made))
    return network


def test_of_several_maps_the_last_is_taken() -> None:
    photo = noise(16, 24)
    expected = TorchBackbone(small_network()).features(photo)
    for change in (lambda made: [made[:, :1], made], lambda made: {"fine": made[:, :1], "coarse": made}):
        np.testing.assert_array_equal(TorchBackbone(returning(change)).features(photo), expected)


def test_weights_have_a_checksum_that_a_spec_can_insist_on() -> None:
    spec = TorchBackbone(small_network()).spec
    assert TorchBackbone(small_network(), spec).spec == spec
    other = small_network()
    other[0].bias.data[0] += 1
    with pytest.raises(DamagedError, match="are not what they were"):
        TorchBackbone(other, spec)
    assert weights_sha256(other.state_dict()) != spec.sha256


def test_a_module_without_a_map_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInputError, match=r"^module is a function; give a torch\.nn\.Module\.$"):
        TorchBackbone(lambda x: x)
    with pytest.raises(InvalidInputError, match="leave out the layers from global pooling on"):
        TorchBackbone(torch.nn.Sequential(small_network(), torch.nn.AdaptiveAvgPool2d(1)))
    with pytest.raises(InvalidInputError, match="returns a str; give a module that returns one map"):
        TorchBackbone(returning(lambda made: "map"))
    with pytest.raises(InvalidInputError, match=r"\(1, 7, height, width\) was declared"):
        TorchBackbone(small_network(), BackboneSpec("small", 7, 4)).features(noise(8, 8))


@pytest.mark.parametrize(
    ("architecture", "weights", "channels", "stride"),
    [("vgg16", 14_714_688, 512, 16), ("resnet50", 23_508_032, 2048, 32), ("resnet101", 42_500_160, 2048, 32)],
)
def test_trunks_have_the_published_number_of_weights(
    architecture: str, weights: int, channels: int, stride: int
) -> None:
    network = trunk(architecture)
    assert sum(parameter.numel() for parameter in network.parameters()) == weights
    if architecture != "resnet101":
        spec = TorchBackbone(network).spec
        assert (spec.channels, spec.stride) == (channels, stride)


def literal_resnet(state: dict[str, Any], x: Any) -> Any:
    """A residual network of one bottleneck a stage (He et al., 2016), straight from its weights."""
    functional = torch.nn.functional

    def conv(x: Any, name: str, norm: str, stride: int = 1) -> Any:
        weight = state[f"features.{name}.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var, gain, bias = (
            state[f"features.{norm}.{field}"] for field in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean[:, None, None]) / torch.sqrt(var[:, None, None] + 1e-5) * gain[:, None, None] + bias[
            :, None, None
        ]

    x = functional.max_pool2d(torch.relu(conv(x, "0", "1", 2)), 3, 2, 1)
    for stage in range(4):
        at, stride = f"{stage + 4}.0", 1 if stage == 0 else 2
        kept = conv(x, f"{at}.downsample.0", f"{at}.downsample.1", stride)
        x = torch.relu(conv(x, f"{at}.conv1", f"{at}.bn1"))
        x = torch.relu(conv(x, f"{at}.conv2", f"{at}.bn2", stride))
        x = torch.relu(conv(x, f"{at}.conv3", f"{at}.bn3") + kept)
    return x


def checkpoint(architecture: str, pooling: str = "gem", **meta: Any) -> dict[str, Any]:
    """A checkpoint of random weights, as the training program writes them."""
    torch.manual_seed(0)
    network = trunk(architecture)
    for name, value in network.state_dict().items():
        if name.endswith("running_var"):
            torch.nn.init.uniform_(value, 0.5, 1.5)
        elif name.endswith("running_mean"):
            torch.nn.init.normal_(value)
    state = OrderedDict((f"features.{name}", value) for name, value in network.state_dict().items())
    if pooling == "gem":
        state["pool.p"] = torch.tensor([2.5])
    said = {
        "architecture": architecture,
        "pooling": pooling,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    return {"epoch": 1, "meta": {**said, "outputdim": 2048, **meta}, "state_dict": state}


@pytest.fixture
def small_resnet(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(RESNET_BLOCKS, "resnet101", (1, 1, 1, 1))
    return "resnet101"


def test_a_resnet_checkpoint_gives_the_features_of_its_weights(tmp_path: Path, small_resnet: str) -> None:
    content = checkpoint(small_resnet)
    torch.save(content, tmp_path / "net.pth")
    trained = load_retrieval_checkpoint(tmp_path / "net.pth")
    spec = trained.backbone.spec
    assert (trained.pooling, trained.p, trained.whitening) == ("gem", 2.5, None)
    assert (spec.name, spec.channels, spec.stride) == ("resnet101-net", 2048, 32)
    np.testing.assert_allclose(spec.mean, [123.675, 116.28, 103.53])
    photo = noise(70, 100)
    expected = literal_resnet(content["state_dict"], torch.from_numpy(network_input(photo, spec)))[0]
    np.testing.assert_allclose(trained.backbone.features(photo), expected.numpy(), rtol=1e-3, atol=1e-4)


def test_a_vgg_checkpoint_stops_before_the_last_pooling(tmp_path: Path) -> None:
    content = checkpoint("vgg16", "mac")
    torch.save(content, tmp_path / "net.pth")
    trained = load_retrieval_checkpoint(tmp_path / "net.pth")
    assert (trained.pooling, trained.backbone.spec.stride) == ("mac", 16)
    photo = noise(40, 50)
    x = torch.from_numpy(network_input(photo, trained.backbone.spec))
    state = content["state_dict"]
    for at in range(30):
        if at in {4, 9, 16, 23}:
            x = torch.nn.functional.max_pool2d(x, 2)
        elif f"features.{at}.weight" in state:
            weight, bias = state[f"features.{at}.weight"], state[f"features.{at}.bias"]
            x = torch.relu(torch.nn.functional.conv2d(x, weight, bias, padding=1))
    np.testing.assert_allclose(trained.backbone.features(photo), x[0].numpy(), rtol=1e-3, atol=1e-5)


def test_a_whitening_layer_is_applied_as_the_layer_would(tmp_path: Path, small_resnet: str) -> None:
    content = checkpoint(small_resnet)
    layer = torch.nn.Linear(2048, 32)
    content["state_dict"] |= {f"whiten.{name}": value for name, value in layer.state_dict().items()}
    torch.save(content, tmp_path / "net.pth")
    whitening = load_retrieval_checkpoint(tmp_path / "net.pth").whitening
    assert whitening is not None
    vectors = torch.nn.functional.normalize(torch.rand(4, 2048))
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(layer(vectors)).numpy()
    np.testing.assert_allclose(whitening.apply(vectors.numpy()), expected, atol=1e-4)


@pytest.mark.parametrize("published", [False, True])
def test_a_learnt_whitening_comes_with_the_checkpoint(tmp_path: Path, small_resnet: str, published: bool) -> None:
    rng = np.random.default_rng(0)
    mean, project = rng.normal(size=(2048, 1)) * 0.01, rng.normal(size=(16, 2048))
    learnt = {"one-set": {"ss": {"m": mean * 0, "P": project}}, "another": {"ss": {"m": mean, "P": project}, "ms": {}}}
    path = tmp_path / "net.pth"
    torch.save(checkpoint(small_resnet, Lw=learnt), path, _use_new_zipfile_serialization=not published)
    if published:
        # NumPy has moved its insides since the checkpoints were published.
        path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    vectors = rng.random((3, 2048)).astype(np.float32)
    expected = (project @ (vectors.T - mean)).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    whitening = load_retrieval_checkpoint(path, learnt_on="another").whitening
    assert whitening is not None
    np.testing.assert_allclose(whitening.apply(vectors), expected, atol=1e-5)
    first = load_retrieval_checkpoint(path).whitening
    assert first is not None
    assert not first.mean.any()
    with pytest.raises(InvalidInputError, match="learnt_on is 'third'; choose one of 'one-set', 'another'"):
        load_retrieval_checkpoint(path, learnt_on="third")


def test_a_checkpoint_makes_an_extractor(tmp_path: Path, small_resnet: str) -> None:
    project = np.random.default_rng(0).normal(size=(16, 2048))
    learnt = {"set": {"ss": {"m": np.zeros((2048, 1)), "P": project}}}
    torch.save(checkpoint(small_resnet, Lw=learnt), tmp_path / "net.pth")
    extractor = load_extractor(tmp_path / "net.pth", grid_levels=2)
    assert (extractor.pooling, extractor.p, extractor.dimension, extractor.grid_levels) == ("gem", 2.5, 16, 2)
    regions = extractor.extract(noise(128, 160))
    np.testing.assert_allclose(np.linalg.norm(regions.vectors, axis=1), 1, atol=1e-5)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path, small_resnet: str) -> None:
    ran = tmp_path / "ran"

    class Code:
        def __reduce__(self) -> tuple[Any, tuple[Path]]:
            return Path.touch, (ran,)

    torch.save({"meta": {"x": 1}, "state_dict": {}, "code": Code()}, tmp_path / "net.pth")
    with pytest.raises(InvalidInputError, match="cannot be read as weights alone"):
        load_retrieval_checkpoint(tmp_path / "net.pth")
    assert not ran.exists()


def test_what_is_not_a_retrieval_checkpoint_is_refused(tmp_path: Path, small_resnet: str) -> None:
    path = tmp_path / "net.pth"

    def refused(content: Any) -> str:
        torch.save(content, path)
        with pytest.raises(InvalidInputError) as error:
            load_retrieval_checkpoint(path)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "has no 'meta' and 'state_dict'" in refused({"weights": torch.zeros(2)})
    assert "architecture is 'alexnet'" in refused({"meta": {"architecture": "alexnet"}, "state_dict": {}})
    assert "pooling is 'netvlad'" in refused(checkpoint(small_resnet, "netvlad"))
    assert "does not hold the weights of resnet101" in refused({**checkpoint(small_resnet), "state_dict": {}})
    extra = checkpoint(small_resnet)
    extra["state_dict"]["lwhiten.weight"] = torch.zeros(2)
    assert "'lwhiten.weight'" in refused(extra)
    path.write_bytes(pickle.dumps({"meta": 1}, protocol=2)[:-3])
    with pytest.raises(InvalidInputError, match="cannot be read as weights alone"):
        load_retrieval_checkpoint(path)
    with pytest.raises(FileNotFoundError, match=r"none\.pth does not exist"):
        load_retrieval_checkpoint(tmp_path / "none.pth")
