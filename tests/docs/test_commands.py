"""The help of the commands: the page that shows it, and completion by the shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tools import reference

from manifind.cli import COMMANDS, main
from tests.docs.blocks import blocks_of

CALLED = "import sys; sys.argv[0] = 'manifind'; from manifind.cli import main; main()"
"""What the installed program does."""


def test_the_page_of_commands_is_what_the_commands_say(repository: Path) -> None:
    page = (repository / "docs" / "commands.md").read_text()
    assert page == reference.page(), "run python tools/reference.py"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_page_has_the_very_help_that_a_terminal_shows(name: str, repository: Path) -> None:
    printed = CliRunner().invoke(main, [*name.split(), "--help"], terminal_width=100, prog_name="manifind").output
    shown = [block.content for block in blocks_of(repository / "docs" / "commands.md") if block.language == "text"]
    assert printed.rstrip() in {content.rstrip() for content in shown}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_script_that_completes(shell: str) -> None:
    script = manifind(f"{shell}_source")
    assert "_MANIFIND_COMPLETE" in script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("manifind se", {"search", "sets", "serve"}),
        ("manifind search photos.manifind shot.jpg --ver", {"--verify"}),
        ("manifind index photos --knn ", {"auto", "exact", "nn-descent"}),
        ("manifind --thr", {"--threads"}),
    ],
)
def test_what_was_begun_is_completed(typed: str, offered: set[str]) -> None:
    words = typed.split(" ")
    told = manifind("bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1))
    assert {line.partition(",")[2] for line in told.splitlines()} >= offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_by_the_line_of_the_page(repository: Path, tmp_path: Path) -> None:
    (line,) = [
        block.content.strip()
        for block in blocks_of(repository / "docs" / "commands.md")
        if block.how == "shell" and "bash" in block.content
    ]
    program = tmp_path / "manifind"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{CALLED}" "$@"\n')
    program.chmod(0o755)
    asked = f'{line}; COMP_WORDS=(manifind rep); COMP_CWORD=1; _manifind_completion manifind; echo "${{COMPREPLY[@]}}"'
    told = subprocess.run(  # noqa: S603
        ["bash", "--norc", "-c", asked],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert told.stdout.split() == ["repeats"]


def manifind(how: str, **environment: str) -> str:
    told = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CALLED],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "_MANIFIND_COMPLETE": how, **environment},
    )
    assert told.stdout, told.stderr
    return told.stdout
