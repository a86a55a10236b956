"""Objects that occur in several photos of an index, without any query; near-duplicates and bursts apart.

`manifind.repeats` finds groups of regions in the graph. Here they become photos with boxes. Spatial verification
compares the strongest photo of a group with the others, by stored local features or else by their files; confirmed
objects come first. The frames of a film count as one photo.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from manifind.checks import check_int
from manifind.errors import UnreadableImageError
from manifind.geometry import Features
from manifind.index.config import SearchConfig
from manifind.index.search.image_features import feature_kind, stored_part
from manifind.index.search.query import Deadline, QueryFeatures, extract_query_features, rounded_box
from manifind.index.search.verification import verify_images
from manifind.index.storage.snapshot import Snapshot
from manifind.io import key_to_path, read_photo
from manifind.io.video import split_frame_key
from manifind.repeats import Group, find_groups, near_duplicates
from manifind.types import Box, IntArray, StageProgress


@dataclass(frozen=True)
class Occurrence:
    """An object in one photo."""

    key: str
    image: int
    """The photo's number in the index."""
    box: Box
    width: int
    height: int
    strength: float
    """How strongly the photo is tied to the others of its object."""
    verified: bool | None = None
    """Whether what the first photo shows is verified in this one; None where it was not verified, or cannot be."""


@dataclass(frozen=True)
class ObjectCluster:
    """An object that occurs in several photos."""

    score: float
    """Grows with the number of photos, and with how much they resemble each other there."""
    occurrences: tuple[Occurrence, ...]
    """The strongest first: the best to search with."""
    confirmed: bool | None = None
    """Whether spatial verification confirms the object; None where it was not asked or could not say."""

    @property
    def verified(self) -> int | None:
        """How many photos besides the first are verified; None where none was to be."""
        said = [one.verified for one in self.occurrences[1:] if one.verified is not None]
        return sum(said) if said else None

    def __len__(self) -> int:
        return len(self.occurrences)


@dataclass(frozen=True)
class ObjectClusters:
    """What occurs in several photos of a collection."""

    objects: tuple[ObjectCluster, ...]
    """The surest and largest first."""
    found: int
    """How many objects there are in all; `objects` may be the first of them."""
    near_duplicates: tuple[tuple[str, ...], ...]
    """Keys of photos that look alike all over, the largest such set first."""


def repeats(
    snapshot: Snapshot,
    *,
    top: int | None = 30,
    least: int = 3,
    verify: bool | None = None,
    progress: StageProgress | None = None,
    config: SearchConfig | None = None,
) -> ObjectClusters:
    """Find what occurs in several photos: see `Index.repeats`."""
    verify = snapshot.local is not None if verify is None else verify
    report = progress or (lambda *_: None)
    top = None if top is None else check_int(top, "top")
    snapshot.check_ids()
    manifold = snapshot.manifold
    report("regions", 0, 2)
    groups_config = (config or SearchConfig()).repeats.groups
    same = near_duplicates(manifold.neighbours_, snapshot.boxes, manifold.layout_, groups_config)
    report("regions", 1, 2)
    groups = find_groups(
        manifold.neighbours_,
        manifold.vectors_,
        snapshot.boxes,
        manifold.layout_,
        same=_merge_films(snapshot, same),
        least=least,
        config=groups_config,
    )
    report("regions", 2, 2)
    objects = tuple(_object_cluster(snapshot, group) for group in groups[:top])
    if verify:
        objects = verify_clusters(snapshot, objects, report, config=config)
    return ObjectClusters(objects, len(groups), _sets(snapshot, same.tolist()))


def verify_clusters(
    snapshot: Snapshot,
    objects: Sequence[ObjectCluster],
    report: StageProgress,
    *,
    until: float | None = None,
    config: SearchConfig | None = None,
) -> tuple[ObjectCluster, ...]:
    """Verify objects; return the confirmed ones first, else in the order given.

    `until` is the moment by `time.monotonic` at which the others are left as they are.
    """
    seen = list(objects)
    for done, one in enumerate(objects, 1):
        try:
            seen[done - 1] = _verify_cluster(snapshot, one, until, config or SearchConfig())
        except TimeoutError:
            break
        report("geometry", done, len(objects))
    return tuple(sorted(seen, key=lambda one: one.confirmed is not True))


def _object_cluster(snapshot: Snapshot, group: Group) -> ObjectCluster:
    occurrences = []
    for region, image, strength in zip(group.regions, group.images.tolist(), group.strengths.tolist(), strict=True):
        record = snapshot.catalogue[image]
        box = rounded_box(snapshot.boxes[region])
        occurrences.append(Occurrence(record.key, image, box, record.width, record.height, round(strength, 4)))
    return ObjectCluster(round(group.score, 4), tuple(occurrences))


def _verify_cluster(snapshot: Snapshot, one: ObjectCluster, until: float | None, config: SearchConfig) -> ObjectCluster:
    """Verify what the first photo shows in the next ones."""
    limits = config.repeats
    first, others = one.occurrences[0], one.occurrences[1 : 1 + limits.verified_images]
    sought: Features | None
    try:
        photo = read_photo(key_to_path(snapshot.manifest.root, first.key))
        sought = extract_query_features(photo.pixels, first.box, kind=feature_kind(snapshot)).features
    except UnreadableImageError:
        sought = stored_part(snapshot, snapshot.catalogue[first.image], first.box)
    if sought is None:
        return one
    query, images = QueryFeatures(sought, first.box), [other.image for other in others]
    says = verify_images(snapshot, images, [query], config, Deadline(until))
    seen = [
        replace(other, verified=says[other.image].verified, box=says[other.image].box or other.box) for other in others
    ]
    result = replace(one, occurrences=(first, *seen, *one.occurrences[1 + limits.verified_images :]))
    needed = min(limits.min_confirmed, len(result) - 1)
    return replace(result, confirmed=None if result.verified is None else result.verified >= needed)


def _merge_films(snapshot: Snapshot, same: IntArray) -> IntArray:
    """Let all frames of a film count as one photo, together with what is the same as one of them."""
    from scipy.sparse.csgraph import connected_components

    films = [
        (place, frame[0]) for place, one in enumerate(snapshot.catalogue.images) if (frame := split_frame_key(one.key))
    ]
    if not films:
        return same
    numbers = {
        film: number for number, film in enumerate(dict.fromkeys(film for _, film in films), int(same.max()) + 1)
    }
    ends = same[[place for place, _ in films]], np.array([numbers[film] for _, film in films])
    size = int(same.max()) + 1 + len(numbers)
    tied = sp.coo_array((np.ones(len(films)), ends), shape=(size, size))
    return np.asarray(connected_components(tied, directed=False)[1][same], np.int32)


def _sets(snapshot: Snapshot, same: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Return the keys of photos with the same number, where there are several."""
    numbers, counts = np.unique(np.asarray(same), return_counts=True)
    several = set(numbers[counts > 1].tolist())
    found: dict[int, list[str]] = {}
    for image, number in enumerate(same):
        if number in several:
            found.setdefault(number, []).append(snapshot.catalogue[image].key)
    return tuple(tuple(keys) for keys in sorted(found.values(), key=lambda keys: (-len(keys), keys)))
