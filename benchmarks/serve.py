"""How many queries a second the service answers, and how soon: on loopback, with 1, 8 and 64 clients.

    python benchmarks/serve.py [--index INDEX | --manifold SAVED] [--seconds 6] [--rows N] [--json]

On the regions of Oxford5k where they are at hand (``harness.py``), else on synthetic ones, which it says; or on an
index or a saved `Manifold` of your own. The service runs in a process of its own and every client asks by the key of a
whole photo, drawn at random: the descriptors are in the index, so that what is measured is the search and everything
round it, not the network. The neighbours of such regions are in the graph; with --foreign they are searched for all the
same, as those of an upload or of a box are.

batching  the same load with batches of one: what gathering queries is worth
overload  ten times the clients for some seconds; then one client again, until its answers take no longer than twice
          what they took before

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = query_k = 50, all threads.
"""

import asyncio
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from harness import collection, cpu, make_parser
from manifind import Manifold
from manifind.features import load_extractor
from manifind.index import Index, Snapshot
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import Catalogue, ImageRecord
from manifind.index.storage.manifest import SHIPPED, WhiteningOrigin
from manifind.serve import Settings, create_app

CLIENTS = (1, 8, 64)
ROUNDS = 3
OVERLOAD = 640


def index_of_regions(saved: Path | None, rows: int | None, k: int) -> tuple[Index, str]:
    """Make an index in memory of region descriptors that no photos belong to."""
    if saved is not None:
        name, manifold = saved.name, Manifold.load(saved, verify=False)
    else:
        name, vectors, image_of, _ = collection(rows)
        manifold = Manifold(k=k, query_k=50).fit(vectors, image_of)
    photos = len(manifold.layout_.images)
    records = [ImageRecord(i, f"{i:06d}.jpg", f"{i:064x}", 0, 0, 1024, 768) for i in range(photos)]
    boxes = np.tile(np.array([0, 0, 1024, 768], np.float32), (len(manifold.vectors_), 1))
    extractor = load_extractor()
    config = BuildConfig(Path("/nowhere"), extractor, {}, None, "mobilenet_v2", WhiteningOrigin(SHIPPED))
    state = Snapshot(1, "benchmark", config.manifest, Catalogue.of(records, []), manifold, boxes, None, {})
    return Index(Path("/nowhere/regions.manifind"), state, extractor), name


def run_services(path: Path | None, saved: Path | None, rows: int | None, k: int, foreign: bool, told: Any) -> None:
    """Serve one index twice, with batches and without; the ports and what is served are told through the pipe."""
    index, name = index_of_regions(saved, rows, k) if path is None else (Index.open(path), path.name)
    if foreign:  # lists that nobody vouches for do not serve a query
        fitted = index.manifold._fitted
        fitted.knn_report = fitted.knn_report._replace(method="given")
    servers = [
        uvicorn.Server(
            uvicorn.Config(
                create_app(index, settings),
                host="127.0.0.1",
                port=0,
                log_level="error",
                access_log=False,
                backlog=2048,
                ws="none",
            )
        )
        for settings in (Settings(time_limit=120), Settings(time_limit=120, largest_batch=1, gather_seconds=0))
    ]

    async def main() -> None:
        tasks = [asyncio.create_task(server.serve()) for server in servers]
        while not all(server.started for server in servers):
            await asyncio.sleep(0.05)
        ports = [server.servers[0].sockets[0].getsockname()[1] for server in servers]
        keys = [image.key for image in index.catalogue.images]
        told.send({"collection": name, "regions": len(index.boxes), "keys": keys, "ports": ports})
        await asyncio.gather(*tasks)

    asyncio.run(main())


@dataclass
class Told:
    """What clients saw in some seconds."""

    took: float = 0.0
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


def summary(told: list[Told]) -> dict[str, Any]:
    good = np.array([one for some in told for one in some.seconds] or [np.nan]) * 1000
    statuses = sum((one.statuses for one in told), Counter[int]())
    return {
        "queries_a_second": statuses[200] / sum(one.took for one in told),
        "p50_ms": float(np.quantile(good, 0.5)),
        "p99_ms": float(np.quantile(good, 0.99)),
        "statuses": dict(statuses),
    }


