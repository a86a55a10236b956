"""What the commands say of themselves, for the documentation and for man(1)."""

import re
from pathlib import Path

import click

from manifind.cli import COMMANDS, main
from manifind.version import VERSION

WIDTH = 100


def write_manual(folder: Path) -> list[Path]:
    """Write manifind.1 and a page for each command into a folder, which is made if need be; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for words, command in commands().items():
        file = folder / f"{words.replace(' ', '-')}.1"
        file.write_text(manual(words, command), encoding="utf-8")
        written.append(file)
    return written


def commands() -> dict[str, click.Command]:
    """Return the commands by the words that call them; the first is `manifind` itself."""
    found: dict[str, click.Command] = {"manifind": main}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        if command is None:
            raise TypeError(f"{name} is listed and is no command.")
        found[f"manifind {name}"] = command
    return found


def help_of(words: str, command: click.Command) -> str:
    """Return what a command's ``--help`` prints, at a width that does not depend on the terminal."""
    parent = click.Context(main, info_name="manifind") if " " in words else None
    settings = {**main.context_settings, **command.context_settings}
    settings |= {"max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=parent, **settings)
    return command.get_help(context).rstrip()


def manual(words: str, command: click.Command) -> str:
    """Return the manual page of a command, as man(7) reads it."""
    name = words.replace(" ", "-")
    short = command.get_short_help_str(500).rstrip(".")
    usage, _, rest = help_of(words, command).partition("\n\n")
    lines = [
        f'.TH "{name.upper()}" "1" "" "manifind {VERSION}" "manifind"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(short)}",
        ".SH SYNOPSIS",
        _plain(re.sub(r"\s+", " ", usage.removeprefix("Usage: "))),
        ".SH DESCRIPTION",
    ]
    for block in rest.split("\n\n"):
        if re.match(r"\S.*:$", block.splitlines()[0]):
            head, _, block = block.partition("\n")
            lines.append(f".SH {_plain(head.rstrip(':').upper())}")
            lines += [".nf", *(_plain(line) for line in block.splitlines()), ".fi"]
        else:
            lines += [_plain(" ".join(block.split())), ".PP"]
    others = [other.replace(" ", "-") for other in commands() if other != words]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_plain(other)}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return text that troff takes as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
