"""A damaged index made whole: what can be rebuilt is rebuilt from what is whole, the rest from the photos."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manifind.describe import Describer, Whitening, load_describer
from manifind.errors import Damaged, InvalidInput, ManifindError, OtherFormat, typed
from manifind.index.making.assembling import Assembled
from manifind.index.making.build import build, rebuild
from manifind.index.making.wanted import all_of, removed_by_hand
from manifind.index.state.catalogue import Catalogue
from manifind.index.state.generation import CATALOGUE
from manifind.index.state.kept import Keeping, KeptFeatures
from manifind.index.state.manifest import FILES, FORMAT, KIND, LEARNT, OWN, SHIPPED, Fingerprint, Manifest
from manifind.index.state.recipe import Recipe
from manifind.index.tending.check import DESCRIPTIONS, LOCAL, WHITENING, check, damaged_files
from manifind.storage import disk, store
from manifind.storage.arrays import read_array
from manifind.types import StageProgress


def repair(
    path: Path,
    photos: Path | None = None,
    describer: Describer | None = None,
    memory: int | None = None,
    progress: StageProgress | None = None,
) -> str:
    """Repair the index at `path`, and say what was done; `photos` is their folder, where it is another one now."""
    report = progress or (lambda *_: None)
    if not path.is_dir():
        raise InvalidInput(f"{path} is not there; there is nothing to repair.")
    with store.writing(path, KIND, FILES) as writer:
        problems = [problem for problem in check(path, progress) if problem.damage]
        if not problems:
            return "nothing is damaged"
        name, manifest = _manifest(path)
        said, files = Manifest.of(manifest["fields"]), manifest["files"]
        root = said.root if photos is None else photos
        bad = {one.what for one in damaged_files(path, manifest, report)}
        whole = {file: path / one["file"] for file, one in files.items() if one["file"] not in bad}
        if name != store.MANIFEST and not bad:
            disk.write(path / store.DRAFT, [(path / name).read_bytes()])
            disk.replace(path / store.DRAFT, path / store.MANIFEST)
            return "the manifest was put back from its copy"
        by_content = {problem.what for problem in problems} & {"vectors", "boxes", "features", str(path)}
        made, lost = _describer(said, whole, describer)
        recipe = Recipe.of(said, made, root)
        if lost:
            recipe = _to_learn_again(recipe, said)
        needed = {*DESCRIPTIONS, *(LOCAL if said.geometry is not None else ())}
        if needed <= set(whole) and not by_content and not lost:
            rebuild(writer, recipe, _regions(whole, said.geometry), Catalogue.open(whole[CATALOGUE]), report)
            return "the graph was built anew from the descriptions"
        removed = removed_by_hand(Catalogue.open(whole[CATALOGUE]).skipped) if CATALOGUE in whole else []
        changes = build(
            writer, recipe, all_of(root, removed, films=said.frames is not None), memory=memory, progress=progress
        )
        learnt = "the whitening was learnt and " if lost else ""
        return f"{learnt}{changes.described} photos were described again"


def repair_command(path: Path) -> str:
    """Return what to type to have the index at `path` repaired, with the folder of its photos where that is known."""
    try:
        photos = typed(Manifest.of(_manifest(path)[1]["fields"]).root)
    except ManifindError:
        photos = "PHOTOS"
    return f"manifind index {photos} -o {typed(path)} --repair"


def _manifest(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the manifest, or the newest whole copy of it, and its name."""
    for name in (store.MANIFEST, *store.copies_of_manifest(path)):
        try:
            return name, store.read_manifest(path, KIND, FORMAT, name)
        except OtherFormat:
            raise
        except Damaged:
            continue
    raise Damaged(f"{path} has nothing left that says how it was made; remove it and make it again.")


def _describer(said: Manifest, whole: dict[str, Path], given: Describer | None) -> tuple[Describer, bool]:
    """Return what described the photos, and whether its whitening is lost and must be learnt again."""
    source = said.whitening.source
    if given is None and said.backbone is None:
        raise InvalidInput(
            "the index was made by a describer of its maker's own; give the same to Index.repair(describer=…)."
        )
    made = given or load_describer(said.backbone or "", **said.describer_settings)
    if said.describer.whitening is None:
        made = made.with_whitening(None)
    elif set(WHITENING) <= set(whole):
        mean, project = (read_array(whole[name]) for name in WHITENING)
        made = made.with_whitening(Whitening(mean, project))
    elif source == LEARNT:
        return made, True
    elif source not in (SHIPPED, OWN) and Path(source).is_file():
        made = made.with_whitening(Whitening.load(source))
    own = Fingerprint.of(made)
    if own.sha256 != said.describer.sha256:
        raise InvalidInput(
            f"the index was described by {said.describer.name} with other settings or another whitening than "
            f"{own.name} has here; give the describer that made it, or make the index again."
        )
    return made, False


def _to_learn_again(recipe: Recipe, said: Manifest) -> Recipe:
    """Return the recipe with a whitening to be learnt in place of one that is lost."""
    if said.describer.without_whitening() != Fingerprint.of(recipe.describer).without_whitening():
        raise InvalidInput("describer is not the one that made the index; give that one.")
    dimension = said.describer.facts["dimension"]
    to_learn = recipe.to_learn()
    assert to_learn.learning is not None  # noqa: S101 (it was just asked for)
    return replace(to_learn, learning=replace(to_learn.learning, dimension=dimension))


def _regions(whole: dict[str, Path], keeping: Keeping | None) -> Assembled:
    vectors, boxes, images, starts = (
        read_array(whole[f"{name}.npy"]) for name in ("vectors", "boxes", "images", "starts")
    )
    local = None if keeping is None else KeptFeatures(keeping, *(read_array(whole[name]) for name in LOCAL))
    return Assembled(vectors, boxes, np.repeat(images, np.diff(starts)), local=local)
