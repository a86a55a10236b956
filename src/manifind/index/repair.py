"""A damaged index made whole: what can be rebuilt is rebuilt from what is whole, the rest from the photos."""

from pathlib import Path
from typing import Any

import numpy as np

from manifind import store
from manifind.describe import Describer, Whitening, load_describer
from manifind.errors import Damaged, InvalidInput
from manifind.index.build import Changes, Regions, build, rebuild
from manifind.index.catalogue import Catalogue
from manifind.index.check import DESCRIPTIONS, WHITENING, check, damaged_files
from manifind.index.gather import Progress, learn_whitening
from manifind.index.generation import CATALOGUE, FORMAT, KIND
from manifind.index.recipe import Recipe
from manifind.index.wanted import all_of, removed_by_hand


def repair(path: Path, describer: Describer | None = None, progress: Progress | None = None) -> str:
    """Repair the index at `path`, and say what was done."""
    report = progress or (lambda *_: None)
    with store.writing(path, KIND) as writer:
        problems = [problem for problem in check(path, progress) if problem.damage]
        if not problems:
            return "nothing is damaged"
        manifest = _manifest(path)
        fields, files = manifest["fields"], manifest["files"]
        bad = {one.what for one in damaged_files(path, manifest, report)}
        whole = {name: path / one["file"] for name, one in files.items() if one["file"] not in bad}
        found_by_content = {problem.what for problem in problems} & {"vectors", "boxes", str(path)}
        made = _describer(fields, whole, describer)
        notes = {name: fields[name] for name in ("made_by", "backbone", "whitening")}
        lost = made.fingerprint()["sha256"] != fields["describer"]["sha256"]
        if lost:
            made, notes["whitening"] = _learnt_again(Path(fields["root"]), made, fields, progress)
        recipe = Recipe(Path(fields["root"]), made, fields["manifold"], fields["means"], notes)
        if set(DESCRIPTIONS) <= set(whole) and not found_by_content and not lost:
            rebuild(writer, recipe, _regions(whole), Catalogue.open(whole[CATALOGUE]), report)
            return "the graph was built anew from the descriptions"
        changes = _from_photos(writer, recipe, whole, progress)
        learnt = "the whitening was learnt and " if lost else ""
        return f"{learnt}{changes.described} photos were described again"


def _manifest(path: Path) -> dict[str, Any]:
    """Return the manifest, or the newest whole copy of it."""
    for name in (store.MANIFEST, *store.copies_of_manifest(path)):
        try:
            return store.read_manifest(path, KIND, FORMAT, name)
        except Damaged:
            continue
    raise Damaged(f"{path} has nothing left that says how it was made; remove it and make it again.")


def _describer(fields: dict[str, Any], whole: dict[str, Path], given: Describer | None) -> Describer:
    if given is not None:
        made = given
    elif fields["backbone"] is None:
        raise InvalidInput(
            "the index was made by a describer of its maker's own; repair it with Index.repair(describer=…)."
        )
    else:
        made = load_describer(fields["backbone"], **fields["describer_settings"])
        if set(WHITENING) <= set(whole):
            mean, project = (np.load(whole[name], allow_pickle=False) for name in WHITENING)
            made = made.with_whitening(Whitening(mean, project))
        elif fields["describer"]["whitening"] is None:
            made = made.with_whitening(None)
    return made


def _learnt_again(
    root: Path, made: Describer, fields: dict[str, Any], progress: Progress | None
) -> tuple[Describer, dict[str, Any]]:
    """Learn a whitening in place of one that is lost, if it was learnt from the photos."""
    if fields["whitening"]["from"] != "learnt":
        raise Damaged(
            f"the whitening of the index is lost and came from {fields['whitening']['from']}; make the index again "
            "with it."
        )
    return learn_whitening(all_of(root).found, made, progress)


def _regions(whole: dict[str, Path]) -> Regions:
    vectors, boxes, images, starts = (
        np.load(whole[f"{name}.npy"], mmap_mode="r", allow_pickle=False)
        for name in ("vectors", "boxes", "images", "starts")
    )
    return Regions(vectors, boxes, np.repeat(images, np.diff(starts)), np.full(len(vectors), -1, np.int32))


def _from_photos(writer: store.Writer, recipe: Recipe, whole: dict[str, Path], progress: Progress | None) -> Changes:
    removed = removed_by_hand(Catalogue.open(whole[CATALOGUE]).skipped) if CATALOGUE in whole else []
    return build(writer, recipe, all_of(recipe.root, removed), progress=progress)
