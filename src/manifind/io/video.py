"""Frames of films, read by ffmpeg as photos.

The key of a frame is the film's name and a time: ``film.mp4#00:12.4`` is what the film shows 12.4 seconds after it
begins, the first frame at or after that time. Such a name is a path like any other wherever a photo is read.

ffmpeg reads films, as a program of its own: one that is installed, or the one that comes with ``manifind[video]``. A
frame is sought and decoded alone, so that memory does not grow with the film and frames can be read side by side. The
first bytes of a file name its format, which ffmpeg gets as an option. ffmpeg may open that file alone, within limits of
time and of size.
"""

import numbers
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from manifind.checks import is_there
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io.files import HEAD_BYTES, open_regular
from manifind.io.limits import MAX_PIXELS, Admit

FRAME_STEP = 0.1
"""Least seconds between two frames: their keys tell tenths."""
MAX_FRAMES = 50_000
"""Frames of one film: a film with more is damaged, or needs more seconds between its frames."""
MAX_TENTHS = 1000 * 36_000 - 1
"""The latest frame that a name can tell, 999:59:59.9, in tenths of a second."""
MAX_SECONDS = 120.0
"""How long ffmpeg may run."""
MAX_FRAME_PIXELS = 2**26
"""The largest frame that is decoded: twice that of the largest films, 8192 × 4320."""
MAX_STRETCH = 4
"""By which a pixel's width and height may differ; anamorphic films have 2."""
STORED_BYTES, SHOWN_BYTES = 16, 12
"""Memory that ffmpeg and the reader take for a pixel: decoded frames with those they refer to, and copies in RGB."""
PADDING_PIXELS = 2**21
"""By which a frame may be larger in the stream than its file says: codecs pad sides to whole blocks."""
EARLY_SECONDS = 0.001
"""Times are rounded: a frame that comes this much early is on time."""

NO_FFMPEG = "needs ffmpeg: install it, or pip install 'manifind[video]'"
UNDECODABLE = "a film that is damaged, or of a kind that ffmpeg does not read"

_SIGNATURES = {
    "mov": rb".{4}(?:ftyp(?!crx|M4A|M4B)|moov|mdat|wide|free|skip)",
    "matroska": rb"\x1a\x45\xdf\xa3",
    "avi": rb"RIFF.{4}AVI ",
    "asf": rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
    "flv": rb"FLV\x01",
    "mpeg": rb"\0\0\x01[\xba\xb3]",
}
_PATTERNS = {kind: re.compile(pattern, re.DOTALL) for kind, pattern in _SIGNATURES.items()}
FORMATS_BY_SUFFIX = {
    ".ts": "mpegts",
    ".mts": "mpegts",
    ".m2ts": "mpegts",
    ".m2t": "mpegts",
    ".ogv": "ogg",
}
"""Formats whose first bytes tell too little, by the suffixes of their files."""
_SUFFIX_SIGNATURES = {"mpegts": re.compile(rb"\x47|.{4}\x47", re.DOTALL), "ogg": re.compile(rb"OggS")}

_TIME = re.compile(r"#(?:([0-9]{1,3}):)?([0-5][0-9]):([0-5][0-9])\.([0-9])")
MAX_TIME_CHARS = len("#999:59:59.9")
_DIMENSIONS = re.compile(rb"^#dimensions 0: ([0-9]{1,9})x([0-9]{1,9})$", re.MULTILINE)
_RATIO = re.compile(rb"^#sar 0: ([0-9]{1,9})/([0-9]{1,9})$", re.MULTILINE)
_HEADER = re.compile(rb"P6\s([0-9]{1,6})\s([0-9]{1,6})\s255\s")


