"""The search pipeline: its stages, deadlines, shared retrievals, filters, and results that outlive an index."""

import copy
import json
import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from manifind.errors import InvalidInputError
from manifind.index import BatchQuery, Hit, Index, QueryRegions, Retrieval, SearchConfig, SearchResult, Stage
from manifind.index.config import DepthConfig
from manifind.index.search import image_features, pipeline
from manifind.index.search import query as deadlines
from manifind.index.search.filters import excluded_images
from manifind.index.search.pipeline import Pipeline, resume_steps, run, run_many, search_steps
from manifind.index.search.query import NO_DEADLINE, Deadline, SearchQuery, extract_query_features, extract_query_view
from manifind.index.search.retrieval import retrieve
from manifind.index.search.verification import verify_view
from manifind.reports.results import result_data
from tests.commands import run as command
from tests.errors import raises
from tests.index.conftest import BOX, Pixels, scene, thing

ORDER = list(Stage)


def steps_of(
    index: Index, pixels: Pixels, box: Any = BOX, *, deadline: Deadline = NO_DEADLINE, **more: Any
) -> Pipeline:
    """The pipeline of a query, as an index makes it."""
    options = {key: more.pop(key) for key in ("may_read_files",) if key in more}
    regions = QueryRegions.of([extract_query_view(index.extractor, pixels, box)])
    local = extract_query_features(pixels, box)
    query = SearchQuery(regions, lambda: [local], **{"top": None, "verify": 50, **more})
    return search_steps(index.state, query, index.config, deadline, **options)


def results_of(index: Index, pixels: Pixels, box: Any = BOX, **more: Any) -> list[SearchResult]:
    return list(run(steps_of(index, pixels, box, **more), index.config))


def said(result: SearchResult) -> object:
    """Everything that a result says of its images."""
    return (
        [(hit.key, hit.score, hit.box, hit.is_match, hit.verified, hit.outline, hit.expanded) for hit in result],
        result.n_matches,
        result.n_verified,
        result.stage,
        result.complete,
        result.confidence,
    )


# -- stages -----------------------------------------------------------------------------------------------------------


def test_every_step_yields_a_result_and_only_the_last_is_complete(index: Index, query: Pixels) -> None:
    steps = [one for one in index.search_steps(query, BOX) if one.progress is None]
    assert [one.stage for one in steps[:3]] == [Stage.RETRIEVED, Stage.VERIFIED, Stage.EXPANDED]
    stages = [ORDER.index(one.stage) for one in steps]
    assert stages == sorted(stages)
    assert [one.complete for one in steps] == [False] * (len(steps) - 1) + [True]
    assert said(index.search(query, BOX)) == said(steps[-1])
    ranking = index.search(query, BOX, verify=0)
    assert [hit.score for hit in steps[0]] == [hit.score for hit in ranking]
    assert [hit.key for hit in steps[0]] == [hit.key for hit in ranking]
    assert steps[0].n_verified is None


@pytest.mark.parametrize("options", [{"verify": 0}, {"method": "plain"}])
def test_a_search_that_verifies_nothing_has_one_step(index: Index, query: Pixels, options: dict[str, Any]) -> None:
    (only,) = index.search_steps(query, BOX, **options)
    assert (only.stage, only.complete) == (Stage.RETRIEVED, True)


def test_a_search_without_expansion_leaves_its_step_out(index: Index, query: Pixels) -> None:
    stages = [one.stage for one in index.search_steps(query, BOX, expand=False) if one.progress is None]
    assert Stage.EXPANDED not in stages
    assert stages[:2] == [Stage.RETRIEVED, Stage.VERIFIED]


# -- deadlines --------------------------------------------------------------------------------------------------------


