"""Write docs/commands.md: the help texts of all commands.

    python tools/reference.py

The page is in the repository, and a test compares it with the commands.
"""

from pathlib import Path

import click

from manifind.cli import COMMANDS, main

WIDTH = 100
"""Columns of the help texts, whatever the terminal's width."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"

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
            raise TypeError(f"{name} is listed and is no command.")
        found[f"manifind {name}"] = command
    return found


def help_of(words: str, command: click.Command) -> str:
    """Return the text of a command's ``--help``."""
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
