"""Hooks of mkdocs (`make site`): the README as first page, the examples, the reference of public names, no links out of the site.

The repository's pages link to code beside them, which a site has not: of such a link the text remains.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PUBLIC = ROOT / "constructs" / "cdk_sagemaker_training" / "__init__.pyi"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# The public names by the folder that they are in, in the order of the page.
SECTIONS = {
    "workflow": "Workflows",
    "features": "Features of a workflow",
    "orchestration": "Pipelines, sweeps, dashboards",
    "jobs": "Kinds of job, launchers, compilers",
    "data": "Data, capacity, observability",
    "resources": "Images, roles, networks, buckets",
    "": "All else",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from other files."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    files.append(File.generated(config, "reference.md", content=reference()))
    files.append(File.generated(config, "examples.md", content=examples()))
    for picture in EXAMPLES.glob("*/output.svg"):
        files.append(File.generated(config, f"example-{picture.parent.name}.svg", content=picture.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Have links lead to pages of the site."""
    source = page.file.src_path
    folder = ROOT if source == "index.md" else (DOCS / source).parent

    def link(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in path:
            return found[0]
        file = (folder / path).resolve()
        if not file.exists():
            return found[0]  # for mkdocs to warn of
        if file == EXAMPLES / "README.md":
            file = DOCS / "examples.md"
        elif not file.is_relative_to(DOCS) or not file.is_file() or file.suffix == ".py":
            return text
        to = os.path.relpath(file, (DOCS / source).parent)
        return f"{mark}[{text}]({to}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, markdown)


def examples() -> str:
    """The page of the example apps, in the order of their list: what each README says, its stack and its picture."""
    listed = (EXAMPLES / "README.md").read_text()
    parts = [re.sub(r"\]\((\S+?)\)", r"](#\1)", listed)]
    for name in re.findall(r"\]\((\S+?)\)", listed):
        title, _, text = (EXAMPLES / name / "README.md").read_text().removeprefix("# ").partition("\n")
        text, mark, picture = text.partition("![")
        app = (EXAMPLES / name / "app.py").read_text()
        parts += [f"## {title} {{#{name}}}", text, f"`app.py`:\n\n```python\n{app}```\n"]
        parts += [f"{mark}{picture}".replace("output.svg", f"example-{name}.svg")]
    return "\n".join(parts)


def public_names() -> dict[str, list[str]]:
    """Public names of the constructs with their modules, by section: the imports for type checkers in ``__init__``."""
    found = defaultdict(list)
    for node in ast.walk(ast.parse(PUBLIC.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cdk_sagemaker_training."):
            section = str(node.module).split(".")[1]
            names = [f"{node.module}.{name.name}" for name in node.names]
            found[section if section in SECTIONS else ""] += names
    return found


def reference() -> str:
    """The page of every public name, which mkdocstrings fills from the docstrings."""
    lines = ["# Constructs and values", "", "All are imported from `cdk_sagemaker_training`.", ""]
    names = public_names()
    for section, title in SECTIONS.items():
        lines += [f"## {title}", "", *(f"::: {name}\n" for name in names[section])]
    return "\n".join([*lines, "## The client", "", "::: training_jobs", ""])