def test_after_a_deadline_that_has_passed_there_is_the_ranking_alone(index: Index, query: Pixels) -> None:
    ranking, last = results_of(index, query, deadline=Deadline(time.monotonic() - 1))
    assert (last.stage, last.complete, last.n_verified) == (Stage.RETRIEVED, False, None)
    assert list(last.unchecked) == [hit.key for hit in ranking[:50]]
    by_index = index.search(query, BOX, deadline=1e-6)
    assert (by_index.stage, by_index.complete) == (Stage.RETRIEVED, False)
    whole = index.search(query, BOX, verify=0)
    assert [(hit.key, hit.score) for hit in by_index] == [(hit.key, hit.score) for hit in whole]


class Clock:
    """A clock that counts how often it is read."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic(self) -> float:
        self.now += 1
        return float(self.now)


def remember_verifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify each image once, however many searches ask."""
    known = dict[Any, Any]()

    def remembered(view: Any, number: int, sources: Sequence[Any], config: Any, *, both_ways: bool) -> list[Any]:
        names = [
            (number, source if isinstance(source, image_features.ImageFile) else source.rows.tobytes())
            for source in sources
        ]
        known.update(
            {
                name: verify_view(view, number, [source], config, both_ways=both_ways)[0]
                for name, source in zip(names, sources, strict=True)
                if name not in known
            }
        )
        return [known[name] for name in names]

    monkeypatch.setattr(pipeline, "verify_view", remembered)


