"""Write docs/commands.md, the page of the documentation on what the commands say of themselves.

    python tools/reference.py

The page is in the repository, and a test compares it with the commands.
"""

from pathlib import Path

from manifind.cli.manual import commands, help_of

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

## Manual pages

`manifind --manual FOLDER` writes `manifind.1` and a page for each command from the same help. With
`~/.local/share/man/man1` for FOLDER, `man manifind` and `man manifind-search` find them; with any other, `man -l
FOLDER/manifind.1` does.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | nothing was found, or a check failed |
| 2 | the words of the command are off |
| 3 | the machine's fault: the disk is full, the index is damaged |

An error is one sentence that says what is wrong and what to do. `manifind --debug COMMAND …` shows where it came from.
"""


def page() -> str:
    """Return docs/commands.md."""
    parts = [OPENING]
    for words, command in commands().items():
        parts.append(f"## {words}\n\n```text\n{help_of(words, command)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
