"""The public surface: names, arguments, fields, commands and exit codes that other programs are written against."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import manifind
from manifind import Client, Hit, Index, Manifold, SearchResult
from manifind.cli import COMMANDS
from manifind.client import RemoteHit, RemoteSearchResult
from manifind.errors import ManifindError
from manifind.index import SearchOptions, Stage
from manifind.index.config import PRESETS
from manifind.kernels.cuda import gpu_here
from manifind.serve.schemas import SearchRequest
from tests.commands import run
from tests.index.conftest import Pixels, where

SEARCH = {
    "box": None,
    "positives": (),
    "negatives": (),
    "top": 20,
    "method": "regional",
    "verify": None,
    "expand": True,
    "deadline": None,
    "folder": None,
    "since": None,
    "until": None,
}
"""The arguments of a search after the image, with their defaults."""

HIT = ("key", "score", "box", "is_match", "duplicates", "verified", "outline", "inliers", "rank", "regions")


def defaults(function: Any) -> dict[str, Any]:
    """Return the arguments of a function that have a default."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def test_a_manifold_is_made_of_these_parameters() -> None:
    assert defaults(Manifold) == {
        "k": 100,
        "query_k": 50,
        "alpha": 0.99,
        "gamma": 3.0,
        "pooling": "gmp",
        "solver": "cg",
        "max_iter": 20,
        "tol": 1e-6,
        "gmp_lambda": 1.0,
        "seeding": "paper",
        "knn": "auto",
        "reserve": 0,
        "memory": 2**28,
        "device": "auto",
    }


