"""What an index contains, and the health of its graph: figures ready for JSON, and sentences that explain them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from manifind.graph import Neighbours
from manifind.index.build.learning import SAMPLE, spread
from manifind.index.config import CHOSEN, IndexConfig, WhiteningConfig
from manifind.index.storage.local_features import StoredLocalFeatures
from manifind.index.storage.manifest import LEARNT, NONE, OWN, SHIPPED, WhiteningChoice, WhiteningOrigin
from manifind.index.storage.snapshot import CATALOGUE, Snapshot
from manifind.io.ignore import DEFAULT_EXCLUDE, IGNORE_FILE, FileRules


def info(path: Path, snapshot: Snapshot) -> dict[str, Any]:
    """Return counts, bytes, parameters, and how the graph was built and does."""
    manifest, manifold, photos = snapshot.manifest, snapshot.manifold, len(snapshot.catalogue)
    snapshot.check_ids()
    config = IndexConfig.of(manifest)
    step = max(1, len(snapshot.boxes) // SAMPLE)
    now_spread = spread(manifold.vectors_[::step])
    facts = health(manifold.S_, manifold.neighbours_)
    return {
        "path": str(path),
        "photos_folder": str(manifest.root),
        "photos_folder_is_there": manifest.root.is_dir(),
        "files": {
            "exclude": list(manifest.files.exclude),
            "follow_links": manifest.files.follow_links,
            "words": describe_files(manifest.files),
        },
        "generation": snapshot.number,
        "made_by": manifest.made_by,
        "photos": photos,
        "regions": len(snapshot.boxes),
        "edges": int(manifold.S_.nnz // 2),
        "edges_a_region": facts.mean_mutual_degree,
        "isolated_regions": facts.isolated_regions,
        "bytes": sum(snapshot.sizes.values()),
        "bytes_by_part": by_part(snapshot.sizes),
        "extractor": dict(manifest.extractor.facts),
        "regions_per_image": manifest.regions_per_image,
        "whitening": {
            **manifest.whitening.fields,
            "spread_now": now_spread,
            "words": describe_whitening(
                manifest.whitening, photos, now_spread, manifold.vectors_.shape[1], config.whitening
            ),
        },
        "config": config.to_dict(),
        "config_hash": config.config_hash,
        "manifold": dict(manifest.parameters),
        "chosen": {
            "for_photos": manifest.chosen_for,
            "words": describe_parameters(manifest.parameters, manifest.chosen_for),
        },
        "local_features": {
            "kind": None if snapshot.local is None else snapshot.local.keeping.kind,
            "features_a_photo": 0.0 if snapshot.local is None else round(len(snapshot.local.rows) / photos, 1),
            "words": describe_local_features(snapshot.local, photos),
        },
        "graph": {**manifold.graph_._asdict(), "words": manifold.graph_.words()},
        "health": facts.as_dict(),
        "skipped": [file.to_dict() for file in snapshot.catalogue.skipped],
    }


def describe_files(files: FileRules) -> str:
    """Say which files of the folder count."""
    defaults = ", ".join(pattern.rstrip("/") for pattern in DEFAULT_EXCLUDE[:2])
    given = f"what matches {' or '.join(files.exclude)}, " if files.exclude else ""
    links = "Links are followed." if files.follow_links else "Links are not followed."
    return (
        f"Left out of the folder are {given}what its {IGNORE_FILE} files say, hidden files, and folders that systems "
        f"keep for themselves ({defaults} and others). {links}"
    )


def by_part(sizes: dict[str, int]) -> dict[str, int]:
    """Add up the bytes of files by what they are for."""
    parts = {"descriptors": 0, "neighbours": 0, "graph": 0, "catalogue": 0, "local features": 0}
    for name, count in sizes.items():
        if name == CATALOGUE:
            part = "catalogue"
        elif name.startswith("feature"):
            part = "local features"
        elif name.startswith("neighbour_"):
            part = "neighbours"
        elif name.startswith("S_") or name in ("degrees.npy", "weights.npy"):
            part = "graph"
        else:
            part = "descriptors"
        parts[part] += count
    return parts


HUB_FACTOR = 10
"""A region in this many times more lists than the average is a hub: everything seems to resemble it."""


@dataclass(frozen=True)
class Health:
    """How well the graph of a collection's regions hangs together."""

    regions: int
    isolated_regions: int
    """How many regions have no mutual neighbour. Diffusion cannot reach them."""
    largest_component: int
    """How many regions the largest connected component has."""
    components: int
    """How many connected components of two or more regions there are."""
    mean_mutual_degree: float
    hubs: int
    """How many regions are in more than `HUB_FACTOR` times as many lists as the average."""
    most_listed: int
    """How many lists the region that is in most lists is in."""

    def words(self) -> list[str]:
        """Say what the figures mean."""
        isolated, together = self.isolated_regions / self.regions, self.largest_component / self.regions
        sentences = [f"A region has {self.mean_mutual_degree:.1f} mutual neighbours on average."]
        if self.isolated_regions:
            remedy = " A larger k would connect more of them." if isolated > 0.2 else ""
            sentences.append(f"{percent(isolated)} of the regions have none: no chain of photos reaches them.{remedy}")
        else:
            sentences.append("Every region has at least one mutual neighbour.")
        if together > 0.5:
            sentences.append(f"{percent(together)} hang together: a chain of photos leads from each to each other.")
        else:
            sentences.append(
                f"The graph is in {self.components:,} pieces, the largest with {percent(together)} of the regions: "
                "objects in different pieces cannot be found from each other. That is right for photos that have "
                "nothing in common; otherwise try a larger k."
            )
        if self.hubs:
            sentences.append(
                f"{self.hubs:,} regions are hubs, which many others resemble (up to {self.most_listed:,} of them): "
                "sky, walls, blank paper. Mutuality keeps most of their links out of the graph."
            )
        return sentences

    def as_dict(self) -> dict[str, Any]:
        """Return the figures and the words, ready for JSON."""
        return {**asdict(self), "words": self.words()}


