"""Which photos of an answer geometry looks at: the first ones, more where many are verified, and those with votes."""

import time
from collections.abc import Sequence

from manifind.checks import whole_number
from manifind.index.asking.answer import Answer
from manifind.index.asking.features import Sought
from manifind.index.asking.looking import looked_at
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.voted import AMONG, voted
from manifind.index.state.generation import State

FIRST = 50
"""How many photos of an answer are looked at first."""
WORTH, DEEPER = 0.1, 4
"""What part of the photos that were looked at last must be verified for as many more to be looked at, and how many
times as many photos as at first are looked at in the end; chosen on planted scenes and Holidays."""


def first_photos(now: State, method: str, asked: int | None = None) -> int:
    """Return how many photos geometry looks at before it has seen any: as many as were asked for, or as is usual.

    That is `FIRST` by regional diffusion where the index keeps local features, and none elsewhere.
    """
    if asked is None:
        return FIRST if now.local is not None and method == "regional" else 0
    return whole_number(asked, "verify", least=0)


def deepest(first: int) -> int:
    """Return how many photos of a ranking geometry may look at: of so many, local features vote for some."""
    return max(DEEPER * first, AMONG) if first else 0


def verified_answer(
    answer: Answer,
    views: Sequence[Sought],
    *,
    first: int = FIRST,
    most: int | None = None,
    top: int | None = None,
    until: float | None = None,
    deeper_until: float | None = None,
) -> VerifiedAnswer:
    """Look at the first photos of an answer and return it with what geometry says.

    While at least `WORTH` of the photos looked at last are verified, as many more are looked at: of an object that many
    photos show, the later ones show it otherwise. As many again, wherever they stand, are those that the features in a
    box vote for (`asking.voted`). Where the index keeps no features, the files of the first photos are read,
    and no more than these.

    Parameters
    ----------
    answer : Answer
    views : sequence of features and boxes
        What is looked for in each of the query's photos; no box is all of it. The surest of them counts.
    first : int
        How many photos are looked at, at least.
    most : int, optional
        How many at most, without those that are voted for; by default `DEEPER` times as many where the index keeps
        features.
    top : int, optional
        How many hits to return at most.
    until : float, optional
        The moment by `time.monotonic` at which to give up: `TimeoutError` is raised.
    deeper_until : float, optional
        The moment at which to look at no more than the first ones; `until` by default.
    """
    now = answer.search.generation
    if most is None:
        most = first if now.local is None else DEEPER * first
    images = answer.images[:most].tolist()
    known = looked_at(now, images[:first], views, until=until)
    last = known
    until = until if deeper_until is None else deeper_until
    try:
        while len(known) < len(images) and sum(check.verified is True for check in last.values()) >= WORTH * len(last):
            last = looked_at(now, images[len(known) : len(known) + first], views, until=until)
            known |= last
        if until is None or time.monotonic() < until:
            promising = [image for image in voted(now, answer.images, views, first) if image not in known]
            known |= looked_at(now, promising, views, until=until)
    except TimeoutError:
        pass  # what was looked at is answered with
    return VerifiedAnswer(answer, known, top, part=all(query.is_part(box) for query, box in views))
