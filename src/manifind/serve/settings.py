"""What the service may use, and whom it answers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Limits and manners of a service."""

    token: str | None = None
    """What a client must show; None answers everybody who can reach the address."""
    hosts: tuple[str, ...] | None = ("127.0.0.1", "localhost", "::1")
    """Names by which the service may be called, against pages that have their own name lead here; None for any."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may use the API."""
    follow_links: bool = False
    """Serve photos of the index whose file lies outside the collection's folder, through a link."""
    tell_paths: bool = False
    """Tell where on this machine a photo's file lies: for whoever sits at it."""
    keep_sets: bool = True
    """Let clients keep sets of photos in the index's folder."""
    updates: bool = False
    """Compare the photos' folder with the index, and let clients bring the index up to date."""
    mcp: bool = False
    """Answer agents at ``/mcp``, by the Model Context Protocol."""
    watch: bool = False
    """Bring the index up to date whenever photos come or go, without being asked."""
    poll_seconds: float = 30.0
    """How often to compare the folder where the system does not report changes, at most."""
    gather_seconds: float = 0.004
    """How long a query waits for others to be solved with, while the solver is idle."""
    largest_batch: int = 64
    waiting: int = 256
    """Searches under way at most; more are answered 503."""
    time_limit: float = 30.0
    """Seconds after which a search is given up."""
    file_seconds: float = 5.0
    """Seconds after which the file of a photo is given up: its disk or network does not answer."""
    deadline_seconds: float = 2.0
    """After how many seconds a search returns the result that it has by then: see `SearchResult.complete`."""
    upload_bytes: int = 50_000_000
    upload_pixels: int = 50_000_000
    uploads_bytes: int = 300_000_000
    """What uploads may take together; the oldest make room."""
    json_bytes: int = 8_000_000
    head_bytes: int = 65_536
    """What the head of a request may take: its address and its headers."""
    bodies_bytes: int = 200_000_000
    """What the bodies of all requests under way may take together."""
    body_seconds: float = 60.0
    """How long a body may take to arrive."""
    connections: int = 400
    """Connections at a time; those on which nothing is asked make room for new ones."""
    most_regions: int = 4096
    """Descriptors in one query."""
    initial_verifications: float = 4.0
    """Verifying steps of searches a second, until the pace is measured."""
    extract_threads: int = 2
    decode_threads: int = 2
    picture_threads: int = 2
    file_threads: int = 4
    archives: int = 8
    """Archives of photos that are sent at a time."""
    pixels_bytes: int = 120_000_000
    """What decoded photos kept in memory may take, for when another part of them is asked for."""
    cache_bytes: int = 128_000_000
    """What thumbnails kept in memory may take."""
    reload_seconds: float = 1.0
    """How often to look for a new generation of the index."""
