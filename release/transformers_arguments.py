"""Writes what transformers has, and its TrainingArguments and Trainer take, from its wheels: `facts/transformers.json`.

    python release/transformers_arguments.py [--wheels FOLDER]

The last release of each minor version, some 700 MB, is downloaded into FOLDER unless it is there.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import track

from training_jobs.lint.dataclass_options import field_type

FACTS = Path(__file__).parents[1] / "training_jobs" / "training_jobs" / "facts" / "transformers.json"
FIRST = (4, 4)  # that SageMaker's first containers of Hugging Face have
FILES = {
    "TrainingArguments": "transformers/training_args.py",
    "Seq2SeqTrainingArguments": "transformers/training_args_seq2seq.py",
    "Trainer": "transformers/trainer.py",
    "Seq2SeqTrainer": "transformers/trainer_seq2seq.py",
}
DATACLASSES = ("TrainingArguments", "Seq2SeqTrainingArguments")
BASES = {"Seq2SeqTrainingArguments": "TrainingArguments"}
# By the warnings of training_args.py and trainer.py of the versions that still took them.
RENAMED = {
    "adafactor": "optim='adafactor'",
    "evaluation_strategy": "eval_strategy",
    "fsdp_min_num_params": "in fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "in fsdp_config",
    "include_inputs_for_metrics": "include_for_metrics",
    "no_cuda": "use_cpu",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "tokenizer": "processing_class",
    "warmup_ratio": "warmup_steps, which may be a fraction",
}
Row = tuple[str, str, str]
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    args = parser.parse_args()
    args.wheels.mkdir(exist_ok=True)
    wheels = [download(version, args.wheels) for version in track(last_of_each_minor(), "wheels")]
    FACTS.write_text(rendered({minor_of(path): path for path in wheels}))


def last_of_each_minor() -> list[str]:
    command = [*_PIP, "index", "versions", "transformers"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for version in re.findall(r"\b\d+\.\d+\.\d+\b", text.split("Available versions:")[1]):
        numbers = tuple(map(int, version.split(".")))
        if numbers[:2] >= FIRST:
            found[numbers[:2]] = max(numbers, found.get(numbers[:2], numbers))
    return [".".join(map(str, found[minor])) for minor in sorted(found)]


def download(version: str, folder: Path) -> Path:
    pattern = f"transformers-{version}-*.whl"
    if not [*folder.glob(pattern)]:
        command = [*_PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
        subprocess.run([*command, "-d", str(folder), f"transformers=={version}"], check=True)
    return next(folder.glob(pattern))


def minor_of(wheel: Path) -> str:
    return ".".join(wheel.name.split("-")[1].split(".")[:2])


def arguments(wheel: zipfile.ZipFile, name: str) -> Iterator[Row]:
    """The arguments of a class: the fields of a dataclass, or the parameters of ``__init__`` and the old names that it takes."""
    tree = ast.parse(wheel.read(FILES[name]).decode())
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    for node in fields if name in DATACLASSES else ():
        text = ast.unparse(node.value) if node.value else ""
        if "init=False" not in text:
            given = {one.arg for one in node.value.keywords} if isinstance(node.value, ast.Call) else {"default"}
            required = not text or not given & {"default", "default_factory"}
            default = next((one for one in ("True", "None") if text == one or f"default={one}" in text), "")
            yield ast.unparse(node.target), field_type(node.annotation), "required" if required else default
    if name not in DATACLASSES:
        init = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        for node in init:
            yield from ((one.arg, "", "") for one in [*node.args.args[1:], *node.args.kwonlyargs])
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            yield from ((old, "", "") for old in re.findall(r"deprecate_kwarg\('(\w+)'", decorators))
        if not init:
            yield from arguments(wheel, ast.unparse(found.bases[0]))


def rendered(wheels: dict[str, Path]) -> str:
    found: dict[str, dict[Row, list[str]]] = {name: {} for name in FILES}
    names: dict[str, set[str]] = {}
    hyphens = []
    for minor, path in wheels.items():
        with zipfile.ZipFile(path) as wheel:
            for name in FILES:
                for row in arguments(wheel, name):
                    found[name].setdefault(row, []).append(minor)
            names[minor] = exported(wheel)
            hyphens += [minor] if b"replace('_', '-')" in wheel.read("transformers/hf_argparser.py") else []
    classes = {name: [*runs(rows, [*wheels])] for name, rows in found.items()}
    facts = {
        "source": "the wheels of transformers on PyPI, the last release of each minor version",
        "versions": [*wheels],
        "hyphens_from": hyphens[0],
        "bases": BASES,
        "renamed": RENAMED,
        "columns": ["argument", "type", "default", "first version", "last version"],
    }
    gone = ",\n".join(f'  "{last}": "{" ".join(sorted(found))}"' for last, found in last_versions(names).items())
    head = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in facts.items())
    tables = ",\n".join(
        f'  "{name}": [\n' + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]"
        for name, rows in classes.items()
    )
    return f'{{\n{head},\n "classes": {{\n{tables}\n }},\n "last_versions": {{\n{gone}\n }}\n}}\n'


def exported(wheel: zipfile.ZipFile) -> set[str]:
    """The names that may be imported from transformers: of its `__init__.py`, and of its modules' `__all__`."""
    tree = ast.parse(wheel.read("transformers/__init__.py").decode())
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    for file in wheel.namelist():
        if file.endswith(".py") and b"__all__" in (source := wheel.read(file)):
            for names in re.findall(r"__all__\s*\+?=\s*\[(.*?)\]", source.decode(), re.DOTALL):
                found |= {*re.findall(r"[\"'](\w+)[\"']", names)}
    # Tokenizers and the fast image processors have aliases in version 5, which no list names.
    kept = re.compile(r"(?:[A-Z]\w+|(?:is|create|get|top)_\w+)(?<!Fast)(?<!Tokenizer)")
    return {name for name in found if kept.fullmatch(name)}


def last_versions(names: dict[str, set[str]]) -> dict[str, set[str]]:
    """The names that the newest version lacks, by the last one that has them, of those that no version between lacks."""
    versions = [*names]
    found: dict[str, set[str]] = {}
    for name in set().union(*names.values()) - names[versions[-1]]:
        has = [number for number, version in enumerate(versions) if name in names[version]]
        if has == [*range(has[0], has[-1] + 1)]:
            found.setdefault(versions[has[-1]], set()).add(name)
    return {version: found[version] for version in versions if version in found}


def runs(rows: dict[Row, list[str]], versions: list[str]) -> Iterator[list[Any]]:
    """One row for each uninterrupted run of versions."""
    for row, has in sorted(rows.items()):
        first = last = versions.index(has[0])
        for number in [*map(versions.index, has[1:]), -1]:
            if number == last + 1:
                last = number
                continue
            yield [*row, versions[first], versions[last]]
            first = last = number


if __name__ == "__main__":
    main()
