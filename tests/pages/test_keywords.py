"""The name of a set as a keyword: in copies of JPEG files, and in files beside photos."""

import io
from xml.etree import ElementTree as ET

from PIL import Image

from manifind.index import FoundSet, Member
from manifind.pages.sets import sidecars, with_keywords, xmp


def keywords_in(packet: bytes) -> list[list[str]]:
    """What another reader finds: the words of dc:subject, and of lr:hierarchicalSubject."""
    tree = ET.fromstring(packet)  # noqa: S314 (our own)
    names = "{http://purl.org/dc/elements/1.1/}subject", "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject"
    item = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
    return [[one.text or "" for one in tree.iterfind(f".//{name}//{item}")] for name in names]


def marked(jpeg: bytes, *words: str) -> tuple[list[list[str]], bytes]:
    """Put keywords into a JPEG file; return what is found in it, and its XMP. Its picture and EXIF are as they were."""
    made = with_keywords(jpeg, words)
    assert made is not None
    with Image.open(io.BytesIO(made)) as copy, Image.open(io.BytesIO(jpeg)) as photo:
        assert copy.getexif()[271] == photo.getexif()[271] == "Kodak"
        assert copy.tobytes() == photo.tobytes()
        return keywords_in(copy.info["xmp"]), made


def jpeg(packet: bytes | None = None) -> bytes:
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[271] = "Kodak"
    Image.linear_gradient("L").save(buffer, "JPEG", exif=exif, **({} if packet is None else {"xmp": packet}))
    return buffer.getvalue()


def test_keywords_go_into_copies_whose_picture_is_as_it_was_beside_those_that_are_there() -> None:
    assert keywords_in(xmp(["a & b", "<c>"])) == [["a & b", "<c>"]] * 2
    found, once = marked(jpeg(), "object 1923.4")
    assert found == [["object 1923.4"]] * 2
    assert marked(once, "again & more")[0] == [["again & more", "object 1923.4"]] * 2
    said = '<rdf:Description rdf:about="" xmlns:x="u:x"><x:said>yes</x:said></rdf:Description>'
    begin, end = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">', "</rdf:RDF>"
    found, other = marked(jpeg((begin + said + end).encode()), "new")
    assert found == [["new"], ["new"]]
    assert b"<x:said>yes</x:said>" in other
    for odd in (begin + said.replace("x:said>", "dc:subject>").replace("u:x", "u:dc") + end, "no packet at all"):
        assert with_keywords(jpeg(odd.encode()), ["new"]) is None
    assert with_keywords(jpeg(begin.encode() + b" " * 65_000 + end.encode()), ["long " * 200]) is None
    assert with_keywords(b"\x89PNG", ["a"]) is None


def test_sidecars_are_named_as_programs_look_for_them() -> None:
    names = ("a/b.jpg", "a/raw.CR2", "film.mp4#00:01.0", "film.mp4#00:02.0")
    members = tuple(Member(name, name, None, "yes", True) for name in names)
    one = FoundSet("roofs", "2026", (*members, Member("no.jpg", "no", None, "no", True)), None)
    assert [name for name, _ in sidecars(one)] == ["a/b.jpg.xmp", "a/raw.CR2.xmp", "film.mp4.xmp", "a/raw.xmp"]
