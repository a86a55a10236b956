"""Files that are byte for byte the same: listed under their twin, and as good a query."""

import csv
import io
import shutil
from pathlib import Path

from manifind.index import Index
from tests.index.small import save_photos, small_extractor
from tests.serve.asking import client_of
from tests.serve.running import running


def test_copies_are_listed_under_their_twin_and_can_be_asked_for(tmp_path: Path) -> None:
    save_photos(tmp_path / "photos", 8)
    (tmp_path / "photos" / "also").mkdir()
    shutil.copy(tmp_path / "photos" / "3.png", tmp_path / "photos" / "also" / "copy.png")
    shutil.copy(tmp_path / "photos" / "3.png", tmp_path / "photos" / "z.png")
    index = Index.create(tmp_path / "i.manifind", tmp_path / "photos", extractor=small_extractor(), k=15, query_k=12)
    with running(index) as address, client_of(address) as client:
        twin, copies = "3.png", ["also/copy.png", "z.png"]
        by_key = {key: client.post("/api/search", json={"views": [{"key": key}]}).json() for key in (twin, *copies)}
        results = by_key[twin]["results"]
        assert {one["key"]: one["duplicates"] for one in results if one["duplicates"]} == {twin: copies}
        for key in copies:
            assert [one["key"] for one in by_key[key]["results"]] == [one["key"] for one in results]
            assert by_key[key]["confidence"] == by_key[twin]["confidence"]
            assert client.get("/api/picture", params={"key": key}).status_code == 200
            assert client.post("/api/explain", json={"views": [{"key": "1.png"}], "key": key}).json()["key"] == twin
        table = client.get("/api/search.csv", params={"q": "k:z.png"}).text
        (row,) = [row for row in csv.DictReader(io.StringIO(table)) if row["key"] == twin]
        assert row["duplicates"] == "; ".join(copies)
        assert client.post("/api/search", json={"views": [{"key": "gone.png"}]}).status_code == 404
