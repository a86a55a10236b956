"""What occurs in several photos of an index: planted things, copies that were changed a little, and how it is told."""

import csv
import io
import json
import time
from pathlib import Path

import pytest
from PIL import Image

from manifind.demo import cutouts
from manifind.index import Index
from manifind.index.search.repeats import repeats, verify_clusters
from tests.commands import run
from tests.geometry.photographs import UNRELATED

BEHIND = (*UNRELATED, "text.png")
"""Photographs that have nothing in common."""


SIZE = 200
"""Of a thing, across and down."""


def before(photograph: str, number: int | None, at: tuple[int, int] = (0, 0)) -> Image.Image:
    """A photo of 640 × 480 with a thing pasted into it, before a photograph of its own."""
    photo = cutouts.photograph(photograph).resize((640, 480))
    if number is not None:
        name, (x, y) = {1: ("china.jpg", (100, 180)), 2: ("flower.jpg", (200, 120))}[number]
        photo.paste(cutouts.photograph(name).crop((x, y, x + SIZE, y + SIZE)), at)
    return photo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Two things in five and in four photos, six photos with neither, and a burst of three."""
    folder = tmp_path_factory.mktemp("repeating")
    root = folder / "photos"
    root.mkdir()
    behind = iter(BEHIND)
    for i in range(5):
        before(next(behind), 1, (20 + 100 * i, 10 + 65 * i)).save(root / f"first-{i}.png")
    for i in range(4):
        before(next(behind), 2, (400 - 120 * i, 10 + 80 * i)).save(root / f"second-{i}.png")
    for i in range(6):
        before(next(behind), None).save(root / f"none-{i}.png")
    burst = before(next(behind), None)
    for i in range(3):
        moved = burst.crop((4 * i, 2 * i, 624 + 4 * i, 472 + 2 * i)).resize((640 - 40 * i, 480 - 30 * i))
        moved.save(root / f"burst-{i}.jpg", quality=92 - 10 * i)
    return Index.create(folder / "photos.manifind", root)


def test_planted_things_are_what_repeats_and_a_burst_is_told_apart(made: Index) -> None:
    found = made.repeats()
    assert {tuple(sorted(seen.key[:5] for seen in one.occurrences)) for one in found.objects[:2]} == {
        ("first",) * 5,
        ("secon",) * 4,
    }
    assert found.near_duplicates == (("burst-0.jpg", "burst-1.jpg", "burst-2.jpg"),)
    assert not any(seen.key.startswith("burst") for one in found.objects for seen in one.occurrences)
    places = {f"first-{i}.png": (20 + 100 * i, 10 + 65 * i) for i in range(5)}
    (first,) = (one for one in found.objects[:2] if one.occurrences[0].key in places)
    for seen in first.occurrences:  # the middle of the box lies on the thing
        x, y = (seen.box[0] + seen.box[2]) / 2, (seen.box[1] + seen.box[3]) / 2
        left, upper = places[seen.key]
        assert left < x < left + SIZE
        assert upper < y < upper + SIZE


def test_geometry_confirms_what_is_the_very_same_thing(made: Index) -> None:
    pytest.importorskip("cv2")
    stages = []
    found = made.repeats(verify=True, progress=lambda *told: stages.append(told))
    for one in found.objects[:2]:
        assert one.confirmed
        assert (one.verified or 0) >= 2
    assert not any(one.confirmed for one in found.objects[2:])
    assert stages[-1] == ("geometry", len(found.objects), len(found.objects))


def test_geometry_gives_up_in_time_and_leaves_the_rest_as_it_is(made: Index) -> None:
    found = repeats(made.state, top=None, verify=False)  # type: ignore[arg-type]
    assert verify_clusters(made.state, found.objects, print, until=time.monotonic() - 1) == found.objects  # type: ignore[arg-type]


def test_the_command_prints_a_table_json_csv_and_a_page(made: Index, tmp_path: Path) -> None:
    told = run("repeats", made.path, "--no-verify", "--html", tmp_path / "page.html")
    assert told.exit_code == 0
    assert "5  " in told.stdout
    assert "near-duplicates and bursts: 3 photos in 1 set;" in told.stdout
    assert (tmp_path / "page.html").read_text().count("<figure") >= 9
    facts = json.loads(run("repeats", made.path, "--no-verify", "--json").stdout)
    first = facts["objects"][0]
    assert (first["rank"], first["photos"], first["confirmed"]) == (1, len(first["occurrences"]), None)
    rows = list(csv.DictReader(io.StringIO(run("repeats", made.path, "--no-verify", "--csv", "--top", 1).stdout)))
    assert [row["key"] for row in rows] == [seen["key"] for seen in first["occurrences"]]
    assert [float(rows[0][side]) for side in ("x0", "y0", "x1", "y1")] == first["occurrences"][0]["box"]
    assert run("repeats", made.path, "--json", "--csv").exit_code == 2
    nothing = run("repeats", made.path, "--no-verify", "--least", 15)
    assert nothing.exit_code == 1
    assert "nothing occurs in several photos" in nothing.stderr
