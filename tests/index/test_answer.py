"""An answer: hits made when they are looked at, and the line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.boxes import overlaps
from manifind.index import Answer, Hit, Index, RegionShare, evidence
from manifind.pages.answers import COLUMNS, answer_data, hit_data, table_rows

THING = (20, 30, 148, 158)


def test_an_answer_is_a_sequence_of_hits(index: Index, photos: Path) -> None:
    answer = index.search(photos / "first-0.png", THING, top=6)
    assert len(answer) == 6
    assert isinstance(answer[0], Hit)
    assert answer[-1] is answer[5]
    assert answer[1:3] == [answer[1], answer[2]]
    assert [hit.rank for hit in answer] == [1, 2, 3, 4, 5, 6]
    assert [hit.rank for hit in reversed(answer)] == [6, 5, 4, 3, 2, 1]
    assert answer[2] in answer
    with pytest.raises(IndexError):
        answer[6]
    assert repr(answer) == f"Answer(6 photos by 'regional', {answer.likely} of them likely)"


def test_hits_are_made_when_they_are_looked_at(index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = Answer._hit

    def noted(self: Answer, place: int) -> Hit:
        made.append(place)
        return real(self, place)

    monkeypatch.setattr(Answer, "_hit", noted)
    answer = index.search(photos / "first-0.png", THING, top=None)
    record = index.find(photos / "first-3.png")
    assert record is not None
    hit = answer.of_image(record.number)
    assert hit is not None
    assert hit.key == "first-3.png"
    assert answer.likely is not None
    assert made == [hit.rank - 1]


def test_the_line_is_where_the_evidence_puts_it(index: Index, photos: Path) -> None:
    answer = index.search(photos / "first-0.png", THING, top=None)
    own = index.catalogue.of_key("first-0.png")
    assert own is not None
    found = evidence(answer.search, {own.number})
    assert found is not None
    assert answer.likely == found.likely
    assert [hit.likely for hit in answer] == [hit.score >= found.score for hit in answer]
    assert index.search(photos / "first-0.png", THING, top=2).likely == min(2, found.likely)
    plain = index.search(photos / "first-0.png", THING, verify=0)
    assert plain.evidence is plain.evidence  # weighed once
    assert index.search("first-0.png", method="plain").likely is None
    assert index.search("first-0.png", method="plain")[0].likely is None


@pytest.mark.parametrize("as_what", ["key", "path", "relative path", "bytes", "copy"])
def test_the_querys_own_photo_is_known_however_it_is_given(
    as_what: str, index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy.png").write_bytes((photos / "more" / "none-1.png").read_bytes())
    monkeypatch.chdir(photos / "more")
    given: Any = {
        "key": "more/none-1.png",
        "path": photos / "more" / "none-1.png",
        "relative path": "../more/none-1.png",
        "bytes": (photos / "more" / "none-1.png").read_bytes(),
        "copy": tmp_path / "copy.png",
    }[as_what]
    found = index.find(given)
    assert found is not None
    assert found.key == "more/none-1.png"
    assert index.find(np.zeros((4, 4, 3), np.uint8)) is None
    assert index.find("nowhere.png") is None


def test_photos_that_are_left_out_do_not_count(index: Index, photos: Path) -> None:
    answer = index.search(photos / "first-0.png", THING, top=None)
    first = answer[0].image
    without = Answer(answer.search, left_out={first}, top=3)
    assert [hit.key for hit in without] == [hit.key for hit in answer[1:4]]
    assert [hit.rank for hit in without] == [1, 2, 3]


def test_what_was_not_asked_of_geometry_or_of_a_method_is_not_known(index: Index, photos: Path) -> None:
    for hit in index.search(photos / "first-0.png", THING, top=4, verify=0):
        assert hit.box is not None
        assert (hit.verified, hit.outline, hit.inliers) == (None, None, None)
    assert index.search("first-0.png", method="match")[0].box is None


def test_the_box_meets_the_thing_that_the_query_shows(index: Index, photos: Path) -> None:
    met = []
    for name, box in (("first", THING), ("second", (180, 20, 308, 148))):
        for hit in index.search(photos / f"{name}-0.png", box, top=4, verify=0):
            i = int(hit.key.removeprefix(f"{name}-").removesuffix(".png"))
            x, y = (20 + 50 * i, 30 + 20 * i) if name == "first" else (180 - 50 * i, 20 + 25 * i)
            assert hit.box is not None
            met.append(float(overlaps(hit.box, (x, y, x + 128, y + 128))))
    assert np.mean(met) > 0.5  # all of the photo would give 0.21


def test_the_box_is_round_what_resembles_the_query_and_not_round_what_scored(index: Index, photos: Path) -> None:
    search = index.search(photos / "first-0.png", THING, verify=0).search
    image = int(search.ranking.images[0])
    ones = np.ones_like(search.ranking.regions)
    even = replace(search, ranking=replace(search.ranking, _region_scores=lambda: ones))
    assert even.where(image) == search.where(image)
    nothing = replace(search.query, vectors=np.zeros_like(search.query.vectors))
    assert replace(search, query=nothing).where(image) != search.where(image)
    assert replace(even, query=nothing).where(image) != replace(search, query=nothing).where(image)


def test_data_and_table_say_the_same(index: Index, photos: Path) -> None:
    answer = index.search(photos / "first-0.png", THING)
    said = json.loads(json.dumps(answer_data({"image": "x"}, answer)))
    assert list(said) == ["query", "method", "likely", "results"]
    header, *rows = table_rows(said["results"])
    assert tuple(header) == COLUMNS
    for hit, row in zip(answer, rows, strict=True):
        assert row[:3] == [hit.rank, hit.key, hit.score]
        assert tuple(row[3:7]) == hit.box
        assert row[8] == ("yes" if hit.likely else "no")
        assert len(row) == len(COLUMNS)


def test_what_a_method_does_not_know_is_empty_in_the_table(index: Index) -> None:
    hit = index.search("first-0.png", method="plain")[0]
    _, row = table_rows([hit_data(hit)])
    assert row[3:] == [""] * 11
    region = RegionShare((0, 0, 1, 1), 0.5)
    told = {**hit_data(hit), "verified": False, "regions": [{"box": region.box, "share": region.share}]}
    _, row = table_rows([told])
    assert row[7:10] == [0.5, "", "no"]
