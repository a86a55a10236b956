"""Every block of code in README and the documentation runs, or is checked in another real way."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import ELSEWHERE, REPOSITORY, SHOWN, Block, Notebook, blocks_of
from tests.docs.conftest import inside
from tests.docs.serving import service

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
GONE_THROUGH = [page for page in PAGES if blocks_of(page) and page.name not in ("tutorial-photos.md", "serve.md")]


@pytest.mark.parametrize("page", GONE_THROUGH, ids=lambda page: page.name)
def test_the_blocks_of_a_page_work(page: Path, copied: Callable[[], Path]) -> None:
    notebook = Notebook()
    with inside(copied()):
        for block in blocks_of(page):
            notebook.take(block)


def test_the_tutorial_on_photos_finds_what_it_shows(tutorial: tuple[Path, Notebook], repository: Path) -> None:
    folder, notebook = tutorial
    blocks = blocks_of(repository / "docs" / "tutorial-photos.md")
    place = next(i for i, block in enumerate(blocks) if block.language == "text")
    shown = re.findall(r"^ +\d+ .*?(\S+\.jpg)", blocks[place].content, re.MULTILINE)
    printed = notebook.printed[blocks[place - 1].content.strip()]
    above = printed.split("──")[0]
    assert re.findall(r"^ +\d+ .*?(\S+\.jpg)", above, re.MULTILINE) == shown
    assert "found.html" in {file.name for file in folder.iterdir()}
    assert "torn.jpg" in notebook.printed["manifind info photos.manifind"]


def test_the_page_about_the_service_works_with_a_service(copied: Callable[[], Path], repository: Path) -> None:
    notebook = Notebook()
    with inside(copied()), service(["manifind", "serve", "photos.manifind"]) as address:
        for block in blocks_of(repository / "docs" / "serve.md"):
            if block.how != "serve":
                content = block.content.replace("http://127.0.0.1:8765", address)
                notebook.take(Block(block.page, block.language, block.how, content, block.line))
    assert notebook.names["result"].n_matches > 0


def test_no_code_hides_outside_a_fence() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not re.findall(r"^    (?:manifind|pip|python|from manifind|import) .*$", text, re.MULTILINE), page


def test_what_is_taken_by_other_tests_is_only_what_they_take() -> None:
    left = {
        (page.name, block.how)
        for page in PAGES
        for block in blocks_of(page)
        if block.how in ELSEWHERE or "." in block.how
    }
    assert {page for page, how in left if how == "cluster"} <= {"cluster.md"}
    assert {page for page, how in left if how == "shell"} <= {"commands.md"}
    assert {page for page, how in left if "." in how} <= {"evaluate.md"}
    shown = {block.language for page in PAGES for block in blocks_of(page)} - {"sh", "python", "ini"}
    assert shown <= set(SHOWN)


@pytest.mark.parametrize(
    "content",
    [
        "```sh parsed\nmanifind index photos/ --nonsense\n```\n",
        "```sh parsed\nmanifind nonsense\n```\n",
        "```sh install\npip install 'manifind[nonsense]'\n```\n",
        "```sh parsed\npython benchmarks/speed.py --nonsense\n```\n",
        "```python parsed\nfrom manifind import Nonsense\n```\n",
        "```python\nraise ValueError\n```\n",
        "```sh\nmanifind info nothing.manifind\n```\n",
        "```bash\nls\n```\n",
        "```ini\n[Service]\nExecStart=/opt/manifind serve photos.manifind --nonsense\n```\n",
    ],
)
def test_a_block_that_does_not_work_is_noticed(content: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(content)
    (block,) = blocks_of(page)
    with inside(tmp_path), pytest.raises((AssertionError, ValueError, Exception)):
        Notebook().take(block)
