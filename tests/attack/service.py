"""Attacks on the service: requests that freeze it, floods that starve it, tricks with sites, tokens and files."""

import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.attack import PHOTOS, Attack, Place, broken, photos, picture

LARGE = "/api/picture?key=large.jpg&side=160"
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
FILES = 1024
"""Files that the service may open: what most systems allow."""


@dataclass(frozen=True)
class Target:
    """A service that is attacked."""

    process: "subprocess.Popen[str]"
    address: str
    log: Path

    def get(self, path: str, seconds: float = 60, headers: dict[str, str] | None = None) -> httpx.Response:
        """Ask for something."""
        return httpx.get(self.address + path, timeout=seconds, headers=headers)

    def connect(self) -> socket.socket:
        """Open a connection on which anything can be said."""
        host, port = self.address.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def alive(self) -> float:
        """Return the seconds that a look at its health takes."""
        start = time.perf_counter()
        try:
            self.get("/api/health", 20)
        except httpx.HTTPError:
            broken("the service does not answer any more")
        return time.perf_counter() - start

    @property
    def memory(self) -> int:
        """Bytes that it holds."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    @property
    def files(self) -> int:
        """How many files and connections it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def cpu(self) -> float:
        """Seconds that it has worked."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def serving(place: Place, index: Path | None = None, *words: str, token: str = "") -> Iterator[Target]:
    """Serve an index in a process of its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    log = place.folder / f"log-{time.monotonic_ns()}"
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603
            [place.python, "-m", "manifind.cli", "serve", str(index or place.index), "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "MANIFIND_TOKEN": token},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard)),
        )
    with process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if not said:
            broken(f"the service does not start: {log.read_text()[-300:]}")
        target = Target(process, said[0].partition("/?")[0].rstrip("/"), log)
        try:
            until(lambda: target.get("/api/ready").status_code == 200, 60)
            yield target
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()


def until(true: Callable[[], bool], seconds: float) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            broken(f"{seconds:g} seconds were not enough")
        time.sleep(0.05)