def health(S: sp.csr_array, neighbours: Neighbours) -> Health:
    """Look at a graph; one pass over it and over the lists."""
    n, k = neighbours.ids.shape
    degrees = np.diff(S.indptr)
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(S, directed=False)
    sizes = np.bincount(labels)
    listed = np.bincount(neighbours.ids[neighbours.ids >= 0].ravel(), minlength=n)
    return Health(
        regions=n,
        isolated_regions=int((degrees == 0).sum()),
        largest_component=int(sizes.max()),
        components=int((sizes > 1).sum()),
        mean_mutual_degree=float(degrees.mean()),
        hubs=int((listed > HUB_FACTOR * max(k, 1)).sum()),
        most_listed=int(listed.max()),
    )


def describe_whitening(
    learnt: WhiteningOrigin, photos: int, spread: float, dimension: int, config: WhiteningConfig
) -> str:
    """Say where a whitening comes from, how far the collection has moved from it, and whether to learn it again.

    `spread` is over how many of the `dimension` the descriptors are spread now.
    """
    source, count = learnt.source, learnt.photos
    if source == LEARNT and count is not None:
        sentence = "" if learnt.choice is None else f"{describe_choice(learnt.choice)} "
        sentence += f"The whitening was learnt when the collection had {count:,} photos; it has {photos:,} now"
        moved = False
        if learnt.spread is not None:
            moved = spread < config.retrain_spread_ratio * learnt.spread
            sentence += (
                f". It spread descriptors over {learnt.spread:.0f} of {dimension} dimensions then, {spread:.0f} now"
            )
        if moved or photos >= config.retrain_growth * count:
            return f"{sentence}: learning it again would be wise (manifind index PHOTOS --retrain-whitening)."
        return f"{sentence}."
    return {
        SHIPPED: "The whitening is the one that comes with the backbone.",
        NONE: "Descriptors are not whitened.",
        OWN: "The whitening is that of a custom extractor.",
    }.get(source, f"The whitening was read from {Path(source).name}.")


def describe_choice(choice: WhiteningChoice) -> str:
    """Say which whitening was chosen, by how many verified pairs of photos, and how the others did."""
    if not choice.scores:
        return f"{choice.pairs:,} verified pairs of photos are too few to choose a whitening; it is {choice.chosen}."

    def score(name: str) -> str:
        rankings = (f"{ranking} {precision:.1f}" for ranking, precision in choice.rankings.get(name, {}).items())
        said = f"{choice.scores[name]:.1f}"
        return f"{said} ({', '.join(rankings)})" if name in choice.rankings else said

    others = "; ".join(
        f"{name}: {score(name)}"
        for name in sorted(choice.scores, key=lambda name: -choice.scores[name])
        if name != choice.chosen
    )
    return (
        f"By {choice.pairs:,} verified pairs of photos the whitening is {choice.chosen}, with a mean average precision "
        f"of {score(choice.chosen)}. The others: {others}."
    )


def describe_parameters(parameters: Mapping[str, Any], photos: int | None) -> str:
    """Say who chose the parameters of the graph, and for what."""
    values = ", ".join(f"{name} {parameters[name]}" for name in CHOSEN)
    if photos is None:
        return f"The parameters were given: {values}."
    return f"Of {values}, what was not given was chosen for a folder of {photos:,} photos."


def describe_local_features(local: StoredLocalFeatures | None, photos: int) -> str:
    """Say what is kept of the photos' local features, and how an index that keeps none gets them."""
    if local is None:
        return (
            "No local features are kept, so that results are not verified by geometry; "
            "manifind index PHOTOS --local-features adds them, without extracting regions again."
        )
    each = len(local.rows) / max(1, photos)
    return f"Local features are kept, {each:.0f} a photo ({local.keeping.kind}): results are verified by geometry."


def percent(share: float) -> str:
    """Return a share as people read it; never 0 or 100 unless it is."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    if 0.999 < share < 1:
        return "more than 99.9 %"
    return f"{100 * share:.1f} %"
