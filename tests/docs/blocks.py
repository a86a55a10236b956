"""The blocks of code on a page: what they are, and how each is run or, where it cannot be run here, checked.

A fence says by its second word how its block is taken:

- nothing: it is run, in the folder of the page, after those before it;
- ``exit N``: it is run and ends with that code;
- ``install``: the extras that it names are there;
- ``parsed``: its commands are read by the parser of the command, which knows every option, and not run; Python is
  compiled, and what it imports of manifind must be there; so is the command that a unit of systemd starts (``ini``);
- ``serve``: a service is started, asked whether it is ready, and ended;
- ``gpu``: run where there is a GPU, else parsed or compiled;
- ``cluster``: run by ``scripts/cluster-demo``, which `tests/distributed/test_guide.py` compares with the page;
- ``shell``: for the shell itself; `tests/docs/test_commands.py` tries it;
- a name of a file: what the file holds, for `tests/evaluation/test_docs.py`.
"""

import ast
import configparser
import copy
import re
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from manifind.cli import main

FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = ("cluster", "shell")
"""Taken by other tests."""
SHOWN = ("text", "sql", "json")
"""Languages of blocks that show something and are not code."""


@dataclass(frozen=True)
class Block:
    """A fence of a page."""

    page: str
    language: str
    how: str
    content: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, found[1], found[2] or "", found[3], text[: found.start()].count("\n") + 1)
        for found in FENCE.finditer(text)
    ]


def commands_of(block: Block) -> list[list[str]]:
    """Return the commands of a block as words; a backslash joins lines, and comments are left out."""
    lines = block.content.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def started_by(block: Block) -> list[str]:
    """Return the command that a unit of systemd starts, as words."""
    unit = configparser.ConfigParser()
    unit.read_string(block.content)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    return [Path(program).name, *words]


class Notebook:
    """A page that is gone through: its folder, and the names that its Python has made."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: dict[str, str] = {}

    def take(self, block: Block) -> None:
        """Run or check a block."""
        if block.language in SHOWN or block.how in ELSEWHERE or "." in block.how:
            return
        if block.language == "python":
            self._python(block)
        elif block.language == "sh":
            for words in commands_of(block):
                self._command(block, words)
        elif block.language == "ini":
            parsed(block, started_by(block))
        else:
            raise AssertionError(f"{block.name} is of {block.language!r}, which nothing runs: sh, python, ini or text.")

    def _python(self, block: Block) -> None:
        code = compile(block.content, block.name, "exec")
        if block.how == "parsed" or (block.how == "gpu" and not gpu()):
            known_names(block)
            return
        if block.how not in ("", "gpu"):
            raise AssertionError(f"{block.name}: {block.how!r} says nothing about Python.")
        exec(code, self.names)  # noqa: S102 (our own pages)

    def _command(self, block: Block, words: list[str]) -> None:
        how, _, code = block.how.partition(" ")
        if how == "install":
            installed(block, words)
        elif words[0] == "python":
            known_script(block, words)
        elif words[0].startswith("scripts/"):
            assert (REPOSITORY / words[0]).is_file(), f"{block.name}: {words[0]} is not there"
        elif words[0] != "manifind":
            raise AssertionError(f"{block.name}: {words[0]} is no command that can be checked")
        elif how == "parsed" or (how == "gpu" and not gpu()):
            parsed(block, words)
        elif how == "serve":
            from tests.docs.serving import served

            served(words)
        else:
            result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
            assert result.exit_code == int(code or 0), f"{block.name}: {' '.join(words)}\n{result.output}"
            self.printed[" ".join(words)] = result.output


REPOSITORY = Path(__file__).resolve().parents[2]


def parsed(block: Block, words: list[str]) -> None:
    """Let the command itself read the words, without running it; files need not be there."""
    context = main.make_context("manifind", words[1:], resilient_parsing=False)
    rest = [*context._protected_args, *context.args]
    found = main.get_command(context, rest[0])
    assert found is not None, f"{block.name}: manifind has no command {rest[0]}"
    command = copy.deepcopy(found)
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type.exists = False
    command.make_context(rest[0], rest[1:], parent=context)


def known_script(block: Block, words: list[str]) -> None:
    """Look whether a program of the repository, and every option given to it, is there; compile what ``-c`` has."""
    if words[1] == "-c":
        compile(words[2], block.name, "exec")
        return
    source = (REPOSITORY / words[1]).read_text()
    for word in words[2:]:
        if word.startswith("-"):
            assert f'"{word.partition("=")[0]}"' in source, f"{block.name}: {words[1]} has no {word}"


def known_names(block: Block) -> None:
    """Look whether what a block imports from manifind is there."""
    for node in ast.walk(ast.parse(block.content)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("manifind"):
            module = __import__(node.module, fromlist=["__all__"])
            for alias in node.names:
                assert alias.name in getattr(module, "__all__", dir(module)), f"{block.name}: no {alias.name}"


@cache
def extras() -> frozenset[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return frozenset(project["project"]["optional-dependencies"])


def installed(block: Block, words: list[str]) -> None:
    """Look whether the extras of a ``pip install`` are those of the project."""
    assert words[:2] == ["pip", "install"] or words[:4] == ["python", "-m", "pip", "install"], block.name
    for word in words[2:]:
        named = re.fullmatch(r"(?:manifind|\.)\[([\w,]+)\]", word)
        if named:
            assert set(named[1].split(",")) <= extras(), f"{block.name}: {word}"


@cache
def gpu() -> bool:
    """Whether a GPU can be used here."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
