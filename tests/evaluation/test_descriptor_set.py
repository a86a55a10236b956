"""Descriptors in every layout are the same descriptors; what does not fit the ground truth is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from manifind import InvalidInputError
from manifind.evaluation import Protocol, QueryPhoto, Task
from manifind.evaluation.dataset import prepare
from manifind.evaluation.descriptors import (
    DescriptorSet,
    align_images,
    descriptor_set,
    read_collection,
    read_names,
    read_queries,
)
from tests.errors import raises

Arrays = dict[str, np.ndarray]


def regions(images: int = 12, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(images), rng.integers(1, 4, images)).astype(np.int32)
    vectors = rng.normal(size=(len(of), 8)).astype(np.float32)
    return {"vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True), "image_of": of}


NAMES = [f"photo_{i}" for i in range(12)]


def as_folder(path: Path, arrays: Arrays) -> Path:
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    (path / "names.json").write_text(json.dumps(NAMES))
    return path


def as_npz(path: Path, arrays: Arrays) -> Path:
    np.savez(path.with_suffix(".npz"), names=NAMES, vectors=arrays["vectors"], image_of=arrays["image_of"])
    return path.with_suffix(".npz")


def as_safetensors(path: Path, arrays: Arrays) -> Path:
    save_file(arrays, path.with_suffix(".safetensors"), {"names": json.dumps(NAMES)})
    return path.with_suffix(".safetensors")


def as_mat(path: Path, arrays: Arrays) -> Path:
    """The authors' layout: a cell an image, a column a region; HDF5 has MATLAB's columns as rows."""
    with h5py.File(path.with_suffix(".mat"), "w", userblock_size=512) as file:
        for group, node, of in (("reg", "V", arrays["image_of"]), ("reg", "Q", arrays["image_of"])):
            cells = [
                file.create_dataset(f"#refs#/{node}{i}", data=arrays["vectors"][of == i]).ref for i in range(of[-1] + 1)
            ]
            file.create_dataset(f"{group}/{node}", data=np.array(cells, h5py.ref_dtype)[:, None], dtype=h5py.ref_dtype)
        wholes = np.array([arrays["vectors"][arrays["image_of"] == i][0] for i in range(arrays["image_of"][-1] + 1)])
        file.create_dataset("glob/V", data=wholes)
        file.create_dataset("glob/Q", data=wholes)
    return path.with_suffix(".mat")


@pytest.mark.parametrize("write", [as_folder, as_npz, as_safetensors, as_mat])
def test_every_layout_gives_the_same(tmp_path: Path, write: Callable[[Path, Arrays], Path]) -> None:
    arrays = regions()
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    found, queries = read_collection(write(tmp_path / "x", arrays), tmp_path / "names.txt")
    assert found.names == tuple(NAMES)
    assert found.regional is not None
    np.testing.assert_allclose(found.regional.vectors, arrays["vectors"], atol=1e-6)
    np.testing.assert_array_equal(found.regional.of, arrays["image_of"])
    assert (queries is not None) == (write is as_mat)
    if queries is not None:
        assert queries.whole is not None
        assert found.whole is not None
        assert queries.count == found.whole.count == 12
        np.testing.assert_allclose(queries.whole.vectors, found.whole.vectors)


def test_a_row_an_image_is_a_global_descriptor(tmp_path: Path) -> None:
    vectors = regions()["vectors"][:12]
    np.save(tmp_path / "x.npy", vectors)
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    found, _ = read_collection(tmp_path / "x.npy", tmp_path / "names.json")
    assert found.regional is None
    assert found.whole is not None
    np.testing.assert_array_equal(found.whole.vectors, vectors)


def with_change(arrays: Arrays, **changes: Any) -> Arrays:
    return {**arrays, **changes}


@pytest.mark.parametrize(
    ("change", "names", "code", "message"),
    [
        (
            lambda a: a,
            NAMES[:9],
            "image-count",
            "descriptors of 12 images and 9 names; the first without a name is number 9",
        ),
        (
            lambda a: a,
            [*NAMES, "p", "q"],
            "image-count",
            "descriptors of 12 images and 14 names; the first without descriptors are p, q",
        ),
        (
            lambda a: with_change(
                a, vectors=a["vectors"][a["image_of"] != 3], image_of=a["image_of"][a["image_of"] != 3]
            ),
            NAMES,
            "missing-descriptor",
            "no descriptor of photo_3",
        ),
        (lambda a: a, [*NAMES[:-1], "photo_0"], "duplicate-name", "names photo_0 twice"),
        (lambda a: with_change(a, image_of=a["image_of"][::-1]), NAMES, "not-ascending", "not ascending"),
        (lambda a: with_change(a, image_of=a["image_of"][:-1]), NAMES, "wrong-shape", "one image number a region"),
        (lambda a: {"features": a["vectors"]}, NAMES, "no-vectors", "has features; expected an array called vectors"),
    ],
)
def test_descriptors_that_do_not_fit_themselves_are_refused(
    change: Callable[[Arrays], Arrays], names: list[str], code: str, message: str
) -> None:
    with raises(code, InvalidInputError) as refused:
        descriptor_set("x.npz", change(regions()), names)
    assert message in str(refused.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for name in ("x.npy", "x.npz", "x.safetensors", "x.mat", "x.pt"):
        (tmp_path / name).write_bytes(b"rubbish" * 200)
        with raises("descriptor-file"):
            read_collection(tmp_path / name)
        with raises("descriptor-file"):
            read_queries(tmp_path / name)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with raises("descriptor-file"):
        read_collection(tmp_path / "objects.npy")


def protocol(images: list[str], queries: int = 12, *, own_photos: bool = True) -> Protocol:
    asked = tuple(QueryPhoto(f"q{i}", f"photo_{i}" if own_photos else f"other_{i}") for i in range(queries))
    # Each query looks for its own photo alone.
    wanted = tuple(np.array([images.index(f"photo_{i}")]) for i in range(queries))
    task = Task("toys", wanted, tuple(np.empty(0, np.int64) for _ in range(queries)))
    return Protocol("toys", tuple(images), asked, (task,), query_counts=True)


def test_images_are_found_by_name_in_any_order_with_any_suffix() -> None:
    arrays = regions()
    collection = descriptor_set("x", arrays, NAMES)
    shuffled = [f"photo_{i}" for i in np.random.default_rng(1).permutation(12)]
    found = align_images(replace(collection, names=tuple(f"jpg/{name}.jpg" for name in NAMES)), protocol(shuffled))
    assert found.regional is not None
    for place, name in enumerate(shuffled):
        number = int(name.removeprefix("photo_"))
        np.testing.assert_array_equal(
            found.regional.vectors[found.regional.of == place], arrays["vectors"][arrays["image_of"] == number]
        )


def test_missing_images_and_other_counts_are_named() -> None:
    arrays = regions()
    named, unnamed = descriptor_set("x", arrays, NAMES), descriptor_set("x", arrays)
    more = [*NAMES, "lost_1", "lost_2", "lost_3", "lost_4"]
    with raises("missing-descriptor") as refused:
        align_images(named, protocol(more))
    assert str(refused.value) == "x has no descriptors of images of toys: lost_1, lost_2, lost_3 and 1 more."
    with raises("image-count"):
        align_images(unnamed, protocol(more))


def test_two_images_of_one_name_are_named() -> None:
    images = ["photo_0", "photo_1", "x/photo_1", "photo_2"]
    with raises("ambiguous-name"):
        align_images(descriptor_set("x", regions(), NAMES), protocol(images, queries=1))


@pytest.mark.parametrize("text", ['["a", 1]', '{"a": 1}', '"ab"', "[null]"])
def test_names_that_are_no_list_of_text_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.json").write_text(text)
    with raises("names-file"):
        read_names(tmp_path / "names.json")


def test_names_that_are_given_go_before_those_beside_the_vectors(tmp_path: Path) -> None:
    folder = as_folder(tmp_path / "x", regions())
    assert read_collection(folder)[0].names == tuple(NAMES)
    (tmp_path / "other.txt").write_text("\n".join(f"other_{i}" for i in range(12)))
    assert read_collection(folder, tmp_path / "other.txt")[0].names == tuple(f"other_{i}" for i in range(12))
    (folder / "names.json").unlink()
    assert read_collection(folder)[0].names is None


def queries_like(collection: DescriptorSet, order: np.ndarray) -> DescriptorSet:
    assert collection.regional is not None
    rows = collection.regional.subset(order)
    return descriptor_set("q", {"vectors": rows.vectors, "query_of": rows.of}, kind="query")


def test_another_order_without_names_is_noticed() -> None:
    """The collection is so large that chance does not put many queries near their own photos."""
    names = [f"photo_{i}" for i in range(200)]
    collection = descriptor_set("x", regions(200))
    asked = protocol(names, queries=200)
    straight = np.arange(200)
    assert prepare(asked, collection, queries_like(collection, straight)).queries.count == 200
    with raises("descriptor-order"):
        prepare(asked, collection, queries_like(collection, np.roll(straight, 17)))
    elsewhere = protocol(names, queries=200, own_photos=False)
    with raises("descriptor-order"):
        prepare(elsewhere, collection, queries_like(collection, np.roll(straight, 17)))


def test_queries_of_another_count_name_or_dimension_are_refused() -> None:
    collection = descriptor_set("x", regions(), NAMES)
    with raises("query-count"):
        prepare(protocol(NAMES), collection, queries_like(collection, np.arange(5)))
    other = regions()
    cut = other["vectors"][:, :4] / np.linalg.norm(other["vectors"][:, :4], axis=1, keepdims=True)
    narrow = descriptor_set("q", {"vectors": cut, "query_of": other["image_of"]}, kind="query")
    with raises("dimensions"):
        prepare(protocol(NAMES), collection, narrow)
    named = descriptor_set("q", {"vectors": other["vectors"][:12]}, [f"q{i}" for i in range(1, 13)], kind="query")
    with raises("missing-descriptor"):
        prepare(protocol(NAMES), collection, named)


def test_distractors_come_after_the_images_and_are_no_positives() -> None:
    few = protocol(NAMES)
    more = few.with_distractors([f"far_{i}" for i in range(5)])
    assert more.name == "toys+5"
    assert more.images == (*NAMES, *(f"far_{i}" for i in range(5)))
    assert few.with_distractors([f"far_{i}" for i in range(100_071)]).name == "toys+100k"
    with raises("positive-distractor"):
        few.with_distractors(["far_0", "photo_3"])
    collection, others = (
        descriptor_set("x", regions(), NAMES),
        descriptor_set("y", regions(5, 1), [f"far_{i}" for i in range(5)]),
    )
    both = align_images(collection.concat(others), more)
    assert both.count == 17
    assert both.regional is not None
    assert others.regional is not None
    np.testing.assert_array_equal(both.regional.vectors[both.regional.of >= 12], others.regional.vectors)
