# SPDX-License-Identifier: Apache-2.0
"""The site: every page of the project as HTML, by Sphinx, MyST and furo. `./run docs` builds it.

Sources are the pages as they stand, from the project's root, so that a link which works in a checkout
works here; README.md is the first page. What belongs together in the side bar is said below, and nowhere else.
"""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

project = "Rehearse"
copyright = "the Rehearse authors, Apache-2.0"  # noqa: A001: Sphinx's name
version = release = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Rehearse {release}"
html_copy_source = html_show_sourcelink = False
root_doc = "README"
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**.md", "scenarios/README.md", "scenarios/models/README.md"]
exclude_patterns = ["build", "tests", "bench", ".*"]
highlight_language = "none"
myst_heading_anchors = 4
nitpicky = True

SIDE_BAR = {
    "Start here": ["docs/course/README", "docs/course/[0-9]*", "docs/plan", "docs/cluster", "docs/support", "docs/import", "docs/emit", "docs/for-megatron-users",
                   "docs/glossary", "docs/install"],
    "Ask": ["docs/commands", "docs/report", "docs/scenario", "docs/models", "scenarios/README", "scenarios/models/README",
            "docs/schedules", "docs/search", "docs/buy", "docs/explain", "docs/slow_step", "docs/doctor", "docs/agents", "docs/library", "docs/python", "docs/page", "docs/viewer"],
    "Run": ["docs/run", "docs/checkpoints", "docs/processes", "docs/launch", "docs/cuda", "docs/security"],
    "How it predicts": ["docs/simulator", "docs/cost_models", "docs/network", "docs/memory", "docs/attention", "docs/experts",
                        "docs/offload", "docs/steady_state", "docs/lowering", "docs/ir", "docs/own_groups", "docs/scalars", "docs/executor", "docs/accuracy",
                        "docs/measurements/*"],
    "Extend": ["docs/add_*"],
    "The project": ["ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT", "THIRD_PARTY"],
}


def with_side_bar(_app, page, source):
    """README.md is a page for people; the tree of pages is added on the way."""
    if page != root_doc:
        return
    for caption, pages in SIDE_BAR.items():
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def setup(app):
    app.add_config_value("side_bar", SIDE_BAR, "env")  # where it changed, pages are read again
    app.connect("source-read", with_side_bar)
