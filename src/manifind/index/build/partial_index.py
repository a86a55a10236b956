"""The photos extracted so far, while the index of all of them is being built.

Extraction takes long, and extracted photos can be searched. The journal of the running build, copied, is what an
interrupted build of a smaller index would have left: the smaller index is made from it without extracting a photo. It
is an index like any other, with a whitening and a graph of its own, and lives in a folder of its own until the whole
one is there.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from manifind.index.build.build import build
from manifind.index.build.journal import FILES as OF_A_JOURNAL
from manifind.index.build.plan import SyncPlan
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.manifest import FILES, KIND
from manifind.storage import disk, store

CHUNK = 2**20


class PartialIndex:
    """Photos that a build has extracted; more may come meanwhile.

    Parameters
    ----------
    config : BuildConfig
        How the photos become an index.
    journal : Path
        The folder of the journal that they are in.
    images : sequence of ImageRecord
        The photos; the build adds to it.
    """

    def __init__(self, config: BuildConfig, journal: Path, images: Sequence[ImageRecord]) -> None:
        self._recipe, self._journal, self._images = config, journal, images

    def __len__(self) -> int:
        return len(self._images)

    def write(self, path: Path) -> None:
        """Write an index of these photos at `path`, beside the build: in any thread, at any time."""
        images = list(self._images)  # before the journal, which then has all of them
        disk.make_folder(path)
        with store.writing(path, KIND, FILES) as writer:
            disk.make_own_folder(writer.work)
            copy = writer.work / self._journal.name
            disk.make_own_folder(copy)
            for name in OF_A_JOURNAL:
                disk.write(copy / name, _chunks(self._journal / name))
            build(writer, self._recipe, SyncPlan([], [], images))
            disk.remove_folder(writer.work)


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk
