"""A museum on this machine: manifests of both versions, and images, written after the specifications."""

import io
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image

IMAGE_2 = {"@context": "http://iiif.io/api/image/2/context.json", "profile": ["http://iiif.io/api/image/2/level2.json"]}
IMAGE_3 = {"@context": "http://iiif.io/api/image/3/context.json", "type": "ImageService3", "profile": "level2"}


class Museum:
    """What the museum has: photos in a folder, and documents that name them."""

    def __init__(self, photos: Path) -> None:
        self.photos = photos
        self.documents: dict[str, Any] = {}
        """By path; text that begins with @ redirects."""
        self.address = ""
        self.asked: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        """How often a path still answers 503."""
        self.static: set[str] = set()
        """Photos of a service of level 0."""

    def canvas(self, name: str) -> str:
        return f"{self.address}/canvas/{name}"

    def size(self, name: str) -> tuple[int, int]:
        with Image.open(self.photos / name) as photo:
            return photo.size

    def manifest_3(self, path: str, names: list[str]) -> None:
        """Publish a manifest of version 3, whose canvases are twice as large as their images."""

        def canvas(name: str) -> dict[str, Any]:
            width, height = self.size(name)
            service = [{"id": f"{self.address}/image/{name}", "type": "ImageService3", "profile": "level2"}]
            body = {"id": f"{self.address}/image/{name}/full/max/0/default.jpg", "type": "Image", "service": service}
            painting = {"type": "Annotation", "motivation": "painting", "body": body, "target": self.canvas(name)}
            page = {"type": "AnnotationPage", "items": [painting]}
            size = {"width": 2 * width, "height": 2 * height}
            return {"id": self.canvas(name), "type": "Canvas", "label": {"en": [name]}, **size, "items": [page]}

        items = [canvas(name) for name in names]
        context = "http://iiif.io/api/presentation/3/context.json"
        self.documents[path] = {
            "@context": context,
            "id": f"{self.address}{path}",
            "type": "Manifest",
            "label": {"en": ["Album"]},
            "items": items,
        }

    def manifest_2(self, path: str, names: list[str], image_host: str | None = None) -> None:
        """Publish a manifest of version 2."""

        def canvas(name: str) -> dict[str, Any]:
            width, height = self.size(name)
            service = {"@id": f"{image_host or self.address}/image/{name}", **IMAGE_2}
            resource = {
                "@id": f"{service['@id']}/full/full/0/default.jpg",
                "@type": "dctypes:Image",
                "service": service,
            }
            image = {
                "@type": "oa:Annotation",
                "motivation": "sc:painting",
                "resource": resource,
                "on": self.canvas(name),
            }
            return {
                "@id": self.canvas(name),
                "@type": "sc:Canvas",
                "label": name,
                "width": width,
                "height": height,
                "images": [image],
            }

        sequence = {"@type": "sc:Sequence", "canvases": [canvas(name) for name in names]}
        context = "http://iiif.io/api/presentation/2/context.json"
        self.documents[path] = {
            "@context": context,
            "@id": f"{self.address}{path}",
            "@type": "sc:Manifest",
            "label": "Old album",
            "sequences": [sequence],
        }

    def collection(self, path: str, members: list[str]) -> None:
        items = [{"id": f"{self.address}{one}", "type": "Manifest", "label": {"en": [one]}} for one in members]
        self.documents[path] = {"id": f"{self.address}{path}", "type": "Collection", "items": items}

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return what is answered at a path."""
        self.asked[path] += 1
        if self.busy[path] > 0:
            self.busy[path] -= 1
            return 503, {"Retry-After": "0"}, b""
        if path in self.documents:
            document = self.documents[path]
            if isinstance(document, str):
                return 302, {"Location": document}, b""
            return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()
        parts = path.strip("/").split("/")
        if parts[0] != "image" or not (self.photos / parts[1]).is_file():
            return 404, {}, b""
        with Image.open(self.photos / parts[1]) as stored:
            photo = stored.convert("RGB")
        if parts[2] == "info.json":
            return 200, {}, json.dumps(self.info(parts[1], photo)).encode()
        region, size, rotation, quality = parts[2:]
        assert (region, rotation, quality) == ("full", "0", "default.jpg")
        if size not in ("full", "max"):
            across, _, down = size.partition(",")
            width = int(across)
            photo = photo.resize((width, int(down) if down else round(photo.height * width / photo.width)))
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=95)
        return 200, {"Content-Type": "image/jpeg"}, buffer.getvalue()

    def info(self, name: str, photo: Image.Image) -> dict[str, Any]:
        size = {"width": photo.width, "height": photo.height}
        if name in self.static:
            halves = {"sizes": [{"width": photo.width // 2, "height": photo.height // 2}, size]}
            return {**IMAGE_3, "id": f"{self.address}/image/{name}", "profile": "level0", **size, **halves}
        return {**IMAGE_3, "id": f"{self.address}/image/{name}", **size}


@contextmanager
def opened(photos: Path) -> Iterator[Museum]:
    """Open a museum while the block runs."""
    museum = Museum(photos)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = museum.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    museum.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield museum
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
