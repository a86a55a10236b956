"""What a release is made of, as far as it can be seen before it is built: scripts/release-check builds and tries it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tools import contents

import manifind
from manifind.cli import main
from manifind.kernels import cuda
from tests.docs.blocks import Block, parsed


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text())


def files(repository: Path, *patterns: str) -> list[Path]:
    listed = subprocess.run(  # noqa: S603
        ["git", "ls-files", "--", *patterns],  # noqa: S607
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return [repository / name for name in listed.stdout.splitlines()]


def test_the_version_stands_in_one_place(repository: Path) -> None:
    assert CliRunner().invoke(main, ["--version"]).output.split()[-1] == manifind.__version__
    written = [
        file
        for file in files(repository, "*.py", "*.toml", "*.cff", "*.txt", "*.yml", "README.md")
        if file.exists() and f'"{manifind.__version__}"' in file.read_text()
    ]
    assert written == [repository / "src/manifind/version.py"]


def test_extras_keep_a_default_install_small(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    assert {"torch", "serve", "cluster", "heic", "plots"} <= set(extras)
    default = {re.split(r"[><=;\[]", line)[0] for line in project["project"]["dependencies"]}
    brought = {re.split(r"[><=;\[]", line)[0] for name in extras for line in extras[name]}
    assert not default & brought
    # A name more takes a reason: Jinja2 writes the pages, each value escaped.
    assert default == {
        "click",
        "faiss-cpu",
        "jinja2",
        "numpy",
        "onnxruntime",
        "pillow",
        "rich",
        "scipy",
        "threadpoolctl",
    }


def test_every_extra_that_an_error_or_a_page_tells_to_install_is_there(
    repository: Path, project: dict[str, Any]
) -> None:
    extras = set(project["project"]["optional-dependencies"])
    told = set()
    for file in files(repository, "src/*.py", "docs/*.md", "README.md"):
        told |= {
            one.strip() for group in re.findall(r"manifind\[([\w, ]+)\]", file.read_text()) for one in group.split(",")
        }
    assert told
    assert told <= extras


def test_the_workflows_run_files_that_are_there(repository: Path, project: dict[str, Any]) -> None:
    words = project["tool"]["cibuildwheel"]["test-command"]
    named = re.findall(r"\{project\}/(\S+)", words)
    workflows = files(repository, ".github/workflows/*.yml")
    for workflow in workflows:
        assert yaml.safe_load(workflow.read_text())["jobs"]
        named += re.findall(r"(?:tools|scripts|tests|\.ci)/[\w./-]+", workflow.read_text())
    assert len(named) >= 3
    for name in named:
        assert (repository / name).exists(), name


def test_workflows_and_releases_are_made_by_files_that_nobody_can_exchange(repository: Path) -> None:
    for workflow in files(repository, ".github/workflows/*.yml"):
        text = workflow.read_text()
        for used in re.findall(r"uses: (.*)", text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used
        for run in re.findall(r"pipx run (\S+)", text):
            assert re.fullmatch(r"[\w-]+==[\d.]+", run), run
    locked = (repository / "scripts" / "release.txt").read_text()
    lines = [line for line in locked.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"\w+==[\d.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    releases = dict(re.findall(r"^(\w+)==([\d.]+)", locked, re.M))
    constrained = dict(re.findall(r"^(\w+)==([\d.]+)", (repository / "scripts/constraints.txt").read_text(), re.M))
    assert all(constrained.get(name, release) == release for name, release in releases.items())
    assert {"build", "nanobind", "scikit_build_core"} <= set(releases)


def test_what_judges_a_change_tests_the_kernels_of_the_gpu(repository: Path) -> None:
    run = (repository / ".ci" / "run").read_text()
    assert run.index("scripts/environment") < run.index("scripts/torch") < run.index("scripts/test")
    pinned = dict(re.findall(r"^(\w+)==([\d.]+)", (repository / "scripts" / "torch.txt").read_text(), re.M))
    for name, oldest in (("torch", cuda.TORCH), ("triton", cuda.TRITON)):
        assert tuple(map(int, pinned[name].split(".")[:2])) >= oldest
    constrained = (repository / "scripts" / "constraints.txt").read_text()
    assert not [name for name in pinned if re.search(rf"^{name}==", constrained, re.M)], "one release of each package"


def test_wheels_are_made_for_every_system_that_the_project_names(repository: Path) -> None:
    workflow = yaml.safe_load((repository / ".github/workflows/wheels.yml").read_text())
    compiled = workflow["jobs"]["compiled"]["strategy"]["matrix"]["system"]
    tried = workflow["jobs"]["try-portable"]["strategy"]["matrix"]["system"]
    assert {name.partition("-")[0] for name in compiled} == {"ubuntu", "macos"}
    assert any(name.endswith("-arm") for name in compiled)
    assert "windows" in {name.partition("-")[0] for name in tried}
    assert set(workflow["jobs"]["publish"]["needs"]) == set(workflow["jobs"]) - {"publish"}


def test_everything_that_was_not_written_here_is_listed_with_its_licence(repository: Path) -> None:
    listed = (repository / "licences" / "README.md").read_text()
    for file in files(repository, "src/*.onnx"):
        assert file.name in listed
    for target in re.findall(r"\]\(([^)]+)\)", listed):
        assert (repository / "licences" / target).exists(), target
    for library in ("nanobind", "robin-map"):
        assert "Copyright" in (repository / "licences" / f"{library}.txt").read_text()


def test_the_paper_is_what_is_to_be_cited(repository: Path) -> None:
    told = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(told)
    paper = told["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Iscen", "Tolias", "Avrithis", "Furon", "Chum"]
    assert paper["year"] == 2017


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_noticed() -> None:
    own = [name.removeprefix("src/") for name in contents.tracked() if not name.startswith(contents.SOURCES)]
    licences = [f"manifind-1.dist-info/licenses/{name}" for name in contents.LICENCES]
    assert contents.wrong_with_wheel([*own, *licences], core=False) == []
    assert contents.wrong_with_wheel([*own, *licences], core=True) == ["an extension is missing"]
    assert contents.wrong_with_wheel([*own[1:], *licences], core=False) == [f"{own[0]} is missing"]
    assert contents.wrong_with_wheel([*own, *licences, "tests/x.py"], core=False) == ["tests/x.py is there"]
    assert contents.wrong_with_wheel([*own, *licences[1:]], core=False) == ["LICENSE is missing"]


def test_the_container_serves_as_a_user_without_rights(repository: Path, project: dict[str, Any]) -> None:
    lines = (repository / "Containerfile").read_text().splitlines()
    said = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
    assert said["USER"].isdecimal()
    assert said["USER"] != "0"
    extra = re.search(r"manifind\[(\w+)\]", "\n".join(lines))
    assert extra is not None
    assert extra[1] in project["project"]["optional-dependencies"]
    words = [*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"])]
    parsed(Block("Containerfile", "sh", "parsed", " ".join(words), 0), words)