@pytest.mark.parametrize("further", [(), (2,)])
def test_a_search_that_is_cut_short_anywhere_goes_on_to_the_same_result(
    index: Index, query: Pixels, further: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step a deadline cuts short, the result says so; its end is that of a search without a deadline."""
    remember_verifications(monkeypatch)
    shown = [(query, BOX), *((thing(number), None) for number in further)]
    regions = QueryRegions.of([extract_query_view(index.extractor, *photo) for photo in shown])
    local = [extract_query_features(*photo) for photo in shown]
    given = SearchQuery(regions, lambda: local, top=5, verify=3)

    def last(deadline: Deadline) -> SearchResult:
        return list(run(search_steps(index.state, given, index.config, deadline), index.config))[-1]

    whole, clock = last(NO_DEADLINE), Clock()
    monkeypatch.setattr(deadlines, "time", clock)
    assert said(last(Deadline(1e9))) == said(whole)
    readings, ends, resumed = clock.now, set[tuple[Stage, bool]](), 0
    for at in range(readings + 1):
        clock.now = 0
        result = last(Deadline(float(at)))
        ends.add((result.stage, result.complete))
        assert result.complete == (at >= readings)
        while not result.complete:  # two readings at a time
            clock.now, before = 0, result
            *_, result = run(resume_steps(before, Deadline(2.0)), index.config)
            resumed += 1
            assert len(result.verifications) >= len(before.verifications)
        assert said(result) == said(whole)
        assert not result.unchecked
    assert resumed > 2 * readings
    assert {(Stage.RETRIEVED, False), (Stage.VERIFIED, False), (whole.stage, True)} <= ends
    assert any(stage in (Stage.EXPANDED, Stage.FULL_RESOLUTION) and not complete for stage, complete in ends)


def test_a_resumed_search_computes_nothing_twice(index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()

    def counted(view: Any, number: int, sources: Sequence[Any], config: Any, *, both_ways: bool) -> list[Any]:
        counts.append(len(sources))
        return verify_view(view, number, sources, config, both_ways=both_ways)

    monkeypatch.setattr(pipeline, "verify_view", counted)
    whole = index.search(query, BOX)
    in_all = sum(counts)
    counts.clear()
    cut = index.search(query, BOX, deadline=1e-6)
    assert not cut.complete
    steps = list(index.resume_steps(cut))
    assert said(steps[-1]) == said(whole)
    assert sum(counts) == in_all
    assert [said(one) for one in index.resume_steps(whole)] == [said(whole)]
    assert sum(counts) == in_all


def test_progress_counts_the_images_of_a_step(index: Index, query: Pixels) -> None:
    small = Index.open(index.path, config=SearchConfig(depth=DepthConfig(batch_size=3)))
    steps = list(small.search_steps(query, BOX, verify=7))
    assert steps[0].progress is None
    assert [one.progress for one in steps[1:4]] == [(0, 7, False), (3, 7, False), (6, 7, False)]
    assert [hit.key for hit in steps[3]] == [hit.key for hit in steps[0]]
    assert steps[-1].progress is None


def test_a_search_beside_others_ends_as_it_does_alone(index: Index, query: Pixels) -> None:
    alone = said(index.search(query, BOX))
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(index.search, scene(90 + i, 1), BOX) for i in range(3)]
        ours = [pool.submit(index.search, query, BOX) for _ in range(3)]
        assert [said(one.result()) for one in ours] == [alone] * 3
        assert all(one.result().complete for one in others)


def test_a_query_whose_features_are_not_extracted_in_time_has_its_ranking(index: Index, query: Pixels) -> None:
    regions = QueryRegions.of([extract_query_view(index.extractor, query, BOX)])
    steps = search_steps(index.state, SearchQuery(regions, list, verify=50), index.config)
    *_, last = run(steps, index.config)
    assert (last.stage, last.complete, len(last.unchecked)) == (Stage.RETRIEVED, False, len(index))


# -- many together ----------------------------------------------------------------------------------------------------


def many(index: Index) -> list[Callable[[], Pipeline]]:
    """Queries of all kinds: boxes, whole photos, something even, of other methods and depths."""
    even = np.full((240, 320, 3), 120, np.uint8)

    def of(pixels: Pixels, box: Any = None, **more: Any) -> Callable[[], Pipeline]:
        return lambda: steps_of(index, pixels, box, **more)

    return [
        of(scene(99, 1), BOX),
        of(scene(98, 2), BOX, top=3),
        of(thing(2)),
        of(even),
        of(scene(97, 1), BOX, expand=False),
        of(scene(96, 1), BOX, verify=0),
        of(scene(95, 2), BOX, verify=2),
        of(scene(94, 1), method="plain", verify=0),
    ]


def close(ours: SearchResult, theirs: SearchResult) -> None:
    """The same images, boxes, verdicts and matches; scores but for the order in which numbers are added."""
    assert [(h.key, h.is_match, h.verified, h.outline, h.box, h.expanded) for h in ours] == [
        (h.key, h.is_match, h.verified, h.outline, h.box, h.expanded) for h in theirs
    ]
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-4, atol=1e-7)
    for name in ("n_matches", "n_verified", "stage", "complete"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_many_together_give_what_one_at_a_time_gives(index: Index) -> None:
    together: dict[int, list[SearchResult]] = {}
    for place, result in run_many([make() for make in many(index)], index.config):
        together.setdefault(place, []).append(result)
    for place, make in enumerate(many(index)):
        alone = list(run(make(), index.config))
        assert len(alone) == len(together[place])
        for ours, theirs in zip(together[place], alone, strict=True):
            close(ours, theirs)


def test_retrievals_of_one_stage_share_a_call(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []

    def counted(snapshot: Any, queries: Sequence[QueryRegions], top: Any, method: str, **more: Any) -> list[Retrieval]:
        calls.append((method, len(queries)))
        return retrieve(snapshot, queries, top, method, **more)

    monkeypatch.setattr(pipeline, "retrieve", counted)
    last = dict(run_many([make() for make in many(index)], index.config))
    expanded = sum(result.unexpanded is not None for result in last.values())
    assert expanded > 1
    assert calls == [("regional", 7), ("plain", 1), ("regional", expanded)]


def test_a_batch_retrieves_once_for_each_stage(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(snapshot: Any, queries: Sequence[QueryRegions], *more: Any, **options: Any) -> list[Retrieval]:
        calls.append(len(queries))
        return retrieve(snapshot, queries, *more, **options)

    monkeypatch.setattr(pipeline, "retrieve", counted)
    queries = [BatchQuery(f"{i}", [(f"{name}-{i}.png", None)]) for i in range(3) for name in ("first", "second")]
    results = index.search_many(queries, top=5)
    expanded = sum(one.result is not None and one.result.unexpanded is not None for one in results)
    assert calls == [6, expanded]


# -- files ------------------------------------------------------------------------------------------------------------


def test_where_files_may_not_be_read_nothing_is_verified_at_full_resolution(index: Index, query: Pixels) -> None:
    asked: list[bool] = []

    def no() -> bool:
        asked.append(True)
        return False

    *_, last = results_of(index, query, may_read_files=no)
    assert asked
    assert not last.complete
    assert last.stage == Stage.EXPANDED
    assert not any(one.full_resolution for one in last.verifications.values())
    *before, read = results_of(index, query)
    assert [one.progress.reads_files for one in before if one.progress][-1]
    assert read.complete
    assert any(one.full_resolution for one in read.verifications.values())


# -- the configuration ------------------------------------------------------------------------------------------------


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if value is None:
        return 1
    assert isinstance(value, tuple)
    return (*value[:-1], changed(value[-1]))


def variations(config: Any) -> list[tuple[str, Any]]:
    """A configuration with each of its numbers changed, one at a time."""
    found = []
    for field in fields(config):
        value = getattr(config, field.name)
        inner = variations(value) if is_dataclass(value) else [("", changed(value))]
        found += [(f"{field.name}.{name}", replace(config, **{field.name: other})) for name, other in inner]
    return found


def test_the_hash_of_a_configuration_changes_with_every_field() -> None:
    varied = variations(SearchConfig())
    assert len(varied) > 30
    assert len({SearchConfig().config_hash, *(config.config_hash for _, config in varied)}) == len(varied) + 1
    assert SearchConfig(depth=DepthConfig()).config_hash == SearchConfig().config_hash


def test_a_result_names_its_configuration(index: Index, query: Pixels) -> None:
    config = SearchConfig(depth=DepthConfig(first=3))
    other = Index.open(index.path, config=config)
    told = [result_data({}, one.search(query, BOX, top=2))["config"] for one in (index, other)]
    assert told == [SearchConfig().config_hash, config.config_hash]
    assert told[0] != told[1]


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Six photos of one thing in two folders of similar names, three with dates, three of 2012 by their files."""
    root = tmp_path_factory.mktemp("dated")
    for i, (key, date) in enumerate(
        [
            ("a/0", "2018:12:31"),
            ("a/1", "2019:07:04"),
            ("a/2", None),
            ("ab/3", "2019:01:01"),
            ("ab/4", None),
            ("5", None),
        ]
    ):
        exif = Image.Exif()
        if date is not None:
            exif.get_ifd(0x8769)[0x9003] = f"{date} 12:00:00"
        file = root / "photos" / f"{key}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene(i, 1, (20 + 20 * i, 40))).save(file, quality=95, exif=exif)
        os.utime(file, (1_340_000_000, 1_340_000_000))
    options: dict[str, Any] = {"whiten": "none", "scales": (1.0,), "long_side": 320, "k": 20, "query_k": 20}
    return Index.create(root / "i.manifind", root / "photos", **options)


ALL = {"a/0.jpg", "a/1.jpg", "a/2.jpg", "ab/3.jpg", "ab/4.jpg", "5.jpg"}


@pytest.mark.parametrize("method", ["regional", "plain"])
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"folder": "a"}, {"a/0.jpg", "a/1.jpg", "a/2.jpg"}),
        ({"folder": "a/"}, {"a/0.jpg", "a/1.jpg", "a/2.jpg"}),
        ({"folder": "nowhere"}, set()),
        ({"folder": ""}, ALL),
        ({"since": "2019"}, {"a/1.jpg", "ab/3.jpg"}),
        ({"until": "2018-12-31"}, {"a/0.jpg", "a/2.jpg", "ab/4.jpg", "5.jpg"}),
        ({"until": "2012-06"}, {"a/2.jpg", "ab/4.jpg", "5.jpg"}),
        ({"since": "2018-12-31", "until": "2019-01-01"}, {"a/0.jpg", "ab/3.jpg"}),
        ({"since": "2019", "folder": "ab"}, {"ab/3.jpg"}),
    ],
)
def test_filters_leave_exactly_the_other_photos_out(
    dated: Index, query: Pixels, options: dict[str, Any], left: set[str], method: str
) -> None:
    for top in (None, 2):
        result = dated.search(query, BOX, top=top, method=method, **options)
        keys = [hit.key for hit in result]
        assert len(keys) == len(set(keys)) == (len(left) if top is None else min(top, len(left)))
        assert set(keys) <= left
        assert result.complete
        assert [hit.rank for hit in result] == list(range(1, len(keys) + 1))


