"""How far a build is, and how long its stage will take."""

import time
from pathlib import Path

from manifind.io.files import printable
from manifind.serve.responses import BuildingProgress


class StageClock:
    """The progress of a build; `report` may be called in another thread.

    Parameters
    ----------
    folder : Path
        Of the photos.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stage, self._done, self._total = "files", 0, 0
        self._began = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        """Note that so much of a stage is done."""
        if stage != self._stage:
            self._began = time.monotonic()
        self._stage, self._done, self._total = stage, done, total

    @property
    def progress(self) -> BuildingProgress:
        """The progress of the build, and how long its present stage will take."""
        passed = time.monotonic() - self._began
        left = None if self._done < 2 else round(passed / self._done * (self._total - self._done), 1)
        return BuildingProgress(
            folder=printable(self._folder), stage=self._stage, done=self._done, total=self._total, seconds_left=left
        )
