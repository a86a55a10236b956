"""Write what the commands say of themselves: a page of the documentation, and manual pages.

    python tools/reference.py            # docs/commands.md
    python tools/reference.py --man DIR  # manifind.1, manifind-index.1, … for man(1)

The page is in the repository, and a test compares it with the commands. Manual pages are made when they are wanted.
"""

import argparse
import re
from pathlib import Path

import click

from manifind.cli import COMMANDS, main
from manifind.version import VERSION

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
WIDTH = 100

OPENING = """# Commands

What `manifind --help` and `manifind COMMAND --help` print. Written by `python tools/reference.py`; a test
compares it with the commands. `manifind --version` says which version is installed.

## Completion

The shell completes commands, options and files once it is told to. For Bash, in `~/.bashrc`:

```sh shell
eval "$(_MANIFIND_COMPLETE=bash_source manifind)"
```

For Zsh write `zsh_source` in its place, in `~/.zshrc`. For Fish, in `~/.config/fish/completions/manifind.fish`:

```sh shell
_MANIFIND_COMPLETE=fish_source manifind | source
```

## Manual pages

`python tools/reference.py --man FOLDER` writes `manifind.1` and a page for each command from the same help; `man -l
FOLDER/manifind.1` shows one.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | nothing was found, or a check failed |
| 2 | the words of the command are off |
| 3 | the machine's fault: the disk is full, the index is damaged |

An error is one sentence that says what is wrong and what to do. `manifind --debug COMMAND …` shows where it came from.
"""


def commands() -> dict[str, click.Command]:
    """Return the commands by the words that call them; the first is `manifind` itself."""
    found: dict[str, click.Command] = {"manifind": main}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        if command is None:
            raise SystemExit(f"{name} is listed and is no command.")
        found[f"manifind {name}"] = command
    return found


def help_of(words: str, command: click.Command) -> str:
    """Return what a command's ``--help`` prints, at a width that does not depend on the terminal."""
    parent = click.Context(main, info_name="manifind") if " " in words else None
    settings = {**main.context_settings, **command.context_settings}
    settings |= {"max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=words.rpartition(" ")[2], parent=parent, **settings)
    return command.get_help(context).rstrip()


def page() -> str:
    """Return docs/commands.md."""
    parts = [OPENING]
    for words, command in commands().items():
        parts.append(f"## {words}\n\n```text\n{help_of(words, command)}\n```\n")
    return "\n".join(parts)


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


def main_() -> None:
    """Write the page, or the manual."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--man", type=Path, metavar="FOLDER", help="write manual pages there instead")
    folder = parser.parse_args().man
    if folder is None:
        PAGE.write_text(page(), encoding="utf-8")
        return
    folder.mkdir(parents=True, exist_ok=True)
    for words, command in commands().items():
        (folder / f"{words.replace(' ', '-')}.1").write_text(manual(words, command), encoding="utf-8")


if __name__ == "__main__":
    main_()