async def ask(port: int, keys: list[str], until: float, told: Told, rng: random.Random) -> None:
    """One client: ask, wait for the answer, ask again. HTTP by hand, so that the client costs little."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        body = json.dumps({"views": [{"key": rng.choice(keys)}], "top": 20}).encode()
        head = "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        start = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(answer.split()[1])
        await reader.readexactly(int(answer.split("content-length:")[1].split()[0]))
        told.statuses[status] += 1
        if status == 200:
            told.seconds.append(time.perf_counter() - start)
        else:
            await asyncio.sleep(1)  # as Retry-After asks
        if time.perf_counter() >= until:
            break
    writer.close()


def load(port: int, keys: list[str], clients: int, seconds: float) -> Told:
    async def all_of_them() -> Told:
        told, start = Told(), time.perf_counter()
        chance = [random.Random(7 + i) for i in range(clients)]  # noqa: S311 (which photos are asked for)
        await asyncio.gather(*(ask(port, keys, start + seconds, told, one) for one in chance))
        told.took = time.perf_counter() - start
        return told

    return asyncio.run(all_of_them())


def measured(
    keys: list[str], batched: int, one_at_a_time: int, seconds: float, clients: list[int], overload: int
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for port in (batched, one_at_a_time):
        load(port, keys, 2, 1.0)
    # In turns, so that what else the machine does meets all alike.
    told: dict[str, list[Told]] = {}
    for _ in range(ROUNDS):
        for count in clients:
            told.setdefault(str(count), []).append(load(batched, keys, count, seconds / ROUNDS))
        told.setdefault("one", []).append(load(one_at_a_time, keys, max(clients), seconds / ROUNDS))
    result["one_at_a_time"] = summary(told.pop("one"))
    result["clients"] = {count: summary(some) for count, some in told.items()}
    before = result["clients"][str(clients[0])]["p50_ms"]
    result["overload"] = summary([load(batched, keys, overload, seconds)])
    start = time.perf_counter()
    while summary([load(batched, keys, 1, 0.5)])["p50_ms"] > 2 * before and time.perf_counter() - start < 60:
        pass
    result["overload"]["normal_again_after_s"] = time.perf_counter() - start
    most = result["clients"][str(max(clients))]["queries_a_second"]
    result["batching_gain"] = most / result["one_at_a_time"]["queries_a_second"]
    return result


def main() -> None:
    parser = make_parser(__doc__, "rows", "k")
    parser.add_argument("--index", type=Path, help="an index of your own")
    parser.add_argument("--manifold", type=Path, help="a saved Manifold, in place of building a graph")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load")
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--overload", type=int, default=OVERLOAD)
    parser.add_argument("--foreign", action="store_true", help="search for the neighbours of every query")
    args = parser.parse_args()
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe()
    service = spawned.Process(
        target=run_services, args=(args.index, args.manifold, args.rows, args.k, args.foreign, theirs), daemon=True
    )
    service.start()
    told = ours.recv()
    batched, one_at_a_time = told["ports"]
    try:
        result = {
            "collection": told["collection"],
            "photos": len(told["keys"]),
            "regions": told["regions"],
            "cpu": cpu(),
            "cores": os.cpu_count(),
            "neighbours": "searched" if args.foreign else "of the graph",
            **measured(told["keys"], batched, one_at_a_time, args.seconds, args.clients, args.overload),
        }
    finally:
        service.terminate()
        service.join(20)
    if args.json:
        json.dump(result, sys.stdout, indent=1)
        return
    print(
        f"{result['collection']}: {result['photos']} photos, {result['regions']} regions; "
        f"{result['cpu']}, {result['cores']} cores"
    )
    print(f"{'':>24} {'queries/s':>10} {'p50 ms':>8} {'p99 ms':>8}  answers")
    lines = {f"{count} clients": one for count, one in result["clients"].items()}
    lines[f"{max(args.clients)} clients, one at a time"] = result["one_at_a_time"]
    lines[f"{args.overload} clients"] = result["overload"]
    for label, one in lines.items():
        answers = ", ".join(f"{count} × {status}" for status, count in sorted(one["statuses"].items()))
        print(f"{label:>24} {one['queries_a_second']:10.1f} {one['p50_ms']:8.0f} {one['p99_ms']:8.0f}  {answers}")
    print(f"batching answers {result['batching_gain']:.1f} × as many as one at a time ({max(args.clients)} clients)")
    print(f"after the overload, normal again within {result['overload']['normal_again_after_s']:.1f} s")


if __name__ == "__main__":
    main()
