"""A manifest changed by somebody who knows how to sign it: by the SHA-256 of its JSON, with the keys sorted."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def sign(path: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a folder, with a checksum that is right."""
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / MANIFEST).write_text(json.dumps({**manifest, "checksum": checksum}))


def resigned(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a folder and sign it again."""
    manifest = json.loads((path / MANIFEST).read_text())
    del manifest["checksum"]
    change(manifest)
    sign(path, manifest)
