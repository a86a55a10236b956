"""The documentation's pictures of the page come from a script, which the page of today still suits."""

import re
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser
from tools.page_pictures import pictures, take_pictures

from tests.serve.asking import BOX


def test_the_pictures_of_the_page_can_be_taken(
    browser: Browser, address: str, tmp_path: Path, repository: Path
) -> None:
    take_pictures(browser, address, "first-0.png", BOX, tmp_path)
    in_docs = pictures(repository / "docs")
    for name, taken in pictures(tmp_path).items():
        with Image.open(taken) as new, Image.open(in_docs[name]) as old:
            assert new.size == old.size, name
            assert len(np.unique(np.asarray(new.resize((64, 64))).reshape(-1, 3), axis=0)) > 50, f"{name} shows nothing"
    text = (repository / "docs" / "serve.md").read_text()
    assert sorted(re.findall(r"serve-\w+\.jpg", text)) == sorted(file.name for file in in_docs.values())
