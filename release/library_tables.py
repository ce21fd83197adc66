"""Writes what libraries of Hugging Face have, and some of their classes take, by version: `training_jobs/facts/LIBRARY.json`.

    python release/library_tables.py [--wheels FOLDER] [LIBRARY ...]

The last release of each minor version is downloaded into FOLDER unless it is there: some 700 MB of transformers, 60 MB of others.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from training_jobs.lint.dataclass_options import field_type

FACTS = Path(__file__).parents[1] / "training_jobs" / "training_jobs" / "facts"
Row = tuple[str, ...]
# What TrlParser says of keys of its file that are no options, where it does not ignore them.
_REFUSES_KEYS = re.compile(r"Unknown arguments from config file|config arguments are not used by the TrlParser")
# What ``__post_init__`` of TrainingArguments says where it ends, by the names that `lint/trainer_values.py` has for it.
_CHECKS = {
    "best-model": "requires the save and eval strategy to match",
    "bf16-on-cpu": "doesn't support bf16/gpu\\.(?:\"| You need to assign use_cpu)",  # before, only where there is a GPU
    "half-precision": "At most one of fp16 and bf16 can be True",
    "plateau": "lr_scheduler_type reduce_lr_on_plateau requires an eval strategy",
    "tf32": "--tf32 requires Ampere",
}
# Methods of Trainer that training calls for few: hyperparameter search, the hub, and what is older.
_SELDOM = {
    *("_hp_search_setup", "_report_to_hp_search", "_tune_save_checkpoint", "push_to_hub", "init_git_repo"),
    *("torch_jit_model_eval", "prediction_loop", "_load_best_model"),
}
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


class Library(NamedTuple):
    """What is read of a library.

    Attributes:
        first: Its first version that one of SageMaker's containers has.
        classes: The classes.
        renamed: What some arguments are now, by the warnings of the versions that still took them.
    """

    first: tuple[int, int]
    classes: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}


LIBRARIES = {
    "transformers": Library(
        (4, 4),
        ("TrainingArguments", "Seq2SeqTrainingArguments", "Trainer", "Seq2SeqTrainer"),
        {
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
        },
    ),
    "trl": Library(
        (0, 7),
        (
            *("SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "RewardConfig", "RLOOConfig"),
            *("SFTTrainer", "DPOTrainer", "GRPOTrainer", "KTOTrainer", "RewardTrainer", "RLOOTrainer"),
            *("ModelConfig", "ScriptArguments"),
        ),
        {
            "max_seq_length": "max_length of SFTConfig",
            "dataset_text_field": "of SFTConfig",
            "packing": "of SFTConfig",
            "tokenizer": "processing_class",
            "torch_dtype": "dtype",
        },
    ),
    "peft": Library((0, 7), ("LoraConfig",)),
    "accelerate": Library((0, 19), ("Accelerator",)),
    "datasets": Library((1, 6)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", default=[*LIBRARIES], metavar="LIBRARY")
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    args = parser.parse_args()
    for name in args.libraries:
        folder = args.wheels / name
        folder.mkdir(exist_ok=True, parents=True)
        versions = last_of_each_minor(name, LIBRARIES[name].first)
        wheels = [download(name, version, folder) for version in track(versions, name)]
        (FACTS / f"{name}.json").write_text(rendered(name, {minor_of(path): path for path in wheels}))


def last_of_each_minor(library: str, first: tuple[int, int]) -> list[str]:
    command = [*_PIP, "index", "versions", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for version in re.findall(r"\b\d+\.\d+\.\d+\b", text.split("Available versions:")[1].splitlines()[0]):
        numbers = tuple(map(int, version.split(".")))
        if numbers[:2] >= first:
            found[numbers[:2]] = max(numbers, found.get(numbers[:2], numbers))
    return [".".join(map(str, found[minor])) for minor in sorted(found)]


def download(library: str, version: str, folder: Path) -> Path:
    pattern = f"{library}-{version}-*.whl"
    if not [*folder.glob(pattern)]:
        command = [*_PIP, "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
        subprocess.run([*command, "-d", str(folder), f"{library}=={version}"], check=True)
    return next(folder.glob(pattern))


def minor_of(wheel: Path) -> str:
    return ".".join(wheel.name.split("-")[1].split(".")[:2])


class Wheel:
    """The classes and names of a wheel."""

    def __init__(self, library: str, path: Path) -> None:
        self.library = library
        with zipfile.ZipFile(path) as archive:
            files = [name for name in archive.namelist() if name.startswith(f"{library}/") and name.endswith(".py")]
            self.sources = {name: archive.read(name).decode() for name in files}

    def definition(self, name: str) -> ast.ClassDef | None:
        """The class of a name: the library's own, and not what a part for experiments makes of it."""
        for file, source in self.sources.items():
            if re.search(rf"^class {name}\b", source, re.MULTILINE) and "experimental" not in file.split("/"):
                return next(
                    node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name
                )
        return None

    def base(self, definition: ast.ClassDef) -> ast.ClassDef | None:
        """The class of this library that a class is of."""
        found = (self.definition(ast.unparse(base)) for base in definition.bases)
        return next((one for one in found if one is not None), None)

    def listed_base(self, definition: ast.ClassDef) -> str:
        """The dataclass with a table of its own that a class is of, of this library or of transformers, or ``""``."""
        base = self.base(definition)
        if base is None:
            return "transformers.TrainingArguments" if "TrainingArguments" in map(ast.unparse, definition.bases) else ""
        return base.name if _is_listed(self.library, base) else self.listed_base(base)

    def arguments(self, definition: ast.ClassDef) -> dict[str, Row]:
        """The arguments of a class: the fields of a dataclass, or the parameters of ``__init__`` and the old names that it takes.

        Without those of a listed base; none of one that takes any.
        """
        base = self.base(definition)
        if _is_dataclass(definition):
            inherited = {} if base is None or _is_listed(self.library, base) else self.arguments(base)
            return {**inherited, **{row[0]: row for row in _fields(definition)}}
        init = [node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        if not init:
            return {} if base is None else self.arguments(base)
        found = [one.arg for node in init for one in [*node.args.args[1:], *node.args.kwonlyargs]]
        decorators = " ".join(ast.unparse(one) for node in init for one in node.decorator_list)
        found += re.findall(r"deprecate_kwarg\('(\w+)'", decorators)
        return {} if any(node.args.kwarg for node in init) else {name: (name, "", "") for name in found}

    def calls(self) -> Iterator[tuple[str, Row]]:
        """How transformers calls the methods of a Trainer while it trains, and those of its callbacks: each with a row.

        A row has the method, what calls it, the number of arguments without names, and the names of the others.
        """
        trainer, handler = self.definition("Trainer"), self.definition("CallbackHandler")
        if trainer is None or handler is None:
            return
        methods = {node.name: node for node in trainer.body if isinstance(node, ast.FunctionDef)}
        for caller in _reached(methods, "train") - _SELDOM:
            for node in _calls(methods[caller]):
                if (method := _own(node.func)) in methods and method != caller:
                    yield "Trainer", (method, caller, *_given(node))
                elif ast.unparse(node.func) == "sampler_fn":
                    yield "Trainer", ("_get_train_sampler", caller, *_given(node))
        events = {node.name: node for node in handler.body if isinstance(node, ast.FunctionDef)}
        [shared] = [
            node for node in _calls(events["call_event"]) if ast.unparse(node.func) == "getattr(callback, event)"
        ]
        positional, names = _given(shared)
        for event, method in events.items():
            for node in _calls(method) if event.startswith("on_") else ():
                if _own(node.func) == "call_event":
                    all_names = [*names.removesuffix(" *").split(), *_given(node)[1].split()]
                    yield "TrainerCallback", (event, "call_event", positional, " ".join(all_names))

    def values(self, definition: ast.ClassDef) -> Iterator[Row]:
        """What arguments may be that a class makes an Enum of, like ``self.optim = OptimizerNames(self.optim)``."""
        for argument, name in re.findall(r"self\.(\w+) = (\w+)\(self\.\1\)", ast.unparse(definition)):
            enum = self.definition(name)
            for node in enum.body if enum else ():
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    yield argument, str(node.value.value)

    def starred(self, file: str) -> set[str]:
        """The names that a module has from others by ``from .other import *``."""
        found: set[str] = set()
        for node in ast.parse(self.sources[file]).body:
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.names[0].name == "*":
                path = f"{file.rpartition('/')[0]}/{(node.module or '').replace('.', '/')}"
                other = next(one for one in (f"{path}.py", f"{path}/__init__.py") if one in self.sources)
                found |= self.starred(other)
                for one in ast.parse(self.sources[other]).body:
                    if isinstance(one, ast.ImportFrom):
                        found |= {alias.asname or alias.name for alias in one.names}
                    elif isinstance(one, ast.ClassDef | ast.FunctionDef):
                        found.add(one.name)
                    elif isinstance(one, ast.Assign):
                        found |= {ast.unparse(target) for target in one.targets}
        return found

    def exported(self) -> set[str]:
        """The names that may be imported from the library: of its `__init__.py`, and of transformers' modules' `__all__`."""
        tree = ast.parse(self.sources[f"{self.library}/__init__.py"])
        found = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        found |= {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.level or f"{node.module}.".startswith(f"{self.library}."))
            for alias in node.names
        }
        found |= self.starred(f"{self.library}/__init__.py")
        # By which transformers 5 finds what it exports (`define_import_structure`).
        for source in self.sources.values() if self.library == "transformers" else ():
            for names in re.findall(r"__all__\s*\+?=\s*\[(.*?)\]", source, re.DOTALL):
                found |= {*re.findall(r"[\"'](\w+)[\"']", names)}
        # Tokenizers and the fast image processors of transformers have aliases in version 5, which no list names.
        own = r"(?:is|create|get|top)_\w+" if self.library == "transformers" else r"[a-z]\w*_\w+"
        kept = re.compile(rf"(?:[A-Z]\w+|{own})(?<!Fast)(?<!Tokenizer)")
        modules = {name.split("/")[1].removesuffix(".py") for name in self.sources}
        return {name for name in found - modules if kept.fullmatch(name)}


