"""A closer look at photos that geometry has not verified: all features of their files, not only those that are kept.

An index keeps the strongest few hundred local features of a photo. A small object in a photo full of texture may have
three of them, where its file has dozens. To read a file and to find its features takes a thread about as long as to
compare fifty photos by what is kept, so that a closer look is for a few photos. Those in which points match that verify
nothing yet come first, then those in which a few points agree on one map, then the others in rank order.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from manifind.describe import key_to_path
from manifind.geometry import Features
from manifind.index.asking.features import Sought, close_features
from manifind.index.asking.looking import Checked, surest_of
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.kernels.threads import thread_count

FIRST, MOST = 6, 18
"""How many photos that are not verified get a closer look, and how many at most where it pays."""
AGREEING = 3
"""Photos in which so many points agree on one map come before others: that is too few to say anything by itself."""
PAYS = 2
"""How many of the last `FIRST` must be verified for as many others to get a closer look. All were chosen on scenes."""


def looked_at_closely(
    now: State,
    images: Sequence[int],
    known: Mapping[int, Checked],
    views: Sequence[Sought],
    *,
    own: Collection[int] = (),
    until: float | None = None,
) -> dict[int, Checked]:
    """Return what geometry says of photos on a closer look, by their numbers: only of those that got one.

    Parameters
    ----------
    now : State
    images : sequence of int
        The ranking.
    known : mapping of int to Checked
        What geometry said of them at first sight. Photos that had a closer look before do not get another.
    views : sequence of features and boxes
        What is looked for.
    own : collection of int
        The query's own photos, which get none.
    until : float, optional
        The moment by `time.monotonic` after which no other photo is begun.
    """
    if now.local is None:
        return {}
    refused = [image for image in images if image in known and known[image].verified is False and image not in own]
    left = [image for image in refused if not known[image].closely]
    promising = sorted(left, key=lambda image: (known[image].perhaps is None, known[image].agreeing < AGREEING))[:MOST]
    files = [(image, file) for image in promising if (file := file_as_it_was(now, now.catalogue[image])) is not None]
    seen: dict[int, Checked] = {}
    try:
        for start in range(0, len(files), FIRST):
            for some in _shares(files[start : start + FIRST]):
                numbers, paths = zip(*some, strict=True)
                seen |= zip(numbers, surest_of(views, paths, closely=True, until=until), strict=True)
            if sum(seen[image].verified is True for image, _ in files[start : start + FIRST]) < PAYS:
                break
    except TimeoutError:
        pass  # what was seen so far is answered with
    # A file that cannot be read says nothing, and takes nothing back.
    return {image: check for image, check in seen.items() if check.closely}


def all_features(now: State, photo: ImageRecord, query: Features) -> Features | None:
    """Return all features of a photo of an index, for a query; None where its file is not as it was."""
    file = file_as_it_was(now, photo)
    return None if file is None else close_features(file, query)


def _shares(files: Sequence[tuple[int, Path]]) -> Iterator[Sequence[tuple[int, Path]]]:
    """Yield as many files at a time as there are threads: where time is short, what is done is done."""
    threads = thread_count()
    for start in range(0, len(files), threads):
        yield files[start : start + threads]


def file_as_it_was(now: State, photo: ImageRecord) -> Path | None:
    """Return the file of a photo if it has as many bytes as when it was described; None for frames of films."""
    file = key_to_path(now.manifest.root, photo.key)
    try:
        return file if file.stat().st_size == photo.bytes else None
    except OSError:
        return None
