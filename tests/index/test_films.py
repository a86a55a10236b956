"""Films in an index: frames that are photos like others, extracted once."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.errors import DamagedError, InvalidInputError, UnreadableImageError
from manifind.index import Index
from manifind.index.storage.catalogue import SkipReason
from tests.commands import run
from tests.extraction_options import PLAINLY
from tests.films import film, shades
from tests.index.conftest import scene
from tests.index.signing import resigned
from tests.index.small import save_photo, save_photos, small_extractor, small_index
from tests.index.test_repeats import BEHIND, before

OPTIONS = {"extractor": small_extractor(), "k": 12, "query_k": 10, "local_features": False}


@pytest.fixture
def made(tmp_path: Path) -> Index:
    """Two photos, and a film of three seconds that begins light and ends lighter."""
    save_photos(tmp_path / "photos", 2)
    film(tmp_path / "photos" / "trips" / "walk.avi", shades(30))
    return Index.create(tmp_path / "photos.manifind", tmp_path / "photos", frames=1, **OPTIONS)  # type: ignore[arg-type]


def keys(index: Index) -> list[str]:
    return [record.key for record in index.catalogue.images]


WALK = [f"trips/walk.avi#00:0{second}.0" for second in range(3)]


def test_a_film_is_a_photo_every_so_many_seconds(made: Index) -> None:
    assert keys(made) == ["0.png", "1.png", *WALK]
    assert made.photo(WALK[1]).pixels.mean() == pytest.approx(40, abs=3)
    assert made.search(WALK[2], top=1)[0].key == WALK[2]
    assert made.search(made.root / WALK[2], top=1)[0].key == WALK[2]  # its path serves as well
    found = made.find(made.root / WALK[0])
    assert found is not None
    assert (found.key, found.width, found.height) == (WALK[0], 64, 48)
    assert made.check() == []


def test_a_film_that_is_as_it_was_is_not_looked_at_again(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("the film was looked at.")

    with monkeypatch.context() as patched:
        for name in ("video_length", "read_frame", "_ffmpeg"):
            patched.setattr(f"manifind.io.video.{name}", looked)
        patched.setattr("manifind.index.build.plan.video_length", looked)
        save_photo(made.root / "2.png", 2)
        assert (made.sync().extracted, len(made)) == (1, 6)
    (made.root / "trips").rename(made.root / "travel")
    changes = made.sync()
    assert (changes.extracted, changes.moved, changes.removed) == (0, 3, 0)
    assert keys(made)[-3:] == [key.replace("trips", "travel") for key in WALK]
    film(made.root / "travel" / "walk.avi", shades(60)[30:])  # another film of the same name
    assert made.sync().extracted == 3
    (made.root / "travel" / "walk.avi").unlink()
    assert made.sync().removed == 3


def test_a_copy_of_a_film_and_frames_that_were_removed(made: Index) -> None:
    (made.root / "copy.avi").write_bytes((made.root / "trips/walk.avi").read_bytes())
    made.remove([WALK[1]])
    made.sync()
    assert keys(made) == ["0.png", "1.png", "copy.avi#00:00.0", "copy.avi#00:01.0", "copy.avi#00:02.0"]
    assert made.search("copy.avi#00:02.0", top=1)[0].duplicates == (WALK[2],)
    assert [one.key for one in made.catalogue.skipped if one.code is SkipReason.REMOVED] == [WALK[1]]
    (made.root / "copy.avi").unlink()
    made.sync()
    assert keys(made) == ["0.png", "1.png", WALK[0], WALK[2]]
    made.add(["trips/walk.avi"])
    assert keys(made) == ["0.png", "1.png", *WALK]


def test_a_broken_film_is_one_line_and_is_not_tried_again(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    (made.root / "cut.avi").write_bytes((made.root / "trips/walk.avi").read_bytes()[:300])
    made.sync()
    (line,) = made.catalogue.skipped
    assert (line.key, line.reason) == ("cut.avi", "a film that is damaged, or of a kind that ffmpeg does not read")
    monkeypatch.setattr("manifind.index.build.plan.video_length", None)  # it would be called
    generation = made.generation
    made.sync()
    assert made.generation == generation


def test_a_film_that_only_lacks_a_program_is_tried_again(made: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(film: Path) -> int:
        raise UnreadableImageError("a program is missing", str(film), temporary=True)

    shutil.copy(made.root / "trips/walk.avi", made.root / "later.avi")
    with monkeypatch.context() as without:
        without.setattr("manifind.index.build.plan.video_length", missing)
        made.sync()
    (line,) = made.catalogue.skipped
    assert (line.key, line.reason) == ("later.avi", "a program is missing")
    made.sync()
    assert "later.avi" not in {one.key for one in made.catalogue.skipped}


def test_the_frames_of_a_film_are_one_photo_among_what_repeats(tmp_path: Path) -> None:
    """A thing is in every frame of a film and in two photos: in three photos, not in five."""
    behind = iter(BEHIND)
    shots = [np.asarray(before(next(behind), 1, (20 + 120 * i, 100))) for i in range(3)]
    film(tmp_path / "photos" / "walk.avi", [shot for shot in shots for _ in range(10)])
    for i in range(2):
        before(next(behind), 1, (100, 50 + 100 * i)).save(tmp_path / "photos" / f"thing-{i}.png")
    for i in range(6):
        before(next(behind), None).save(tmp_path / "photos" / f"none-{i}.png")
    made = Index.create(tmp_path / "i.manifind", tmp_path / "photos", frames=1, **PLAINLY)
    things = {f"walk.avi#00:0{second}.0" for second in range(3)} | {"thing-0.png", "thing-1.png"}
    assert {seen.key for seen in made.repeats(least=3).objects[0].occurrences} == things
    assert made.repeats(least=4).objects == ()


def test_an_index_without_frames_passes_films_over(made: Index, tmp_path: Path) -> None:
    plain = Index.create(tmp_path / "plain.manifind", made.root, **OPTIONS)  # type: ignore[arg-type]
    assert keys(plain) == ["0.png", "1.png"]


@pytest.mark.parametrize("frames", [0.25, 0, 0.04, -1, 1e300, 3_600_000, float("nan"), 10**400, True, "2"])
def test_an_interval_that_no_name_can_tell_is_refused(frames: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Index.create(tmp_path / "odd.manifind", save_photos(tmp_path / "photos", 1), frames=frames)
    assert caught.value.code == "frame-interval"
    assert not (tmp_path / "odd.manifind").exists()


def test_an_index_with_the_longest_interval_opens_and_one_with_none_is_damaged(tmp_path: Path) -> None:
    made = small_index(tmp_path, 3, frames=3_599_999)
    assert Index.open(made.path)._snapshot.manifest.frames == 3_599_999
    resigned(made.path, lambda manifest: manifest["fields"].update(frames=0.01))
    with pytest.raises(DamagedError):
        Index.open(made.path)


def test_the_command_indexes_searches_and_exports_frames(tmp_path: Path) -> None:
    film(tmp_path / "photos" / "walk.avi", [scene(1, None)] * 10 + [scene(2, 1)] * 10, fps=10)
    told = run("index", tmp_path / "photos", "--frames", 1, "--whiten", "shipped", "--scales", 1)
    assert told.exit_code == 0, told.stderr
    assert "2 photos" in told.stdout
    index = tmp_path / "photos.manifind"
    found = json.loads(run("search", index, tmp_path / "photos" / "walk.avi#00:01.0", "--json").stdout)
    assert found["results"][0]["key"] == "walk.avi#00:01.0"
    page = tmp_path / "report.html"
    assert run("search", index, "walk.avi#00:01.0", "--html", page, "--keep", "walks").exit_code == 0
    assert page.read_text().count("data:image/jpeg") >= 2
    run("sets", index, "walks", "--yes", "walk.avi#00:00.0", "--zip", tmp_path / "set.zip", "--xmp", tmp_path / "xmp")
    assert [file.name for file in (tmp_path / "xmp").iterdir()] == ["walk.avi.xmp"]
    assert {"walk.avi_00_00.0.jpg", "walk.avi_00_01.0.jpg"} <= set(zipfile.ZipFile(tmp_path / "set.zip").namelist())
    assert run("index", tmp_path / "photos", "--frames", 2).exit_code == 2  # settled when it was made
