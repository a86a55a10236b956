"""Agents that search: the tools by the protocol's own client, in memory, as a process, and over HTTP."""

import asyncio
import base64
import importlib
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manifind.index import Index
from manifind.serve.resources import Resources
from manifind.serve.service import Service
from tests.commands import refused as refused_command
from tests.serve.asking import BOX, FIRST, VIEW, post
from tests.serve.running import patient, running

mcp = pytest.importorskip("mcp")

QUERY = {"image": "first-0.png", "box": list(BOX)}
TOKEN = "a token of the tests"  # noqa: S105
CALLED = "import sys; sys.argv[0] = 'manifind'; from manifind.cli import main; main()"


@asynccontextmanager
async def agent(index: Index, *folders: Path) -> AsyncIterator[Any]:
    """A client in the process of the server."""
    resources = Resources(patient())
    service = Service(index, resources)
    create_server = importlib.import_module("manifind.serve.mcp_server").create_server
    await service.start()
    try:
        async with mcp.Client(create_server(service, folders)) as client:
            yield client
    finally:
        await service.stop()
        resources.stop()


def with_agent(index: Index, work: Callable[[Any], Awaitable[None]], *folders: Path) -> None:
    async def run() -> None:
        async with agent(index, *folders) as client:
            await work(client)

    asyncio.run(run())


async def told(client: Any, tool: str, **words: Any) -> Any:
    """Call a tool; return the data that it answers."""
    result = await client.call_tool(tool, words)
    assert not result.is_error, result.content[0].text
    return json.loads(result.content[0].text)


async def shown(client: Any, tool: str, **words: Any) -> tuple[Any, Image.Image]:
    """Call a tool; return the data and the picture that it answers."""
    result = await client.call_tool(tool, words)
    assert not result.is_error, result.content[0].text
    text, picture = result.content
    assert picture.mime_type == "image/jpeg"
    return json.loads(text.text), Image.open(io.BytesIO(base64.b64decode(picture.data)))


async def refused(client: Any, tool: str, **words: Any) -> str:
    """Call a tool that refuses; return its one sentence."""
    result = await client.call_tool(tool, words)
    assert result.is_error
    sentence: str = result.content[0].text
    assert sentence.endswith((".", "…")), sentence
    assert "\n" not in sentence
    return sentence