def test_a_manifold_searches_adds_removes_saves_and_loads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.standard_normal((20, 16)), 3, axis=0)
    vectors = (centres + 0.1 * rng.standard_normal((60, 16))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    image_of = np.repeat(np.arange(20), 3)
    manifold = Manifold(k=5, query_k=5, alpha=0.99, gamma=3.0, pooling="gmp", solver="cg").fit(vectors, image_of)
    images, scores = manifold.search(vectors[:3], top=7)
    assert len(images) == len(scores) == 7
    assert images[0] == 0
    (first, second) = manifold.search_many([vectors[:3], vectors[3:6]], top=5)
    assert (first.images[0], second.images[0]) == (0, 1)
    by_steps = Manifold(k=5, query_k=5, alpha=0.5, solver="iteration", max_iter=100).fit(vectors, image_of)
    named = manifold.set_params(alpha=0.5, max_iter=100).search(vectors[:3], solver="iteration")
    np.testing.assert_array_equal(by_steps.search(vectors[:3]).scores, named.scores)
    assert by_steps.search(vectors[:3], solver="cg").iterations != named.iterations
    listed = manifold.search(vectors[:3], shortlist=4)
    assert len(listed) == 4
    assert set(manifold.search(vectors[:3], shortlist=np.array([0, 3])).images) == {0, 3}
    new = -vectors[:3]
    assert len(manifold.add(new, np.full(3, 99)).layout_.images) == 21
    assert manifold.search(new, top=1).images[0] == 99
    manifold.remove([99])
    manifold.save(tmp_path / "x.manifold")
    again = Manifold.load(tmp_path / "x.manifold").search(vectors[:3], top=7, solver="cg")
    np.testing.assert_array_equal(again.images, manifold.search(vectors[:3], top=7, solver="cg").images)


@pytest.mark.parametrize("search", [Index.search, Index.search_steps, Client.search, Client.search_steps])
def test_every_search_takes_these_arguments(search: Any) -> None:
    assert [*inspect.signature(search).parameters][:3] == ["self", "image", "box"]
    taken = set(typing.get_type_hints(SearchOptions))
    if search is Index.search_steps:
        assert SEARCH.items() <= defaults(search).items()
        assert taken == set(defaults(search)) - {"box", "keys"}
    else:
        assert inspect.signature(search).parameters["options"].annotation == typing.Unpack[SearchOptions]


def test_an_option_that_is_none_is_refused(index: Index, photos: Path) -> None:
    calls: list[Any] = [lambda: index.search(photos / "first-0.png", tops=5), lambda: index.sync(memroy=5)]  # type: ignore[call-arg]
    for call in calls:
        with pytest.raises(TypeError):
            call()


def test_a_request_to_the_service_has_the_same_words() -> None:
    fields = SearchRequest.model_fields
    shared = {name: default for name, default in SEARCH.items() if name not in ("box", "positives", "negatives")}
    assert {name: fields[name].default for name in shared} == shared
    assert {"views", "negatives"} < set(fields)


def test_a_hit_and_a_result_have_these_fields() -> None:
    for hit in (Hit, RemoteHit):
        assert set(HIT) < {field.name for field in dataclasses.fields(hit)}
    for name in ("n_matches", "stage", "complete"):
        assert hasattr(SearchResult, name)
        assert name in inspect.getsource(RemoteSearchResult.__init__)
    assert [str(stage) for stage in Stage] == ["retrieved", "verified", "expanded", "full resolution"]


def test_a_result_is_a_sequence_of_hits_best_first(index: Index, photos: Path) -> None:
    steps = list(index.search_steps(photos / "first-0.png", box=where(0), top=5))
    assert [step.complete for step in steps] == [False] * (len(steps) - 1) + [True]
    assert str(steps[0].stage) == "retrieved"
    result = index.search(photos / "first-0.png", box=where(0), top=5)
    assert len(result) == 5
    assert result.n_matches == sum(hit.is_match is True for hit in result)
    hit = result[0]
    assert (hit.key, hit.duplicates, hit.verified) == ("first-0.png", (), True)
    assert hit.outline is not None
    assert hit.inliers is not None
    assert hit.box is not None
    assert (len(hit.outline), len(hit.box), hit.inliers > 0) == (4, 4, True)
    assert index.explain(hit).keys[-1] == hit.key


def test_an_image_is_a_path_a_key_bytes_an_array_or_an_image(index: Index, photos: Path) -> None:
    file = photos / "first-1.png"
    opened = Image.open(file)
    expected = [hit.key for hit in index.search(file, box=where(1), top=4, verify=0)]
    for image in (str(file), "first-1.png", file.read_bytes(), np.asarray(opened), opened):
        assert [hit.key for hit in index.search(image, box=where(1), top=4, verify=0)] == expected


def test_an_image_of_pillow_is_turned_upright_and_laid_on_white(index: Index, query: Pixels) -> None:
    turned = Image.fromarray(query).transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[274] = 6
    np.testing.assert_array_equal(index.pixels(turned), query)
    clear = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    assert (index.pixels(clear) == 255).all()
    with pytest.raises(ManifindError):
        index.pixels(Image.new("RGB", (0, 4)))


def test_photos_are_filtered_by_folder_and_date(index: Index, photos: Path) -> None:
    found = index.search(photos / "first-0.png", verify=0, folder="more")
    assert {hit.key.split("/")[0] for hit in found} == {"more"}
    assert not len(index.search(photos / "first-0.png", verify=0, until="1970"))
    assert len(index.search(photos / "first-0.png", verify=0, since="1971", deadline=60.0)) == 12


def test_the_paper_is_a_preset_of_all_its_choices() -> None:
    paper = PRESETS["paper"]
    assert (paper.scales, paper.pooling, paper.whiten) == ((1.0,), "mac", "shipped")
    resolved = paper.resolve_parameters(10)
    assert (resolved["k"], resolved["query_k"], resolved["alpha"], resolved["gamma"]) == (200, 200, 0.99, 3.0)
    assert defaults(Index.create)["preset"] == "default"


def test_search_prints_json_of_these_fields_in_order(index: Index, photos: Path) -> None:
    printed = run("search", index.path, photos / "first-0.png", "--box", "20,30,148,158", "--json")
    assert printed.exit_code == 0
    data = json.loads(printed.stdout)
    assert [*data][:5] == ["query", "method", "complete", "n_matches", "results"]
    assert data["complete"] is True
    assert [*data["results"][0]][:10] == [
        "rank",
        "key",
        "score",
        "box",
        "is_match",
        "verified",
        "outline",
        "inliers",
        "duplicates",
        "regions",
    ]
    assert [*data["results"][0]["regions"][0]] == ["box", "share"]


def test_nothing_found_is_exit_code_1_and_a_sentence(index: Index, tmp_path: Path) -> None:
    grey = tmp_path / "grey.png"
    Image.new("RGB", (200, 200), (128, 128, 128)).save(grey)
    printed = run("search", index.path, grey, "--json")
    assert printed.exit_code == 1
    assert json.loads(printed.stdout)["results"] == []
    assert printed.stderr.strip().endswith(".")


def test_exit_codes_tell_whose_fault_it_is(index: Index, tmp_path: Path) -> None:
    assert run("search", index.path, "none.png").exit_code == 2
    assert run("search", tmp_path / "none.manifind", "none.png").exit_code == 2
    damaged = tmp_path / "damaged.manifind"
    damaged.mkdir()
    (damaged / "manifest.json").write_text("{")
    assert run("info", damaged).exit_code == 3
    assert run("check", damaged).exit_code == 1


def test_there_are_these_commands() -> None:
    wanted = {"index", "search", "explain", "serve", "info", "check", "evaluate", "repeats", "publish", "demo"}
    assert wanted < set(COMMANDS)


def test_every_error_ends_in_error_and_has_a_code() -> None:
    for module in pkgutil.walk_packages(manifind.__path__, "manifind."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        try:
            importlib.import_module(module.name)
        except ImportError:  # the GPU's, where torch is not installed
            assert "cuda" in module.name or "torch" in module.name
    kinds, left = set(), [ManifindError]
    while left:
        kinds.add(kind := left.pop())
        left += kind.__subclasses__()
    assert len(kinds) > 10
    for kind in kinds:
        assert kind.__name__.endswith("Error")
        assert kind.code
    ours = (one for name, one in sys.modules.items() if name.startswith("manifind"))
    exceptions = [one for module in ours for one in vars(module).values() if inspect.isclass(one)]
    odd = {
        one.__name__
        for one in exceptions
        if issubclass(one, Exception) and not issubclass(one, Warning) and one.__module__.startswith("manifind")
        if not one.__name__.endswith("Error")
    }
    assert not odd


def test_a_missing_file_is_an_error_with_a_code(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Index.open(tmp_path / "none.manifind")
    assert isinstance(caught.value, ManifindError)
    assert caught.value.code == "missing-file"
    assert str(caught.value).endswith(".")


@pytest.mark.skipif(gpu_here(), reason="this machine has a GPU")
def test_a_device_is_chosen_by_default_and_named_in_the_parameters(index: Index) -> None:
    assert index.device == index.manifold.device == "auto"
    assert "device" not in index.info()["manifold"]
