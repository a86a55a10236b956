"""Links of a page to a file of the repository that is no page: the site has no such file, and shows its name."""

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx


def loosen(app: Sphinx, document: nodes.document) -> None:
    """Replace links that lead out of the folder of the pages by the path within the repository."""
    source = Path(app.srcdir)
    page = source / app.env.docname
    for kind in (pending_xref, download_reference):
        for link in list(document.findall(kind)):
            target = str(link.get("reftarget", ""))
            # MyST has taken the suffix off what it takes for a page.
            named = [(page.parent / f"{target}{suffix}").resolve() for suffix in ("", ".md")]
            file = next((one for one in named if one.is_file()), None)
            if file is not None and not file.is_relative_to(source):
                name = nodes.literal(text=str(file.relative_to(source.parent)))
                link.replace_self([*link.children[0].children, nodes.Text(" ("), name, nodes.Text(")")])


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every page once it is read."""
    app.connect("doctree-read", loosen)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
