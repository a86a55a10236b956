"""What is in an index and how it does, ready for JSON."""

from pathlib import Path
from typing import Any

from manifind.index.making.learning import SAMPLE, spread
from manifind.index.state.generation import CATALOGUE, Generation
from manifind.index.tending.health import chosen_in_words, geometry_in_words, health, whitening_in_words


def info(path: Path, now: Generation) -> dict[str, Any]:
    """Return counts, bytes, parameters, and how the graph was built and does."""
    manifest, manifold, photos = now.manifest, now.manifold, len(now.catalogue)
    now.check_ids()
    step = max(1, len(now.boxes) // SAMPLE)
    now_spread = spread(manifold.vectors_[::step])
    facts = health(manifold.S_, manifold.neighbours_)
    return {
        "path": str(path),
        "photos_folder": str(manifest.root),
        "photos_folder_is_there": manifest.root.is_dir(),
        "generation": now.number,
        "made_by": manifest.made_by,
        "photos": photos,
        "regions": len(now.boxes),
        "edges": int(manifold.S_.nnz // 2),
        "edges_a_region": facts.mean_mutual_degree,
        "isolated_regions": facts.isolated_regions,
        "bytes": sum(now.sizes.values()),
        "bytes_by_part": by_part(now.sizes),
        "describer": dict(manifest.describer.facts),
        "means": manifest.means,
        "whitening": {
            **manifest.whitening.fields,
            "spread_now": now_spread,
            "words": whitening_in_words(manifest.whitening, photos, now_spread, manifold.vectors_.shape[1]),
        },
        "manifold": dict(manifest.parameters),
        "chosen": {
            "for_photos": manifest.chosen_for,
            "words": chosen_in_words(manifest.parameters, manifest.chosen_for),
        },
        "geometry": {
            "kind": None if now.local is None else now.local.keeping.kind,
            "features_a_photo": 0.0 if now.local is None else round(len(now.local.rows) / photos, 1),
            "words": geometry_in_words(now.local, photos),
        },
        "graph": {**manifold.graph_._asdict(), "words": manifold.graph_.words()},
        "health": facts.as_dict(),
        "skipped": [{"key": one.key, "reason": one.reason, "same_as": one.same_as} for one in now.catalogue.skipped],
    }


def by_part(sizes: dict[str, int]) -> dict[str, int]:
    """Add up the bytes of files by what they are for."""
    parts = {"descriptions": 0, "neighbours": 0, "graph": 0, "catalogue": 0, "local features": 0}
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
            part = "descriptions"
        parts[part] += count
    return parts
