"""What an install brings is known, package by package."""

from pathlib import Path

import pytest
from tools import audit


def test_a_default_install_brings_what_was_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([]) == 0
    listed = capsys.readouterr().out
    assert "onnxruntime" in listed
    assert "fastapi" not in listed
    assert audit.main(["serve"]) == 0
    assert "fastapi" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["# rich", "rich Proprietary"])
def test_a_package_or_a_licence_that_is_new_is_named(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_at = tmp_path / "audited.txt"
    lines = audit.LOOKED_AT.read_text().splitlines()
    looked_at.write_text("\n".join(change if line.startswith("rich ") else line for line in lines))
    monkeypatch.setattr(audit, "LOOKED_AT", looked_at)
    assert audit.main([]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["rich MIT License"]


def test_everything_that_the_checks_install_is_settled() -> None:
    settled = (Path(__file__).parents[1] / "scripts" / "constraints.txt").read_text()
    pinned = {audit.plain(line.partition("==")[0]) for line in settled.splitlines() if "==" in line}
    assert set(audit.brought("manifind", ["dev"])) - {"manifind"} <= pinned