def head(method: str, path: str, *lines: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", "")).encode()


def jpeg(seed: int, width: int, height: int) -> bytes:
    """Return a photo as a file."""
    buffer = io.BytesIO()
    picture(seed, width, height).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


# -- requests that freeze it ------------------------------------------------------------------------------------------


def one_address(place: Place) -> str:
    """Freeze the service with one address that its parser reads in many ways."""
    with serving(place) as target, target.connect() as attacker:
        words = "k:a@" + ("1" * 60 + ",") * 3 + "1" * 60 + "x"
        attacker.sendall(head("GET", f"/api/search?q={words}"))
        time.sleep(0.1)
        took = target.alive()
        if took > 3:
            broken(f"the next request waited {took:.1f} s")
        return f"the next request waited {1000 * took:.0f} ms"


def endless_header(place: Place) -> str:
    """Send one header that does not end, and measure the work that it costs."""
    with serving(place) as target, target.connect() as attacker:
        before, sent = target.cpu, 0
        attacker.sendall(b"GET / HTTP/1.1\r\nX-Endless: ")
        deadline = time.monotonic() + 15
        with suppress(OSError):
            while sent < 60_000_000 and time.monotonic() < deadline:
                attacker.sendall(b"x" * 60_000)
                sent += 60_000
        took = target.alive()
        worked = target.cpu - before
        if worked > 3 or took > 3:
            broken(f"{sent / 1e6:.0f} MB cost {worked:.1f} s of work; the next request waited {took:.1f} s")
        return f"hung up on after {sent / 1e6:.1f} MB, which cost {worked:.2f} s of work"


# -- floods -----------------------------------------------------------------------------------------------------------


def abandoned_crops(place: Place) -> str:
    """Ask for 150 crops of a photo of 36 million pixels, and leave."""
    with serving(place) as target:
        target.get(LARGE.replace("large", "01"))
        with ExitStack() as leavers:
            for i in range(150):
                leaver = leavers.enter_context(target.connect())
                leaver.sendall(head("GET", f"{LARGE}&box={i},{i},{4000 + i},{4000 + i}"))
            time.sleep(0.3)
        start = time.perf_counter()
        target.get(LARGE.replace("large", "02"), 120)
        took = time.perf_counter() - start
        if took > 5:
            broken(f"the next thumbnail waited {took:.1f} s")
        return f"the next thumbnail waited {took:.2f} s"


def many_uploads(place: Place) -> str:
    """Upload 40 photos of 36 million pixels at once, each to search with."""
    data = [jpeg(1000 + i, 7200, 5000) for i in range(4)]
    with serving(place) as target, ThreadPoolExecutor(40) as pool:

        def send(number: int) -> int:
            body = data[number % 4] + bytes([number])  # another file each
            with suppress(httpx.HTTPError):
                return httpx.post(f"{target.address}/api/search/photo", content=body, timeout=90).status_code
            return 0

        start = time.perf_counter()
        statuses = Counter(pool.map(send, range(40)))
        took = time.perf_counter() - start
        shown = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
        if statuses[200] < 4 or statuses[504] or statuses[0]:
            broken(f"{shown}, in {took:.0f} s")
        return f"{shown}, in {took:.0f} s"


def unfinished_uploads(place: Place) -> str:
    """Begin 30 uploads of 48 million bytes, and never end them."""
    with serving(place) as target, ExitStack() as senders:
        before = target.memory
        for _ in range(30):
            sender = senders.enter_context(target.connect())
            sender.settimeout(3)
            sender.sendall(head("POST", "/api/uploads", "Content-Length: 49000000"))
            with suppress(OSError):
                for _ in range(48):
                    sender.sendall(bytes(1_000_000))
        time.sleep(0.5)
        grown = target.memory - before
        answer = httpx.post(f"{target.address}/api/uploads", content=jpeg(1, 300, 200), timeout=30)
        if grown > 500e6 or answer.status_code != 200:
            broken(f"{grown / 1e6:.0f} MB are held; another upload is answered {answer.status_code}")
        return f"{grown / 1e6:.0f} MB are held; another upload is answered {answer.status_code}"


def idle_connections(place: Place) -> str:
    """Open 1,100 connections and say nothing."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with serving(place) as target, ExitStack() as idle:
        for _ in range(1100):
            idle.enter_context(target.connect())
        worked = target.cpu
        time.sleep(3)
        worked = (target.cpu - worked) / 3
        try:
            took = target.alive()
        except AssertionError:
            took = float("inf")
        written = target.log.stat().st_size
        told = f"a request waited {took:.2f} s; {100 * worked:.0f} % of a core; {written / 1e3:.0f} kB of log"
        if took > 3 or worked > 0.5 or written > 100_000:
            broken(told)
        return told


def aborted_uploads(place: Place) -> str:
    """Break 50 uploads off, and look at the log."""
    with serving(place) as target:
        for _ in range(50):
            with target.connect() as sender:
                sender.sendall(head("POST", "/api/uploads", "Content-Length: 100000") + bytes(5000))
        time.sleep(0.5)
        target.alive()
        written = target.log.read_text()
        if "Traceback" in written:
            broken(f"{written.count('Traceback')} tracebacks in the log")
        return f"{len(written)} bytes of log"


# -- sites and tokens -------------------------------------------------------------------------------------------------


def other_sites(place: Place) -> str:
    """Let another site's page ask, with and without a proper name."""
    with serving(place) as target:
        costly = ("/api/search?q=k:01.jpg", LARGE, "/api/search.zip?q=k:01.jpg", "/api/info")
        answered = [
            path for path in costly if target.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code != 403
        ]
        body = {"views": [{"key": "01.jpg"}]}
        origin = httpx.post(f"{target.address}/api/search", json=body, headers={"Origin": "http://["}).status_code
        if answered or origin != 403:
            broken(f"answered: {', '.join(answered) or 'nothing'}; Origin http://[ gives {origin}")
        return f"{len(costly)} GETs and a broken Origin were refused"


def redirect(place: Place) -> str:
    """Be led to another host by an address with the right token."""
    with serving(place, token="right") as target, target.connect() as asker:  # noqa: S106
        asker.sendall(head("GET", "//evil.example/?token=right", "Connection: close"))
        answer = b"".join(iter(lambda: asker.recv(65536), b"")).decode()
        to = next((line.split()[1] for line in answer.splitlines() if line.lower().startswith("location:")), "")
        if to.startswith("//") or "://" in to:
            broken(f"leads to {to}")
        return f"leads to {to or 'nowhere'}"


def foreign_token(place: Place) -> str:
    """Use a token beyond ASCII: its owner must get in, and nobody else."""
    token = "sésame-ひらけ"  # noqa: S105
    with serving(place, token=token) as target:
        right = httpx.get(f"{target.address}/api/info", headers={b"Authorization": b"Bearer " + token.encode()})
        wrong = httpx.get(f"{target.address}/api/info", headers={b"Authorization": b"Bearer s\xe9same"})
        if (right.status_code, wrong.status_code) != (200, 401):
            broken(f"the right one is answered {right.status_code}, a wrong one {wrong.status_code}")
        return "the right one is let in, a wrong one is not"


# -- files ------------------------------------------------------------------------------------------------------------


def remade(place: Place) -> str:
    """Put another index in the place of the one that is served."""
    here = place.new("remade")
    index = here / "x.manifind"
    old, new = photos(place.new("remade-old")), photos(place.new("remade-new"), first=40)
    place.command("index", old, "-o", index)
    with serving(place, index) as target:
        for i in range(12):
            target.get(f"/api/search?q=k:{i:02d}.jpg")
        shutil.rmtree(index)
        place.command("index", new, "-o", index)
        until(lambda: target.get("/api/photo?key=40.jpg").status_code == 200, 20)
        names = {path.name for path in new.iterdir()}
        wrong = set()
        for i in range(40, 52):
            found = target.get(f"/api/search?q=k:{i}.jpg").json()["results"]
            wrong |= {one["key"] for one in found} - names
        if wrong:
            broken(f"answers with photos that are not there: {', '.join(sorted(wrong)[:3])}")
        return "only photos of the new one are found"


def cut_files(place: Place) -> str:
    """Cut every array of the index that is served, one after the other, and put it back."""
    index = place.folder / "cut.manifind"
    shutil.copytree(place.index, index)
    arrays = [file for file in sorted(index.glob("*.npy")) if file.stat().st_size > 3 * PAGE]
    with serving(place, index) as target:
        target.get("/api/search?q=k:01.jpg")
        for file in arrays:
            whole = file.read_bytes()
            os.truncate(file, PAGE)
            with suppress(httpx.HTTPError):
                target.get("/api/search?q=k:02.jpg", 20)
            if target.process.poll() is not None:
                broken(f"{file.name} was cut, and the service ended with {target.process.returncode}")
            restored = file.with_suffix(".restored")
            restored.write_bytes(whole)
            restored.replace(file)
            until(lambda: target.get("/api/search?q=k:03.jpg").status_code == 200, 20)
        return f"{len(arrays)} arrays were cut and put back, and it serves"


def served_copy(place: Place, name: str) -> tuple[Path, Path]:
    """Return photos and an index of them that an attack may change."""
    folder = photos(place.new(name))
    index = place.folder / f"{name}.manifind"
    place.command("index", folder, "-o", index)
    return folder, index


def pipes(place: Place) -> str:
    """Put pipes in place of photos, abandon 40 searches by date, then search."""
    folder, index = served_copy(place, "pipes")
    for i in range(4):
        (folder / f"{i:02d}.jpg").unlink()
        os.mkfifo(folder / f"{i:02d}.jpg")
    with serving(place, index) as target:
        with ExitStack() as leavers:
            for i in range(40):
                leaver = leavers.enter_context(target.connect())
                leaver.sendall(head("GET", f"/api/search?q=k:05.jpg&since=2000&top={1 + i}"))
            time.sleep(0.3)
        start = time.perf_counter()
        paths = [
            *("/api/search?q=k:06.jpg", "/api/search?q=k:06.jpg&since=2000", "/api/search?q=k:07.jpg&sort=date"),
            *("/api/photo/facts?key=08.jpg", "/api/original?key=08.jpg", "/api/picture?key=08.jpg"),
        ]
        statuses = [target.get(path).status_code for path in paths]
        took = time.perf_counter() - start
        odd = {target.get(f"/api/{path}?key=00.jpg").status_code for path in ("photo/facts", "original", "picture")}
        if set(statuses) != {200} or odd != {404} or took > 20:
            broken(f"answered {statuses}, for a pipe {sorted(odd)}, in {took:.1f} s")
        return f"six requests after that took {took:.1f} s"


def swapped_links(place: Place) -> str:
    """Swap a photo and a link out of the collection while the photo is downloaded, alone and in archives."""
    folder, index = served_copy(place, "swapped")
    secret = place.folder / "secret.jpg"
    picture(777, 400, 300).save(secret, quality=90)
    content, counts, ended = secret.read_bytes(), Counter[str](), threading.Event()
    photo, aside, link = folder / "02.jpg", folder / ".aside", folder / ".link"
    link.symlink_to(secret)

    def swap() -> None:
        while not ended.is_set():
            photo.rename(aside)
            link.rename(photo)
            photo.rename(link)
            aside.rename(photo)

    with serving(place, index) as target, httpx.Client(base_url=target.address, timeout=60) as client:
        swapper = threading.Thread(target=swap, daemon=True)
        swapper.start()
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            for path in ("/api/original?key=02.jpg", "/api/search.zip?q=k:02.jpg&top=3&verify=0"):
                answer = client.get(path)
                counts["secret" if content in answer.content else str(answer.status_code)] += 1
        ended.set()
        swapper.join()
    shown = ", ".join(f"{count} × {what}" for what, count in sorted(counts.items()))
    if counts["secret"]:
        broken(shown)
    return shown


def new_matches(place: Place) -> str:
    """Ask 60 times for the new matches of a set and leave; then list the sets and search."""
    _, index = served_copy(place, "news")
    with serving(place, index) as target:
        search = {"name": "a", "search": {"views": [{"key": "01.jpg"}], "seen": []}}
        httpx.post(f"{target.address}/api/set", json=search, timeout=60).raise_for_status()
        with ExitStack() as leavers:
            for _ in range(60):
                leaver = leavers.enter_context(target.connect())
                leaver.sendall(head("GET", "/api/set/news?name=a"))
            time.sleep(0.3)
        start = time.perf_counter()
        statuses = {target.get(path).status_code for path in ("/api/sets", "/api/set?name=a", "/api/search?q=k:03.jpg")}
        took = time.perf_counter() - start
        if statuses != {200} or took > 10:
            broken(f"the next three requests took {took:.1f} s: {sorted(statuses)}")
        return f"the next three requests took {took:.1f} s"


def abandoned_streams(place: Place) -> str:
    """Begin 200 searches that are streamed, each another, and leave at the first line or before it; then search."""
    with serving(place) as target:
        before, files = target.memory, target.files
        answers = Counter[str]()
        for first in range(0, 200, 20):
            with ExitStack() as leavers:
                for i in range(first, first + 20):
                    body = f'{{"views": [{{"key": "{i % PHOTOS:02d}.jpg", "box": [{i}, 0, 390, 290]}}]}}'
                    leaver = leavers.enter_context(target.connect())
                    leaver.settimeout(10)
                    length = ("Content-Type: application/json", f"Content-Length: {len(body)}")
                    leaver.sendall(head("POST", "/api/search/stream", *length) + body.encode())
                    if i % 2:
                        answers[leaver.recv(12).decode()] += 1
        start = time.perf_counter()
        status = target.get("/api/search?q=k:03.jpg").status_code
        took = time.perf_counter() - start
        until(lambda: target.files <= files + 5, 20)
        told = f"{dict(answers)}; a search after that took {took:.1f} s; {(target.memory - before) / 1e6:+.0f} MB"
        if (
            status != 200
            or set(answers) - {"HTTP/1.1 200", "HTTP/1.1 503"}
            or took > 10
            or target.memory - before > 300e6
            or "Traceback" in target.log.read_text()
        ):
            broken(f"{told}, {status}; {target.log.read_text()[-300:]}")
        return told


def formulas(place: Place) -> str:
    """Name a photo as a formula, and take the results away as a table."""
    with serving(place) as target:
        text = target.get("/api/search.csv?q=k:%3D1%2B1.png").text
        if ",=1+1.png" in text or "'=1+1.png" not in text:
            broken("the table holds a formula")
        return "the formula is text"


ATTACKS: dict[str, Attack] = {
    "one address that takes long to read": one_address,
    "one header without an end": endless_header,
    "150 abandoned crops of 36 megapixels": abandoned_crops,
    "40 uploads of 36 megapixels": many_uploads,
    "30 unfinished uploads": unfinished_uploads,
    "1,100 idle connections": idle_connections,
    "50 uploads broken off": aborted_uploads,
    "requests from other sites": other_sites,
    "a redirection to another host": redirect,
    "a token beyond ASCII": foreign_token,
    "another index in its place": remade,
    "files cut while they are served": cut_files,
    "pipes in place of photos": pipes,
    "a photo and a link that change places": swapped_links,
    "60 abandoned searches of a set": new_matches,
    "200 abandoned streams": abandoned_streams,
    "a formula in a table": formulas,
}
