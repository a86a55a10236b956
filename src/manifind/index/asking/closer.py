"""A closer look at photos that geometry has not verified: all features of their files, not only those that are kept.

An index keeps the strongest few hundred local features of a photo. A small object in a photo full of texture may have
three of them, where its file has dozens. To read a file and to find its features takes a thread twice as long as to
compare fifty photos by what is kept, so that a closer look is for a few photos. Those in which points match that verify
nothing yet come first, then those in which a few points agree on one map, then the others in rank order.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from manifind.describe import key_to_path
from manifind.errors import InvalidInput
from manifind.geometry import Features
from manifind.index.asking.features import Sought, Whole, close_features
from manifind.index.asking.looking import Checked, surest_of
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.kernels.threads import thread_count

AT_ONCE, MOST = 6, 18
"""How many photos get a closer look, and how many at most where it pays. Chosen on planted scenes, as is `PAYS`."""
PAYS = 2
"""How many of the last `AT_ONCE` must be verified for as many others to get a closer look."""
AMONG = 40
"""They are chosen among so many of the first photos that are not verified: what stands further down and has points in
common with the query mostly shows what is behind the object. Chosen on planted scenes."""
AGREEING = 3
"""Photos in which so many points agree on one map come before others: that is too few to say anything by itself."""


def closer_answer(answer: VerifiedAnswer, views: Sequence[Sought], *, until: float | None = None) -> VerifiedAnswer:
    """Give the most promising photos that are not verified a closer look; the same answer where none can have one.

    Photos that had a closer look before do not get another, and the query's own photos get none. After `until`, a
    moment by `time.monotonic`, no other photo is begun, and what was seen so far is answered with.
    """
    now = answer.search.generation
    if now.local is None:
        return answer
    seen: dict[int, Checked] = {}
    files = islice(_files(answer, now), MOST)
    try:
        while some := list(islice(files, AT_ONCE)):
            for share in _shares(some):
                numbers, photos = zip(*share, strict=True)
                seen |= zip(numbers, surest_of(views, photos, until=until), strict=True)
            if sum(seen[image].verified is True for image, _ in some) < PAYS:
                break
    except TimeoutError:
        pass
    # A file that cannot be read says nothing, and takes nothing back.
    return answer.knowing({image: check for image, check in seen.items() if check.verified is not None})


def all_features(now: State, photo: ImageRecord, query: Features) -> Features | None:
    """Return all features of a photo of an index, for a query; None where its file is not as it was."""
    whole = file_as_it_was(now, photo)
    return None if whole is None else close_features(whole, query)


def file_as_it_was(now: State, photo: ImageRecord) -> Whole | None:
    """Return the file of a photo if it has as many bytes as when it was described.

    None for frames of films, and for links that lead out of the collection: a service does not follow these.
    """
    try:
        file = key_to_path(now.manifest.root, photo.key)
        same = file.stat().st_size == photo.bytes and file.resolve().is_relative_to(now.manifest.root.resolve())
    except (OSError, InvalidInput):
        return None
    return Whole(file, photo.width, photo.height) if same else None


def _files(answer: VerifiedAnswer, now: State) -> Iterator[tuple[int, Whole]]:
    """Yield the photos that may get a closer look, the most promising first, with their files."""
    known = answer.looked_at
    looked = (image for image in answer.ranking if image in known and image not in answer.own)
    refused = islice((image for image in looked if known[image].verified is False), AMONG)
    left = [image for image in refused if not known[image].closely]
    left.sort(key=lambda image: (known[image].perhaps is None, known[image].agreeing < AGREEING))
    for image in left:
        whole = file_as_it_was(now, now.catalogue[image])
        if whole is not None:
            yield image, whole


def _shares(files: Sequence[tuple[int, Whole]]) -> Iterator[Sequence[tuple[int, Whole]]]:
    """Yield as many files at a time as there are threads: where time is short, what is done is done."""
    threads = thread_count()
    for start in range(0, len(files), threads):
        yield files[start : start + threads]