def test_a_collection_in_a_store_takes_no_filter() -> None:
    elsewhere: Any = object()
    for given in ({"folder": "a"}, {"since": "2019"}, {"until": "2019"}):
        with raises("filter-in-store", InvalidInputError):
            excluded_images(elsewhere, **given)
    assert excluded_images(elsewhere) == frozenset()


# -- hits -------------------------------------------------------------------------------------------------------------


def reachable(value: Any, seen: dict[int, Any]) -> None:
    """Collect everything that an object holds."""
    if id(value) in seen or isinstance(value, type):
        return
    seen[id(value)] = value
    if isinstance(value, dict):
        inside: Any = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif isinstance(value, np.ndarray):
        inside = [value.base]
    else:
        inside = vars(value).values() if hasattr(value, "__dict__") else ()
    for one in inside:
        reachable(one, seen)


@pytest.mark.parametrize("move", [copy.deepcopy, lambda hit: pickle.loads(pickle.dumps(hit))])  # noqa: S301
def test_a_hit_outlives_the_index(index: Index, query: Pixels, move: Callable[[Hit], Hit]) -> None:
    result = index.search(query, BOX, top=5)
    assert result.unexpanded is not None
    chains = [index.explain(hit) for hit in result]
    moved = [move(hit) for hit in result]
    assert moved == list(result)
    again = Index.open(index.path)
    assert [again.explain(hit) for hit in moved] == chains
    assert [chain.links[0].source.key for chain in chains] == [None] * 5


