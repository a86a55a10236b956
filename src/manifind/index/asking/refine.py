"""Results that teach the query: what verified photos show of the object joins it, and it is answered once more.

A query knows one view of the object. A verified photo shows another, and geometry says where: the regions that best fit
the mapped outline join the query's regions (`manifind.diffusion.taught`), and the system is solved once more. All
verified photos teach: those that few points confirm are the views that the query could not reach by itself.
"""

import time
from collections.abc import Sequence

import numpy as np

from manifind.boxes import overlaps
from manifind.index.asking.answer import Answer
from manifind.index.asking.closer import closer_answer
from manifind.index.asking.features import Sought
from manifind.index.asking.looking import looked_at
from manifind.index.asking.query import QueryRegions, Search, View, rank
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import FIRST, deepest, verified_answer
from manifind.index.state.generation import Generation
from manifind.types import Box

VERIFIED, NONE = "verified", "none"
REFINEMENTS = (VERIFIED, NONE)
"""What may join a query: the regions of verified photos, or nothing."""
BY_DEFAULT = VERIFIED
"""What joins a query unless it is said otherwise, where geometry looks at the answer."""
AGAIN = 2
"""How many times as many photos geometry looks at after the second pass: a query that was taught is worth it."""
REGIONS = 1
"""Regions of a photo that join the query: decided on Oxford5k; two do as well on planted scenes and on Holidays."""
TIME_LEFT = 0.5
"""The part of the time for geometry that must be left for a second pass to be worth beginning."""
TIME_FOR_MORE = 0.4
"""The part of the time for geometry in which it looks at more photos than the first, where many are verified."""


def refined_answer(
    answer: VerifiedAnswer,
    views: Sequence[Sought],
    *,
    first: int = FIRST,
    top: int | None = None,
    until: float | None = None,
) -> VerifiedAnswer:
    """Let verified photos join the query and answer it once more; the same answer where none may.

    Parameters are those of `verified_answer`. Of the second answer `AGAIN` times as many photos are looked at; what
    was said of photos before is not asked again, unless they get a closer look.
    """
    return refined_answers([answer], [views], first=first, top=top, until=until)[0]


def refined_answers(
    answers: Sequence[VerifiedAnswer],
    views: Sequence[Sequence[Sought]],
    *,
    first: int = FIRST,
    top: int | None = None,
    until: float | None = None,
) -> list[VerifiedAnswer]:
    """Let verified photos join many queries of one state of the index, and solve once more for all of them together.

    Photos get a closer look (`asking.closer`) at the end: the second pass knows better which ones are promising. Where
    nothing is verified, they get one before it too, so that there may be something to teach.
    """
    answers = [
        answer if answer.found else closer_answer(answer, sought, until=until)
        for answer, sought in zip(answers, views, strict=True)
    ]
    refined = [answer.cut(top) for answer in answers]
    taught = {place: query for place, answer in enumerate(answers) if (query := taught_query(answer)) is not None}
    left_out = max((len(answers[place].left_out) for place in taught), default=0)
    wanted = None if top is None else max(top, deepest(first)) + left_out
    # Of a collection that lies elsewhere, each query is answered on a part of its own.
    together: dict[int, list[int]] = {}
    for place in taught:
        together.setdefault(id(answers[place].search.generation), []).append(place)
    for places in together.values():
        now = answers[places[0]].search.generation
        for place, again in zip(places, rank(now, [taught[place] for place in places], wanted), strict=True):
            refined[place] = looked_at_again(answers[place], again, views[place], first=first, top=top, until=until)
    return [
        closer_answer(answer, sought, until=until) if answer.found else answer
        for answer, sought in zip(refined, views, strict=True)
    ]


def looked_at_again(
    answer: VerifiedAnswer,
    again: Search,
    views: Sequence[Sought],
    *,
    first: int = FIRST,
    top: int | None = None,
    until: float | None = None,
) -> VerifiedAnswer:
    """Look at the photos that a taught query found, and return its answer; other parameters as in `refined_answer`.

    Parameters
    ----------
    answer : VerifiedAnswer
        The answer that taught the query.
    again : Search
        The taught query, solved on the same state of the index; it may have more photos than are wanted.
    """
    more = AGAIN * first
    most = None if top is None else max(top, deepest(first))
    found = Answer(again, own=answer.own, left_out=answer.left_out, top=most)
    known = dict(answer.looked_at)
    unknown = [image for image in found.images[:more].tolist() if image not in known]
    known |= looked_at(again.generation, unknown, views, until=until)
    return VerifiedAnswer(found, known, top, before=answer)


def verified_in_time(
    answer: Answer,
    views: Sequence[Sought],
    *,
    first: int = FIRST,
    refine: str = BY_DEFAULT,
    until: float,
) -> tuple[VerifiedAnswer, QueryRegions | None]:
    """Verify an answer until a moment by `time.monotonic`; with it comes the query to be solved once more.

    There is no such query where no photo teaches it, or where too little of the time is left (`TIME_LEFT`).
    `TimeoutError` is raised where not even the first photos are looked at in time.
    """
    begun = time.monotonic()
    more_until = begun + TIME_FOR_MORE * (until - begun)
    once = verified_answer(answer, views, first=first, until=until, deeper_until=more_until)
    if refine == NONE or until - time.monotonic() < TIME_LEFT * (until - begun):
        return once, None
    return once, taught_query(once)


def taught_query(answer: VerifiedAnswer) -> QueryRegions | None:
    """Return the query with what verified photos teach it; None where none does."""
    lesson = lessons(answer) if answer.method == "regional" else None
    return None if lesson is None else answer.search.query.taught(lesson)


def lessons(answer: VerifiedAnswer) -> View | None:
    """Return the regions that verified photos teach; None where none does.

    The query's own photo may teach too: a photo is answered the same whether the index knows that it has it or not.
    """
    now = answer.search.generation
    rows = [
        region
        for image, check in answer.looked_at.items()
        if check.box is not None
        for region in fitting(now, image, check.box)
    ]
    if not rows:
        return None
    at = np.array(rows, np.int32)
    return View(np.asarray(now.manifold.vectors_[at], np.float32), np.asarray(now.boxes[at], np.float32), at)


def fitting(now: Generation, image: int, box: Box) -> list[int]:
    """Return the regions of a photo that overlap most with a box."""
    rows = now.regions_of(image)
    shared = overlaps(np.asarray(now.boxes[rows], np.float32), box)
    best = np.argsort(-shared, kind="stable")[:REGIONS]
    return [rows.start + int(i) for i in best if shared[i] > 0]
