"""The name of a set as a keyword, in sidecar files beside photos."""

from xml.etree import ElementTree as ET

from manifind.index import Member, PhotoSet
from manifind.reports.results import sidecars, xmp


def keywords_in(packet: bytes) -> list[list[str]]:
    """What another reader finds: the words of dc:subject, and of lr:hierarchicalSubject."""
    tree = ET.fromstring(packet)  # noqa: S314 (our own)
    names = "{http://purl.org/dc/elements/1.1/}subject", "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject"
    item = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
    return [[one.text or "" for one in tree.iterfind(f".//{name}//{item}")] for name in names]


def test_a_packet_holds_the_keywords_whatever_is_in_them() -> None:
    assert keywords_in(xmp(["a & b", "<c>"])) == [["a & b", "<c>"]] * 2


def test_sidecars_are_named_as_programs_look_for_them() -> None:
    names = ("a/b.jpg", "a/raw.CR2", "film.mp4#00:01.0", "film.mp4#00:02.0")
    members = tuple(Member(name, name, None, "yes", True) for name in names)
    one = PhotoSet("roofs", "2026", (*members, Member("no.jpg", "no", None, "no", True)), None)
    assert [name for name, _ in sidecars(one)] == ["a/b.jpg.xmp", "a/raw.CR2.xmp", "film.mp4.xmp", "a/raw.xmp"]
