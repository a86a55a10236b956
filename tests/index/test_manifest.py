"""What a manifest says is checked when an index is opened, whatever it says."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifind import DamagedError
from manifind.index import Index
from manifind.index.storage.manifest import Fingerprint, Manifest
from manifind.index.storage.snapshot import Snapshot
from tests.index.signing import MANIFEST, resigned
from tests.index.small import small_extractor, small_index

EXTRACTOR = small_extractor()
WRONG: list[Any] = [None, True, -1, 0.5, 10**30, "", "x\0y", "\ud800", [], {}, [1], {"a": 1}, float("nan")]
MAY_BE: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("made_by",): ("", "x\0y", "\ud800"),
    ("backbone",): (None, "", "x\0y", "\ud800"),
    ("regions_per_image",): (None, 10**30),
    ("built",): (None,),
    ("chosen_for",): (None, 10**30),
    ("local_features",): (None,),
    ("null_similarity",): (None, -1, 0.5),
    ("whitening", "from"): ("", "x\0y", "\ud800"),
    ("whitening", "photos"): (None, 10**30),
    ("extractor", "name"): ("", "x\0y", "\ud800"),
    ("extractor", "sha256"): ("", "x\0y", "\ud800"),
    ("extractor", "whitening"): (None, "", "x\0y", "\ud800"),
    ("extractor", "dimension"): (-1, 10**30),
    ("extractor_settings",): ({},),
    ("manifold",): ({},),
}
"""What each may be among the values that are wrong elsewhere: names are anybody's, and no array depends on these."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("whole")
    return small_index(base, 5, extractor=EXTRACTOR).path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy.manifind"))


def paths(tree: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in tree.items():
        found.append((*above, name))
        if isinstance(value, dict) and (*above, name) not in {("extractor", "backbone")}:
            found += paths(value, (*above, name))
    return found


def test_fields_come_back_as_they_were(whole: Path) -> None:
    fields = json.loads((whole / MANIFEST).read_text())["fields"]
    manifest = Manifest.of(fields)
    assert manifest.fields == fields
    assert Manifest.of(json.loads(json.dumps(manifest.fields))) == manifest
    assert manifest.extractor == Fingerprint.of(EXTRACTOR)
    assert manifest.has_same_config(replace(manifest, built=None))
    assert not manifest.has_same_config(replace(manifest, regions_per_image=5))


def test_a_manifest_of_before_graphs_were_chosen_is_read(copy: Path) -> None:
    def older(manifest: dict[str, Any]) -> None:
        del manifest["fields"]["built"], manifest["fields"]["null_similarity"]
        for name in ("knn", "reserve"):
            del manifest["fields"]["manifold"][name]

    resigned(copy, older)
    assert Index.open(copy, extractor=EXTRACTOR).search("0.png")


def test_every_odd_field_is_damage_and_nothing_else(copy: Path) -> None:
    fields = json.loads((copy / MANIFEST).read_text())["fields"]
    tried = 0
    for place in paths(fields):
        *above, name = place
        for value in WRONG:
            changed = json.loads(json.dumps(fields))
            holder = changed
            for step in above:
                holder = holder[step]
            if holder[name] == value:
                continue
            holder[name] = value
            free = place[0] == "extractor" and place not in MAY_BE and len(place) > 1
            if free or any(value == one for one in MAY_BE.get(place, ())):
                Manifest.of(changed)
            elif place[0] in ("manifold", "built", "extractor_settings") and len(place) > 1:
                # Their own rooms say what is right, here: either it is taken or it is damage.
                with suppress(DamagedError):
                    Manifest.of(changed)
            else:
                with pytest.raises(DamagedError):
                    Manifest.of(changed)
            tried += 1
    assert tried > 400


@pytest.mark.parametrize(
    "name",
    ["root", "made_by", "backbone", "whitening", "extractor", "extractor_settings", "regions_per_image", "manifold"],
)
def test_a_field_that_is_missing_is_damage_on_opening(copy: Path, name: str) -> None:
    resigned(copy, lambda manifest: manifest["fields"].pop(name))
    with pytest.raises(DamagedError, match=name):
        Index.open(copy, extractor=EXTRACTOR)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generation", "1"),
        ("generation", -3),
        ("generation", True),
        ("generation", 10**30),
        ("stamp", 7),
        ("stamp", None),
        ("version", "2"),
        ("version", [2]),
        ("kind", ["index"]),
        ("kind", None),
        ("fields", []),
        ("files", [1]),
        ("files", {"vectors.npy": 3}),
        ("files", {"vectors.npy": {"file": "vectors-1.npy", "bytes": -1, "sha256": "0"}}),
        ("files", {"vectors.npy": {"file": "vectors-1.npy", "bytes": True, "sha256": "0"}}),
        ("files", {}),
    ],
)
def test_an_odd_frame_is_damage_on_opening(copy: Path, name: str, value: Any) -> None:
    resigned(copy, lambda manifest: manifest.update({name: value}))
    with pytest.raises(DamagedError):
        Snapshot.read(copy)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"checksum": ' + "[" * 900 + "]" * 900 + "}",
        "1" * 5000,
        '{"checksum": 1' + "0" * 5000 + "}",
        "\ufeff{}",
        '"text"',
        "NaN",
        "",
        '{"kind": "index", "kind": "index"}',
    ],
)
def test_text_that_is_no_manifest_is_damage(copy: Path, text: str) -> None:
    (copy / MANIFEST).write_text(text)
    with pytest.raises(DamagedError):
        Index.open(copy, extractor=EXTRACTOR)


def test_bytes_that_are_no_text_are_damage(copy: Path) -> None:
    (copy / MANIFEST).write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(DamagedError):
        Index.open(copy, extractor=EXTRACTOR)


def test_a_manifest_beyond_all_bounds_is_not_read(copy: Path) -> None:
    with (copy / MANIFEST).open("r+b") as stream:
        stream.truncate(10**12)  # a hole, which takes no room
    with pytest.raises(DamagedError, match="bytes long"):
        Index.open(copy, extractor=EXTRACTOR)