def _reached(methods: Mapping[str, ast.FunctionDef], first: str) -> set[str]:
    """The methods of a class that one of them may call, and those that these may."""
    found, left = {first}, [first]
    while left:
        for node in ast.walk(methods[left.pop()]):
            if (name := _own(node)) in methods and name not in found:
                found.add(name)
                left.append(name)
    return found


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _own(node: ast.AST) -> str:
    """The name of a method of ``self``, or ``""``."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _given(call: ast.Call) -> tuple[str, str]:
    """How many arguments without names a call has, and the names of its others; ``*`` for any number of either."""
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    names = [one.arg or "*" for one in call.keywords]
    return "*" if starred else str(len(call.args)), " ".join(names)


def _is_dataclass(definition: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(one) for one in definition.decorator_list)


def _is_listed(library: str, definition: ast.ClassDef) -> bool:
    return _is_dataclass(definition) and definition.name in LIBRARIES[library].classes


def _fields(definition: ast.ClassDef) -> Iterator[Row]:
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ast.unparse(node.value) if node.value else ""
            if "init=False" not in text:
                given = {one.arg for one in node.value.keywords} if isinstance(node.value, ast.Call) else {"default"}
                required = not text or not given & {"default", "default_factory"}
                default = next((one for one in ("True", "None") if text == one or f"default={one}" in text), "")
                yield ast.unparse(node.target), field_type(node.annotation), "required" if required else default


def rendered(library: str, paths: Mapping[str, Path]) -> str:
    of_classes: dict[str, dict[Row, list[str]]] = {name: {} for name in LIBRARIES[library].classes}
    values: dict[str, dict[Row, list[str]]] = {}
    checks: dict[str, list[str]] = {}
    bases: dict[str, str] = {}
    calls: dict[str, dict[Row, list[str]]] = {}
    names: dict[str, set[str]] = {}
    hyphens, refuses = list[str](), list[str]()
    for minor, path in track(paths.items(), f"{library}, read"):
        wheel = Wheel(library, path)
        for name, rows in of_classes.items():
            definition = wheel.definition(name)
            if definition is None:
                continue
            for row in wheel.arguments(definition).values():
                rows.setdefault(row, []).append(minor)
            for row in dict.fromkeys(wheel.values(definition)):
                values.setdefault(name, {}).setdefault(row, []).append(minor)
            if base := wheel.listed_base(definition):
                bases[name] = base
        for name, row in dict.fromkeys(wheel.calls()) if library == "transformers" else ():
            calls.setdefault(name, {}).setdefault(row, []).append(minor)
        names[minor] = wheel.exported()
        for check, text in _CHECKS.items():
            if re.search(text, wheel.sources.get("transformers/training_args.py", "")):
                checks.setdefault(check, []).append(minor)
        hyphens += [minor] if "replace('_', '-')" in wheel.sources.get("transformers/hf_argparser.py", "") else []
        refuses += [minor] if any(map(_REFUSES_KEYS.search, wheel.sources.values())) else []
    facts = {
        "source": f"the wheels of {library} on PyPI, the last release of each minor version",
        "versions": [*paths],
        **({"hyphens_from": hyphens[0]} if hyphens else {}),
        **({"refuses_keys": refuses} if refuses else {}),
        **({"checks": {check: [has[0], has[-1]] for check, has in sorted(checks.items())}} if checks else {}),
        "bases": bases,
        "renamed": LIBRARIES[library].renamed,
        "columns": ["argument", "type", "default", "first version", "last version"],
    }
    head = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in facts.items())
    tables = _tables(of_classes, [*paths])
    # Of a row the argument, the value, and the versions; or the method, what calls it, with what, and the versions.
    of_values, of_calls = _tables(values, [*paths]), _tables(calls, [*paths])
    firsts, lasts = (
        ",\n".join(f'  "{version}": "{" ".join(sorted(found))}"' for version, found in by_version.items())
        for by_version in ends(names)
    )
    head += f',\n "classes": {tables}' + (f',\n "values": {of_values}' if values else "")
    head += f',\n "calls": {of_calls}' if calls else ""
    return f'{{\n{head},\n "first_versions": {{\n{firsts}\n }},\n "last_versions": {{\n{lasts}\n }}\n}}\n'


def _tables(of_classes: Mapping[str, Mapping[Row, list[str]]], versions: list[str]) -> str:
    """The rows of each class, a line each."""
    tables = ",\n".join(
        f'  "{name}": [\n' + ",\n".join(f"   {json.dumps(row)}" for row in runs(rows, versions)) + "\n  ]"
        for name, rows in of_classes.items()
    )
    return f"{{\n{tables}\n }}" if tables else "{}"


def ends(names: Mapping[str, set[str]]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The names that the oldest version lacks, by the first one that has them, and those that the newest lacks, by the last one.

    Names that a version between lacks are left out.
    """
    versions = [*names]
    firsts: dict[str, set[str]] = {version: set() for version in versions}
    lasts: dict[str, set[str]] = {version: set() for version in versions}
    for name in set().union(*names.values()):
        has = [number for number, version in enumerate(versions) if name in names[version]]
        if has == [*range(has[0], has[-1] + 1)]:
            firsts[versions[has[0]]].add(name)
            lasts[versions[has[-1]]].add(name)
    del firsts[versions[0]], lasts[versions[-1]]
    return {version: one for version, one in firsts.items() if one}, {v: one for v, one in lasts.items() if one}


def runs(rows: Mapping[Row, list[str]], versions: list[str]) -> Iterator[list[Any]]:
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