def test_a_hit_holds_no_index(index: Index, query: Pixels) -> None:
    held: dict[int, Any] = {}
    for hit in index.search(query, BOX, top=3):
        reachable(hit, held)
    kinds = {type(one).__module__ for one in held.values()}
    assert not {kind for kind in kinds if kind.startswith("manifind.index.storage") or kind == "manifind.index.index"}
    assert not any(isinstance(one, np.memmap) for one in held.values())


def test_a_hit_whose_photo_is_gone_is_not_explained(index: Index, query: Pixels) -> None:
    hit = index.search(query, BOX, top=1)[0]
    with raises("photo-removed", InvalidInputError):
        index.explain(replace(hit, key="gone.png"))


# -- the command ------------------------------------------------------------------------------------------------------


WORDS = ("--box", "20,30,148,158", "--json")


def printed(index: Index, *words: object) -> Any:
    return json.loads(command("search", index.path, *words).stdout)


def test_the_command_takes_positive_and_negative_examples(index: Index, photos: Path) -> None:
    box = (20.0, 30.0, 148.0, 158.0)
    image = photos / "first-0.png"
    positive, negative = "second-0.png@180,20,308,148", "second-1.png"
    told = printed(index, image, *WORDS, "--positive", positive, "--negative", negative)
    assert told["query"]["positives"] == [{"image": "second-0.png", "box": [180, 20, 308, 148]}]
    assert told["query"]["negatives"] == [{"image": "second-1.png", "box": None}]
    ours = index.search(
        image, box, positives=[("second-0.png", (180, 20, 308, 148))], negatives=[("second-1.png", None)]
    ).nonzero()
    assert [(one["key"], one["score"]) for one in told["results"]] == [(hit.key, hit.score) for hit in ours]
    alone = printed(index, image, *WORDS)
    assert [one["score"] for one in told["results"]] != [one["score"] for one in alone["results"]]


