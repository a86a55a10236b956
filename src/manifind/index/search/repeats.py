"""What occurs in several photos of an index, without any query; near-duplicates and bursts apart.

`manifind.repeats` finds groups of regions in the graph. Here they become photos with boxes, and geometry looks at them:
the strongest photo of a group is compared with the others, by the local features that the index keeps or else by their
files, and a group of which enough are confirmed goes before those of which none is. The frames of a film count as one
photo.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from manifind.checks import check_int
from manifind.errors import UnreadableImageError
from manifind.geometry import Features
from manifind.index.search.image_features import feature_kind, stored_part
from manifind.index.search.query import Deadline, QueryFeatures, extract_query_features, rounded_box
from manifind.index.search.verification import verify_images
from manifind.index.storage.snapshot import Snapshot
from manifind.io import key_to_path, read_photo
from manifind.io.video import split_frame_key
from manifind.repeats import Group, find_groups, near_duplicates
from manifind.types import Box, IntArray, StageProgress

LOOKED_AT = 12
"""Photos of a group that geometry looks at, besides the first."""
CONFIRMED = 2
"""Photos besides the first that geometry must confirm to confirm a group."""


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
    """Whether geometry finds what the first photo shows in this one; None where it was not asked, or cannot say."""


@dataclass(frozen=True)
class ObjectCluster:
    """An object that occurs in several photos."""

    score: float
    """Grows with the number of photos, and with how much they resemble each other there."""
    occurrences: tuple[Occurrence, ...]
    """The strongest first: the best to search with."""

    @property
    def verified(self) -> int | None:
        """How many photos besides the first geometry confirms; None where it was not asked."""
        said = [one.verified for one in self.occurrences[1:] if one.verified is not None]
        return sum(said) if said else None

    @property
    def confirmed(self) -> bool | None:
        """Whether geometry confirms the object; None where it was not asked or could not say."""
        return None if self.verified is None else self.verified >= min(CONFIRMED, len(self.occurrences) - 1)

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
) -> ObjectClusters:
    """Find what occurs in several photos: see `Index.repeats`."""
    verify = snapshot.local is not None if verify is None else verify
    report = progress or (lambda *_: None)
    top = None if top is None else check_int(top, "top")
    snapshot.check_ids()
    manifold = snapshot.manifold
    report("regions", 0, 2)
    same = near_duplicates(manifold.neighbours_, snapshot.boxes, manifold.layout_)
    report("regions", 1, 2)
    groups = find_groups(
        manifold.neighbours_,
        manifold.vectors_,
        snapshot.boxes,
        manifold.layout_,
        same=_films_as_one(snapshot, same),
        least=least,
    )
    report("regions", 2, 2)
    objects = tuple(_repeat(snapshot, group) for group in groups[:top])
    if verify:
        objects = confirmed_first(snapshot, objects, report)
    return ObjectClusters(objects, len(groups), _sets(snapshot, same.tolist()))


def confirmed_first(
    snapshot: Snapshot, objects: Sequence[ObjectCluster], report: StageProgress, *, until: float | None = None
) -> tuple[ObjectCluster, ...]:
    """Look at objects by geometry, and return those first that it confirms; else in the order given.

    `until` is the moment by `time.monotonic` at which the others are left as they are.
    """
    seen = list(objects)
    for done, one in enumerate(objects, 1):
        try:
            seen[done - 1] = _verified(snapshot, one, until)
        except TimeoutError:
            break
        report("geometry", done, len(objects))
    return tuple(sorted(seen, key=lambda one: one.confirmed is not True))


def _repeat(snapshot: Snapshot, group: Group) -> ObjectCluster:
    occurrences = []
    for region, image, strength in zip(group.regions, group.images.tolist(), group.strengths.tolist(), strict=True):
        record = snapshot.catalogue[image]
        box = rounded_box(snapshot.boxes[region])
        occurrences.append(Occurrence(record.key, image, box, record.width, record.height, round(strength, 4)))
    return ObjectCluster(round(group.score, 4), tuple(occurrences))


def _verified(snapshot: Snapshot, one: ObjectCluster, until: float | None) -> ObjectCluster:
    """Look with geometry for what the first photo shows in the next ones."""
    first, others = one.occurrences[0], one.occurrences[1 : 1 + LOOKED_AT]
    sought: Features | None
    try:
        photo = read_photo(key_to_path(snapshot.manifest.root, first.key))
        sought = extract_query_features(photo.pixels, first.box, kind=feature_kind(snapshot)).features
    except UnreadableImageError:
        sought = stored_part(snapshot, snapshot.catalogue[first.image], first.box)
    if sought is None:
        return one
    query, images = QueryFeatures(sought, first.box), [other.image for other in others]
    says = verify_images(snapshot, images, [query], deadline=Deadline(until))
    seen = [
        replace(other, verified=says[other.image].verified, box=says[other.image].box or other.box) for other in others
    ]
    return replace(one, occurrences=(first, *seen, *one.occurrences[1 + LOOKED_AT :]))


def _films_as_one(snapshot: Snapshot, same: IntArray) -> IntArray:
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
