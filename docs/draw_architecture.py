"""The picture and the tables of docs/architecture.md, and the sizes in CONTRIBUTING.md, from the code's own imports.

    python docs/draw_architecture.py

The layers are those of import-linter's contracts in pyproject.toml; the arrows are the imports that grimp finds between folders,
less those that follow from others.
"""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "cdk_sagemaker_training": ROOT / "constructs" / "cdk_sagemaker_training",
    "training_jobs": ROOT / "training_jobs" / "training_jobs",
    "sagemaker_local_account": ROOT / "local_account" / "sagemaker_local_account",
}
AWS = "sagemaker_local_account.aws"  # whose folders have a table of their own
INK, FILL, LINE = "#333333", "#e8eef5", "#8aa0b8"
WIDTH, HEIGHT, GAP, ROW = 148, 40, 14, 74  # pixels of a box, between boxes, and from layer to layer

Edges = dict[str, set[str]]


def main() -> None:
    pictures = [picture(package, layers(package), imports(package)) for package in SOURCES]
    (ROOT / "docs" / "architecture.svg").write_text(beside(pictures))
    for package in (*SOURCES, AWS):
        replace(ROOT / "docs" / "architecture.md", package, folders(package))
    replace(ROOT / "CONTRIBUTING.md", "sizes", sizes())


def layers(package: str) -> list[list[str]]:
    """The folders and modules of each layer, from the top, as the contract of a package has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one.get("containers") == [package])
    return [[name.strip() for name in re.split("[|:]", layer)] for layer in contract["layers"]]


def imports(package: str) -> Edges:
    """Which folders and modules of a package import which others of them."""
    graph, depth = grimp.build_graph(package.partition(".")[0]), package.count(".") + 1
    found: Edges = {name: set() for layer in layers(package) for name in layer}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            ends = [".".join(name.split(".")[depth:][:1]) for name in (module, imported) if name.startswith(package)]
            if len(ends) == 2 and ends[0] != ends[1] and all(end in found for end in ends):
                found[ends[0]].add(ends[1])
    return found


def reduced(edges: Edges) -> Edges:
    """The imports without those that are implied by others."""

    def reached(name: str, by: tuple[str, ...] = ()) -> set[str]:
        if name in by:
            raise ValueError(f"imports must have no circle, got {' -> '.join((*by, name))}")
        return {far for near in edges[name] for far in {near} | reached(near, (*by, name))}

    return {name: {to for to in ends if not any(to in reached(via) for via in ends)} for name, ends in edges.items()}


def picture(package: str, rows: list[list[str]], edges: Edges) -> tuple[int, int, str]:
    """Width, height and elements of one package, a row for each layer; without arrows to the lowest, which all import."""
    width = max(len(row) for row in rows) * (WIDTH + GAP) + GAP
    at = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (WIDTH + GAP) + GAP) / 2
        for place, name in enumerate(row):
            at[name] = (left + place * (WIDTH + GAP), 50 + level * ROW)
    parts = [text(width / 2, 26, package, bold=True)]
    for name, ends in reduced(edges).items():
        for to in sorted(ends - {*rows[-1]}, key=lambda end: at[end]):
            # Arrows connect the nearest points of both boxes, so that few pass behind a third one.
            lean = max(-1, min(1, (at[to][0] - at[name][0]) / WIDTH)) * WIDTH / 3
            x, y = at[name][0] + WIDTH / 2 + lean, at[name][1] + HEIGHT
            x_to, y_to = at[to][0] + WIDTH / 2 - lean, at[to][1]
            parts.append(
                f'<path d="M{x:g} {y:g} C{x:g} {y + 30:g} {x_to:g} {y_to - 30:g} {x_to:g} {y_to - 2:g}" fill="none" '
                f'stroke="{LINE}" marker-end="url(#tip)"/>'
            )
    for name, (x, y) in at.items():
        folder = (SOURCES[package] / name).is_dir()
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="{5 if folder else 18}" '
            f'fill="{FILL if folder else "white"}" stroke="{LINE}"/>'
        )
        parts.append(text(x + WIDTH / 2, y + 25, f"{name}/" if folder else f"{name}.py"))
    left, right = at[rows[-1][0]][0], at[rows[-1][-1]][0] + WIDTH
    parts.append(text((left + right) / 2, 50 + len(rows) * ROW - 14, "imported by those above"))
    return width, 50 + len(rows) * ROW, "\n".join(parts)


def beside(pictures: list[tuple[int, int, str]]) -> str:
    parts, left = [], 0
    for width, _, elements in pictures:
        parts.append(f'<g transform="translate({left} 0)">\n{elements}\n</g>')
        left += width + 30
    height = max(height for _, height, _ in pictures)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left} {height}" font-family="sans-serif" font-size="14">\n'
        f'<defs><marker id="tip" orient="auto" markerWidth="8" markerHeight="8" refX="7" refY="3">'
        f'<path d="M0 0 L8 3 L0 6 z" fill="{LINE}"/></marker></defs>\n'
        f'<rect width="{left}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{INK}"{weight}>{words}</text>'


def folders(package: str) -> str:
    """A table of a package's folders, from the top: what each holds, by its own docstring, and what it imports."""
    rows, edges = [], imports(package)
    for layer in layers(package):
        for name in layer:
            root, _, inside = package.partition(".")
            path = SOURCES[root] / inside / name
            source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            summary = (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n\n")[0].replace("\n", " ")
            used = ", ".join(f"`{one}`" for row in layers(package) for one in row if one in edges[name])
            rows.append(f"| `{name}{'/' if path.is_dir() else '.py'}` | {summary} | {used or 'nothing'} |")
    return "\n".join(["| folder | what it holds | what it imports |", "|---|---|---|", *rows])


def sizes() -> str:
    """A table of how long the files of each package are."""
    rows = []
    for package, root in {**SOURCES, "training_code": ROOT / "training_code"}.items():
        lengths = {path: len(path.read_text().splitlines()) for path in root.rglob("*.py")}
        lengths = {path: length for path, length in lengths.items() if path.name != "__init__.py"}
        largest = max(lengths, key=lengths.__getitem__)
        rows.append(
            f"| `{package}` | {len(lengths)} | {statistics.median(lengths.values()):g} | {lengths[largest]}, "
            f"`{largest.relative_to(root)}` |"
        )
    return "\n".join(["| package | files | median | largest |", "|---|---|---|---|", *rows])


def replace(page: Path, mark: str, content: str) -> None:
    """Put ``content`` between a page's comments ``<!-- mark -->`` and ``<!-- end of mark -->``."""
    before, start, rest = page.read_text().partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"\n<!-- end of {mark} -->")
    if not end:
        raise SystemExit(f"{page.name} has no comments <!-- {mark} --> and <!-- end of {mark} -->")
    page.write_text(before + start + content + end + after)


if __name__ == "__main__":
    main()
