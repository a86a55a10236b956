"""How Sphinx builds the pages of this folder: see scripts/docs.

Sphinx, with MyST for Markdown and the theme Furo, because the pages are plain Markdown that reads well without any
site, the API reference comes from docstrings, and nothing is loaded from elsewhere. MkDocs was the other candidate: its
last release is of 2024, and Material for MkDocs ended its maintenance in November 2026.
"""

import sys
from pathlib import Path

from manifind.version import VERSION

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "site"))

project = "manifind"
author = "the manifind developers"
release = version = VERSION
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "outside"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
autodoc_mock_imports = ["torch"]
suppress_warnings = ["ref.python"]  # words of a docstring that several classes have as attributes
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"manifind {VERSION}"
html_math_renderer = "mathml"
html_show_sourcelink = True
html_copy_source = True
html_show_copyright = False
html_last_updated_fmt = None
templates_path: list[str] = []
html_static_path: list[str] = []
pygments_style = "default"
