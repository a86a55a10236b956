"""What is in an index and how it does, ready for JSON."""

from pathlib import Path
from typing import Any

from manifind.index.build.learning import SAMPLE, spread
from manifind.index.config import IndexConfig
from manifind.index.maintenance.health import chosen_in_words, health, local_features_in_words, whitening_in_words
from manifind.index.storage.snapshot import CATALOGUE, Snapshot


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
            "words": whitening_in_words(manifest.whitening, photos, now_spread, manifold.vectors_.shape[1]),
        },
        "config": config.to_dict(),
        "config_hash": config.config_hash,
        "manifold": dict(manifest.parameters),
        "chosen": {
            "for_photos": manifest.chosen_for,
            "words": chosen_in_words(manifest.parameters, manifest.chosen_for),
        },
        "local_features": {
            "kind": None if snapshot.local is None else snapshot.local.keeping.kind,
            "features_a_photo": 0.0 if snapshot.local is None else round(len(snapshot.local.rows) / photos, 1),
            "words": local_features_in_words(snapshot.local, photos),
        },
        "graph": {**manifold.graph_._asdict(), "words": manifold.graph_.words()},
        "health": facts.as_dict(),
        "skipped": [file.to_dict() for file in snapshot.catalogue.skipped],
    }


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
