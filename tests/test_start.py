"""What starting costs: nothing is imported before it is needed."""

import subprocess
import sys

import click
import pytest

import manifind
from manifind.cli import COMMANDS, main

HEAVY = {"numpy", "scipy", "faiss", "onnxruntime", "PIL", "rich", "fastapi", "matplotlib", "cv2", "jinja2"}


def imported(program: str) -> set[str]:
    """The packages that a program has imported when it ends."""
    code = f"{program}\nimport sys\nprint('modules:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return {name.partition(".")[0] for name in done.stdout.rpartition("modules:")[2].split()}


def test_the_package_itself_imports_nothing_heavy() -> None:
    assert not imported("import manifind; manifind.__version__") & HEAVY


def test_help_imports_nothing_heavy() -> None:
    program = (
        "from click.testing import CliRunner\nfrom manifind.cli import main\n"
        "print(CliRunner().invoke(main, ['--help']).output)"
    )
    assert not imported(program) & HEAVY


@pytest.mark.parametrize("name", ["Manifold", "Index"])
def test_what_only_some_methods_need_waits_for_them(name: str) -> None:
    unneeded = {"faiss", "sklearn", "numba", "fastapi", "matplotlib", "cv2", "jinja2"}
    assert not imported(f"from manifind import {name}") & unneeded


def test_a_search_imports_no_linear_algebra_of_scipy() -> None:
    """It takes a tenth of the time that the command starts in; learning a whitening needs it, and repeats."""
    code = "import sys, manifind.cli.search; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert not {"scipy.linalg", "scipy.sparse.linalg", "scipy.sparse.csgraph"} & set(done.stdout.split())


@pytest.mark.parametrize("name", ["explain", "repeats", "search", "sets"])
def test_templates_wait_for_a_page(name: str) -> None:
    assert not imported(f"import manifind.cli.{name}") & {"jinja2", "markupsafe"}


def test_every_public_name_is_there() -> None:
    for name in manifind.__all__:
        assert getattr(manifind, name) is not None
    assert dir(manifind) == sorted(manifind.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        manifind.nothing  # noqa: B018


def test_no_garbage_is_collected_while_a_command_is_imported() -> None:
    program = """
import click, gc
from manifind.cli import main
collected = []
gc.callbacks.append(lambda *_: collected.append(1))
main.get_command(click.Context(main), "search")
print(len(collected), gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["0", "True", "True"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_how_its_own_help_begins(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(500).rstrip(".") == COMMANDS[name].rstrip(".")


def test_an_unknown_command_is_none() -> None:
    assert main.get_command(click.Context(main), "nonsense") is None