def check_frame_interval(seconds: object) -> float:
    """Return the seconds between two frames, in whole tenths, if frames so far apart can be named."""
    most = MAX_TENTHS // 10
    if isinstance(seconds, numbers.Real) and not isinstance(seconds, bool) and FRAME_STEP / 2 < seconds <= most:  # type: ignore[operator]
        tenths = float(seconds) / FRAME_STEP
        if abs(tenths - round(tenths)) <= 1e-6:
            return round(tenths) / 10
    raise InvalidInputError(
        f"frames is {seconds!r}; give seconds in tenths, 2 or 0.5 say, and at most {most:,}.", code="frame-interval"
    )


def video_format(head: bytes, name: str) -> str | None:
    """Return ffmpeg's name of a film's format, by its first bytes; None where these begin no film."""
    kind = FORMATS_BY_SUFFIX.get(Path(name).suffix.lower())
    if kind is not None:
        return kind if _SUFFIX_SIGNATURES[kind].match(head) else None
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.match(head)), None)


def frame_key(name: str, tenths: int) -> str:
    """Return the key, or the path, of the frame of a film at a time in tenths of a second."""
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return f"{name}#{f'{hours}:' if hours else ''}{minutes:02}:{rest // 10:02}.{rest % 10}"


def split_frame_key(name: str) -> tuple[str, int] | None:
    """Return the film and the tenths of a second that the key of a frame names; None for any other key."""
    at = name.rfind("#", -MAX_TIME_CHARS)
    time = _TIME.fullmatch(name[at:]) if at > 0 else None
    if time is None:
        return None
    hours, minutes, seconds, tenths = (int(part or 0) for part in time.groups())
    return name[:at], ((60 * hours + minutes) * 60 + seconds) * 10 + tenths


def locate_frame(path: str | os.PathLike[str]) -> tuple[Path, int] | None:
    """Return the film and the tenths of a second of a frame's path; None where there is no such film."""
    parts = split_frame_key(os.fspath(path))
    try:
        if parts is None or Path(path).exists() or not Path(parts[0]).is_file():
            return None
    except (OSError, ValueError):
        return None
    return Path(parts[0]), parts[1]


def is_photo_there(path: str | os.PathLike[str]) -> bool:
    """Whether a file of that path exists, or a film of which it names a frame."""
    return is_there(path) or locate_frame(path) is not None


def containing_file(path: Path) -> Path:
    """Return the file that holds a photo: the film of a frame, else the path itself."""
    frame = locate_frame(path)
    return path if frame is None else frame[0]


def video_length(film: Path) -> int:
    """Return a film's length in tenths of a second; raise `UnreadableImageError` where it has no frame."""
    with open_regular(film) as file:
        # What cannot be decoded at all fails here, not frame by frame.
        decoded = _ffmpeg(file, film, ["-frames:v", "1", "-f", "null", "-progress", "pipe:1", "-"])
        if not re.search(rb"^frame=1\b", decoded, re.MULTILINE):
            raise UnreadableImageError(UNDECODABLE, str(film), code="undecodable-film")
        output = _ffmpeg(file, film, ["-c", "copy", "-f", "null", "-progress", "pipe:1", "-"])
    ends = re.findall(rb"out_time_us=([0-9]{1,15})", output)
    tenths = int(ends[-1]) // 100_000 if ends else 0
    return max(tenths, 1)


