"""How Sphinx builds the site from the Markdown pages. scripts/build-docs runs it; the source folder is a copy of the pages in
the layout of the repository, so that the same relative links work in both."""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent  # the copy: README.md, docs/, bench/README.md, ...

# The contents, in reading order. A page that is not named here is added to the last group.
CONTENTS = {
    "Use": ["docs/start", "docs/choosing", "docs/planning", "docs/recipes", "docs/pytorch", "docs/sharded", "docs/local-steps", "docs/gpu", "docs/program",
            "docs/clusters", "docs/c"],
    "Recipes": ["docs/recipes/adacomp", "docs/recipes/lgc", "docs/recipes/bingrad-orq", "docs/recipes/co3",
                "docs/recipes/random-block", "docs/recipes/blocks", "docs/recipes/baselines"],
    "Evidence": ["docs/results", "bench/README", "experiments/README", "docs/provenance"],
    "Inside": ["docs/architecture", "docs/steps", "docs/format", "docs/adding-a-part", "fuzz/README", "tests/golden/README",
               "tests/golden-errors/README", "CONTRIBUTING", "CHANGELOG"],
}

project = "Tersegrad"
release = ".".join(re.findall(r"#define TG_VERSION_(?:MAJOR|MINOR|PATCH) ([0-9]+)",
                              (SOURCE / "include/tersegrad/tersegrad.h").read_text()))
copyright = "the Tersegrad authors, MIT licence"

extensions = ["myst_parser"]
root_doc = "README"
highlight_language = "none"  # blocks without a language are no program
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # as deep as links go
suppress_warnings = ["myst.header"]  # a page may begin a list of studies below its first heading

html_theme = "furo"  # system fonts, and no script from elsewhere: the site works without a network
html_title = f"Tersegrad {release}"
html_copy_source = False
html_show_sourcelink = False
html_css_files = ["site.css"]
html_static_path = ["site"]
html_theme_options = {"navigation_with_keys": True}


def table_of_contents():
    """The contents as toctrees, which README.md, the root, gets at its end."""
    there = {str(path.relative_to(SOURCE).with_suffix("")) for path in SOURCE.rglob("*.md")}
    named = {page for pages in CONTENTS.values() for page in pages}
    for group, pages in CONTENTS.items():
        listed = [page for page in pages if page in there]
        if group == "Inside":
            listed += sorted(there - named - {root_doc})
        yield "\n".join(["", "```{toctree}", ":hidden:", f":caption: {group}", "", *listed, "```", ""])


def add_contents(app, name, source):
    if name == root_doc:
        source[0] += "".join(table_of_contents())


def setup(app):
    app.connect("source-read", add_contents)