def test_the_command_expands_the_query_unless_told_not_to(index: Index, photos: Path) -> None:
    once, again = (printed(index, photos / "first-0.png", *WORDS, *more) for more in (("--no-expand",), ()))
    assert (once["complete"], again["complete"]) == (True, True)
    expected = index.search(photos / "first-0.png", (20, 30, 148, 158), expand=False).nonzero()
    assert [(one["key"], one["score"]) for one in once["results"]] == [(hit.key, hit.score) for hit in expected]
    assert [one["score"] for one in once["results"]] != [one["score"] for one in again["results"]]


def test_the_command_says_where_the_deadline_came_first(index: Index, photos: Path) -> None:
    words = ("search", index.path, photos / "first-0.png", *WORDS, "--deadline", 0.001)
    done = command(*words)
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert not told["complete"]
    assert {one["verified"] for one in told["results"]} == {None}
    assert told["n_unchecked"] == len(index)
    assert f"next to be verified: {len(index)} photos" in done.stderr
    assert "the deadline" not in command(*words[:-2]).stderr
    assert command(*words[:-1], 0).exit_code == 2


def test_the_command_shows_the_ranking_on_a_terminal_while_it_verifies(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("search", index.path, photos / "first-0.png", *WORDS[:2])
    plain = command(*words, "--progress")  # no terminal
    assert (plain.stdout, plain.stderr) == (command(*words).stdout, "")
    shown = StringIO()
    monkeypatch.setattr("manifind.cli.search.err", Console(file=shown, force_terminal=True, width=200))
    assert command(*words, "--progress").stdout == plain.stdout
    first, *_ = shown.getvalue().split("verifying")
    assert "first-0.png" in first
    assert f"0 of {len(index)} photos" in shown.getvalue()
    assert plain.stdout.splitlines()[1] in shown.getvalue()


def test_the_command_searches_a_folder(index: Index, photos: Path) -> None:
    done = command("search", index.path, photos / "first-0.png", *WORDS, "--method", "plain", "--folder", "more")
    keys = {one["key"] for one in json.loads(done.stdout)["results"]}
    assert keys == {f"more/none-{i}.png" for i in range(4)}
    batch = command("search", index.path, "--queries", photos / "notes.txt", "--folder", "more")
    assert batch.exit_code == 2
    assert "--folder" in batch.stderr


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"deadline": float("nan")}, "invalid-input"),
        ({"deadline": -1}, "invalid-input"),
        ({"deadline": "2"}, "invalid-input"),
        ({"since": "abc"}, "date"),
        ({"until": 5}, "date"),
        ({"folder": 5}, "folder"),
        ({"expand": "none"}, "expand"),
        ({"method": "bogus"}, "invalid-input"),
        ({"verify": -1}, "invalid-input"),
    ],
)
def test_an_option_that_cannot_be_used_is_an_error(index: Index, query: Pixels, given: Any, code: str) -> None:
    with raises(code, InvalidInputError):
        index.search(query, BOX, **given)


@pytest.mark.parametrize(
    ("given", "code"),
    [({"expand": "none"}, "expand"), ({"method": "bogus"}, "invalid-input"), ({"verify": -1}, "invalid-input")],
)
def test_an_option_of_a_batch_is_no_error_of_its_queries(index: Index, query: Pixels, given: Any, code: str) -> None:
    with raises(code, InvalidInputError):
        index.search_many([BatchQuery("thing", ((query, BOX),))], **given)