def read_frame(
    film: Path,
    tenths: int,
    max_pixels: int = MAX_PIXELS,
    *,
    admit: Admit | None = None,
    root: str | os.PathLike[str] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return the pixels (h, w, 3) of a frame, upright.

    `admit` is called with the bytes that decoding will take, before ffmpeg decodes; `root` is as for `open_regular`.
    """
    most = min(max_pixels, MAX_FRAME_PIXELS)
    with open_regular(film, root=root) as file:
        stored, shown = _pixels(_ffmpeg(file, film, ["-c", "copy", "-frames:v", "1", "-f", "framecrc", "-"], tenths))
        if max(stored, shown) > most:
            reason = f"too large: {shown} pixels a frame, the limit is {most / 1e6:g} million"
            raise UnreadableImageError(reason, code="too-large")
        if admit is not None:
            admit(STORED_BYTES * stored + SHOWN_BYTES * shown)
        width = f"max(1,trunc(min(iw*clip(sar,1/{MAX_STRETCH},{MAX_STRETCH}),{shown}/ih)))"
        upright = f"scale=w='{width}':h=ih:flags=bicubic,setsar=1"
        output = ["-frames:v", "1", "-vf", upright, "-c:v", "ppm", "-f", "image2pipe", "-"]
        data = _ffmpeg(file, film, output, tenths, stored + shown + PADDING_PIXELS)
    header = _HEADER.match(data)
    if header is None:
        if tenths == 0:
            raise UnreadableImageError(UNDECODABLE, str(film), code="undecodable-film")
        raise UnreadableImageError("the film shows nothing at that time", str(film), code="no-frame")
    w, h = int(header[1]), int(header[2])
    pixels = np.frombuffer(data, np.uint8, offset=header.end())
    if not 0 < 3 * w * h <= min(len(pixels), 3 * max_pixels):
        raise UnreadableImageError(UNDECODABLE, str(film), code="undecodable-film")
    return pixels[: 3 * w * h].reshape(h, w, 3)


def _pixels(head: bytes) -> tuple[int, int]:
    """Return the pixels of a frame as they are stored and as they are shown, from the head of ffmpeg's framecrc."""
    size, ratio = _DIMENSIONS.search(head), _RATIO.search(head)
    stored = int(size[1]) * int(size[2]) if size else 0
    stretch = int(ratio[1]) / int(ratio[2]) if ratio and int(ratio[2]) else 1.0
    return stored, int(stored * min(max(stretch, 1.0), MAX_STRETCH))


def _ffmpeg(
    file: BinaryIO, film: Path, output: list[str], tenths: int = 0, max_pixels: int = MAX_FRAME_PIXELS
) -> bytes:
    """Let ffmpeg read an open film from some time on, and return what it prints."""
    file.seek(0)
    kind = video_format(file.read(HEAD_BYTES), film.name)
    if kind is None:
        raise UnreadableImageError("not a film", str(film), code="not-a-film")
    # ffmpeg opens the file that was checked, whatever lies at its path by now.
    descriptors = [] if os.name == "nt" else [file.fileno()]
    for descriptor in descriptors:
        os.lseek(descriptor, 0, os.SEEK_SET)
    path = f"/dev/fd/{file.fileno()}" if descriptors else str(film.absolute())
    options = ["-nostdin", "-hide_banner", "-loglevel", "quiet", "-nostats"]
    limits = ["-threads", "1", "-max_pixels", str(max_pixels), "-protocol_whitelist", "file", "-f", kind]
    start = [] if tenths == 0 else ["-ss", f"{tenths / 10 - EARLY_SECONDS:.3f}"]
    command = [_program(), *options, *limits, *start, "-i", f"file:{path}", "-map", "0:v:0", *output]
    try:
        done = subprocess.run(  # noqa: S603 (a program that we found, words that we wrote)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAX_SECONDS,
            check=False,
            pass_fds=descriptors,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableImageError(
            f"a film that took more than {MAX_SECONDS:.0f} seconds to decode", str(film), code="film-time-limit"
        ) from None
    except (OSError, ValueError) as error:
        raise UnreadableImageError(
            f"ffmpeg could not be run ({error}); {NO_FFMPEG}", str(film), temporary=True, code="missing-extra"
        ) from error
    if done.returncode < 0:
        raise UnreadableImageError("a film at which ffmpeg breaks down", str(film), code="undecodable-film")
    return done.stdout


@cache
def _program() -> str:
    """Return where ffmpeg is."""
    program = shutil.which("ffmpeg")
    if program is not None:
        return program
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise UnreadableImageError(NO_FFMPEG, temporary=True, code="missing-extra") from None
