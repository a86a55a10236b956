"""Files that several workers may write at once."""

from pathlib import Path
from secrets import token_hex
from typing import Any

from manifind.storage import disk


def write(file: Path, chunks: Any) -> None:
    """Write a file that is there when it is whole, whoever else writes the same at the same time."""
    draft = file.with_name(f".{file.name}.{token_hex(4)}")
    disk.write(draft, chunks)
    disk.replace(draft, file)
