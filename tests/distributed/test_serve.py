"""The page and the API serve a published collection as they serve an index."""

from pathlib import Path

import pytest

from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.remote.publish import publish
from manifind.remote.store import Store
from tests.distributed.test_collection import SHORTLIST, opened
from tests.serve.asking import client_of, wait_for
from tests.serve.running import patient, running


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_a_collection_is_searched_explained_browsed_and_followed(
    store: Store, address: str, index: Index, extractor: RegionExtractor, photos: Path
) -> None:
    publish(index, store, grace=0)
    far = opened(store, address, extractor)
    with running(far, patient(reload_seconds=0.1)) as at, client_of(at) as client:
        query = {"views": [{"key": "003.png", "box": [0, 0, 32, 48]}], "top": 6}
        told = client.post("/api/search", json=query).json()
        right = far.search("003.png", (0, 0, 32, 48), top=6)
        assert [one["key"] for one in told["results"]] == [hit.key for hit in right]
        assert told["results"][0]["width"] == 64
        whole = client.post("/api/search", json={"views": [{"key": "003.png"}], "top": 3}).json()
        assert whole["results"][0]["key"] == "003.png"
        why = client.post("/api/explain", json={"views": query["views"], "key": told["results"][2]["key"]}).json()
        assert why["links"]
        assert client.get("/api/photos").json()["total"] == len(index)
        assert client.get("/api/info").json()["photos"] == len(index)
        assert client.get("/api/info").json()["store"]["shortlist"] == SHORTLIST

        index.remove(["003.png"])
        publish(index, store, grace=0)
        wait_for(lambda: client.get("/api/info").json()["generation"] == 2)
        assert client.post("/api/search", json=query).status_code == 404
        assert client.get("/api/photos").json()["total"] == len(index)