def as_data(file: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def test_the_pages_of_a_search_are_what_the_index_finds(index: Index) -> None:
    truth = index.search("first-0.png", BOX, top=200).nonzero()

    async def work(client: Any) -> None:
        pages, start = [], 0
        while start is not None:
            page = await told(client, "search", **QUERY, start=start, count=50)
            pages += page["results"]
            start = page["next"]
        found = [(one["key"], one["verified"], one["inliers"], one["rank"]) for one in pages]
        assert found == [(hit.key, hit.verified, hit.inliers, hit.rank) for hit in truth]
        assert (page["n_matches"], page["complete"]) == (truth.n_matches, True)
        narrower = await told(client, "search", **QUERY, folder="more")
        assert {one["key"].partition("/")[0] for one in narrower["results"]} == {"more"}
        written = await told(client, "search", image="first-0.png", box=str(list(BOX)), count=6)
        assert {one["key"] for one in written["results"]} == FIRST

    with_agent(index, work)


def test_a_photo_that_is_sent_is_searched_with_and_kept(index: Index, photos: Path, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    Image.open(photos / "first-0.png").crop((10, 2, 200, 190)).save(shot)
    truth = {hit.key for hit in index.search(shot, (10, 10, 138, 138)).head(6)}
    assert truth == FIRST

    async def work(client: Any) -> None:
        found = await told(client, "search", image=as_data(shot), box=[10, 10, 138, 138], count=6)
        assert {one["key"] for one in found["results"]} == truth
        assert found["image"].startswith("upload:")
        again = await told(client, "search", image=found["image"], box=[10, 10, 138, 138], count=6)
        assert again == found
        assert "base64" in await refused(client, "search", image="data:image/png;base64,???")
        assert "base64" in await refused(client, "search", image="data:image/png,abc")
        assert "upload" in await refused(client, "look", image="upload:" + 32 * "0")

    with_agent(index, work)


def test_pictures_are_small_and_show_what_they_say(index: Index, photos: Path) -> None:
    async def work(client: Any) -> None:
        data, crop = await shown(client, "look", **QUERY, side=320)
        assert (data["width"], data["height"]) == (320, 240)
        true = np.asarray(Image.open(photos / "first-0.png").convert("RGB"), np.float64)[12:140, 20:148]
        assert np.abs(np.asarray(crop, np.float64) - true).mean() < 8
        data, sheet = await shown(client, "contact_sheet", **QUERY, count=6)
        assert set(data["photos"].values()) == FIRST
        assert max(sheet.size) <= 780
        pixels = np.asarray(sheet, np.float64)
        outlined = (np.abs(pixels - (255, 106, 43)).max(axis=2) < 60).sum()
        assert outlined > 6 * 2 * 132  # each thing is over half as high as its photo, and has four sides
        assert "1280" in await refused(client, "look", image="first-0.png", side=4000)

    with_agent(index, work)


def test_an_agent_is_told_why(index: Index) -> None:
    result = index.search("first-0.png", BOX, top=None)
    hit = next(hit for hit in result if hit.key == "first-3.png")
    chain, points = index.explain(hit), index.matching_points(index.pixels("first-0.png"), "first-3.png", BOX)

    async def work(client: Any) -> None:
        why = await told(client, "explain", **QUERY, key="first-3.png")
        assert (why["matching_points"], why["verified"]) == (points.inliers, True)
        assert [one["target"]["key"] for one in why["links"]] == [link.target.key for link in chain.links]

    with_agent(index, work)


def test_sets_and_photos_are_listed(index: Index, tmp_path: Path) -> None:
    index.sets.add("roofs", ["first-1.png"])

    async def work(client: Any) -> None:
        listed = await told(client, "list_sets")
        assert [(one["name"], one["yes"]) for one in listed["sets"]] == [("roofs", 1)]
        one = await told(client, "list_sets", name="roofs")
        assert [photo["key"] for photo in one["photos"]] == ["first-1.png"]
        assert "list_sets" in await refused(client, "list_sets", name="domes")
        page = await told(client, "list_photos", folder="more", count=3)
        assert [photo["key"] for photo in page["photos"]] == [f"more/none-00{i}.jpg" for i in range(3)]
        assert (page["total"], page["next"]) == (104, 3)

    try:
        with_agent(index, work)
    finally:
        index.sets.delete("roofs")


def test_no_tool_changes_anything_and_bad_words_are_one_sentence(index: Index) -> None:
    async def work(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {"search", "look", "contact_sheet", "explain", "list_sets"} <= {tool.name for tool in tools}
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert "image" in await refused(client, "search", box=[0, 0, 5, 5])
        assert "boxes" in await refused(client, "search", image="first-0.png", boxes=1)
        assert "no part" in await refused(client, "search", image="first-0.png", box=[900, 900, 950, 950])
        assert "contact_sheet" in await refused(client, "delete", key="first-0.png")

    with_agent(index, work)


def test_only_files_of_named_folders_are_read(index: Index, photos: Path, tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        Image.open(photos / "first-2.png").save(folder / "shot.png")
    (allowed / "link.png").symlink_to(other / "shot.png")

    async def work(client: Any) -> None:
        for name in ("shot.png", str(allowed / "shot.png")):
            assert (await told(client, "look", image=name))["width"] == 320
        for name in (str(other / "shot.png"), "../other/shot.png", "link.png", "nothing.png", str(allowed)):
            assert "--files" in await refused(client, "look", image=name)

    async def without(client: Any) -> None:
        assert "no photo of the collection" in await refused(client, "look", image=str(allowed / "shot.png"))

    with_agent(index, work, allowed)
    with_agent(index, without)


def test_the_command_answers_on_standard_input_and_output(index: Index, photos: Path) -> None:
    words = ["-c", CALLED, "mcp", str(index.path), "--files", str(photos)]

    async def run() -> None:
        async with mcp.Client(mcp.StdioServerParameters(command=sys.executable, args=words)) as client:
            found = await told(client, "search", image=str(photos / "first-0.png"), box=list(BOX), count=6)
            assert {one["key"] for one in found["results"]} == FIRST

    asyncio.run(run())


def test_the_service_answers_agents_behind_its_token(index: Index, photos: Path) -> None:
    async def work(address: str) -> None:
        from httpx2 import AsyncClient

        async with AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            for mode in ("auto", "legacy"):
                transport = mcp.client.streamable_http.streamable_http_client(f"{address}/mcp", http_client=http)
                async with mcp.Client(transport, mode=mode) as client:
                    found = await told(client, "search", **QUERY, count=6)
                    assert {one["key"] for one in found["results"]} == FIRST
                    path = str(photos / "first-0.png")
                    assert "no photo of the collection" in await refused(client, "look", image=path)

    with running(index, patient(token=TOKEN, mcp=True)) as address:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert post(f"{address}/mcp", json=call).status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        elsewhere = post(f"{address}/mcp", json=call, headers={**known, "Origin": "https://elsewhere.example"})
        assert elsewhere.status_code == 403
        asyncio.run(work(address))
    with running(index, patient()) as address:
        assert post(f"{address}/mcp", json=call).status_code == 404
        assert post(f"{address}/api/search", json={"views": [VIEW]}).status_code == 200


def test_a_missing_package_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "manifind.serve.mcp_server", raising=False)
    assert "manifind[mcp]" in refused_command("mcp", index.path)
    assert "manifind[mcp]" in refused_command("serve", index.path, "--mcp")
