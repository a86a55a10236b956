"""Manifests and collections of the Presentation API, versions 2 and 3, read from JSON that anybody may have written."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MAX_CANVASES = 1_000_000
MAX_TEXT = 4096
"""Characters of an address or a label."""


@dataclass(frozen=True)
class Canvas:
    """An image on a canvas."""

    canvas: str
    manifest: str
    label: str
    image: str
    """The address of the image, or of its service."""
    place: tuple[float, float, float, float]
    """Left, top, width and height of the image on its canvas."""
    is_service: bool = True


def is_collection(document: Any) -> bool:
    """Return whether a document lists manifests."""
    return _kind(document) in ("Collection", "sc:Collection")


def is_manifest(document: Any) -> bool:
    """Return whether a document lists canvases."""
    return _kind(document) in ("Manifest", "sc:Manifest")


def members_of(document: Any) -> list[str]:
    """Return the addresses of the manifests and collections that a collection lists."""
    addresses = [
        _id(member)
        for name in ("items", "manifests", "members", "collections")
        for member in _items(document, name)
        if name in ("manifests", "collections") or is_manifest(member) or is_collection(member)
    ]
    return list(filter(None, dict.fromkeys(addresses)))


def canvases_of(document: Any) -> Iterator[Canvas]:
    """Yield the images of a manifest, in order."""
    manifest = _id(document)
    old = [canvas for sequence in _items(document, "sequences") for canvas in _items(sequence, "canvases")]
    for canvas in (*_items(document, "items"), *old)[:MAX_CANVASES]:
        name, label = _id(canvas), _text(canvas.get("label"))
        size = _number(canvas.get("width")), _number(canvas.get("height"))
        painted = [
            (annotation.get("body"), annotation.get("target"))
            for page in _items(canvas, "items")
            for annotation in _items(page, "items")
            if "painting" in _list(annotation.get("motivation"))
        ]
        painted += [(annotation.get("resource"), annotation.get("on")) for annotation in _items(canvas, "images")]
        for body, target in painted:
            image, is_service = _image(body)
            if name and image:
                place = _fragment(target) or (0.0, 0.0, *size)
                yield Canvas(name, manifest, label, image, place, is_service)


def _image(body: Any) -> tuple[str, bool]:
    """Return the address of an image's service, or else of the image; of a choice, the first."""
    for resource in _list(body):
        if not isinstance(resource, dict):
            continue
        if resource.get("type") == "Choice" or resource.get("@type") == "oa:Choice":
            return _image(
                [*_list(resource.get("default")), *_list(resource.get("items")), *_list(resource.get("item"))]
            )
        if resource.get("type") == "SpecificResource":
            return _image(resource.get("source"))
        for service in _list(resource.get("service")):
            if (
                isinstance(service, dict)
                and "image" in f"{_kind(service)}{service.get('profile')}{service.get('@context')}".lower()
            ):
                return _id(service).rstrip("/"), True
        if _id(resource) and ("image" in _kind(resource).lower() or str(resource.get("format")).startswith("image/")):
            return _id(resource), False
    return "", False


def _fragment(target: Any) -> tuple[float, float, float, float] | None:
    """Return the part of a canvas that ``#xywh=`` names."""
    target = target[0] if isinstance(target, list) and target else target
    text = target if isinstance(target, str) else _id(target)
    if isinstance(target, dict) and isinstance(target.get("selector"), dict):
        text = "#" + str(target["selector"].get("value"))
    _, marker, words = text.partition("#xywh=")
    try:
        numbers = [float(number) for number in words.removeprefix("pixel:").split(",")] if marker else []
    except ValueError:
        return None
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _kind(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    return str(document.get("type") or document.get("@type") or "")


def _id(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    address = document.get("id") or document.get("@id")
    return address if isinstance(address, str) and len(address) <= MAX_TEXT else ""


def _text(label: Any) -> str:
    """Return a label's words in its first language."""
    while not isinstance(label, str):
        if isinstance(label, dict):
            label = label.get("@value") or next(iter(label.values()), "")
        elif isinstance(label, Sequence) and label:
            label = label[0]
        else:
            return ""
    return label[:MAX_TEXT]


def _number(value: Any) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable and value > 0 else 0.0


def _items(document: Any, name: str) -> list[Any]:
    values = document.get(name) if isinstance(document, dict) else None
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
