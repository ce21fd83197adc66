"""Writes the options that launchers take, by version, as their own argparse declares them: `training_jobs/facts/launchers.json`.

    python release/launcher_table.py INDEX

INDEX is the address of a package index that answers in JSON (PEP 691) and serves parts of files: of torch's wheels one file of
40 KB is read each.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import requests
from package_table import files_of
from packaging.version import Version
from remotezip import RemoteZip  # type: ignore[import-untyped]
from rich.progress import track

FACTS = Path(__file__).parents[1] / "training_jobs" / "training_jobs" / "facts" / "launchers.json"
_WITHOUT_VALUE = ("store_true", "store_false", "count", "help", "check_env", "_CustomHelpAction")
_TYPES = ("int", "float")
# Parts of a file of DeepSpeed by the file and the class that read them.
_PARTS = {
    "zero_optimization": (1, "DeepSpeedZeroConfig"),
    "offload_param": (2, "DeepSpeedZeroOffloadParamConfig"),
    "offload_optimizer": (2, "DeepSpeedZeroOffloadOptimizerConfig"),
}
Row = tuple[str, str, str, tuple[str, ...]]


class Source(NamedTuple):
    """Where a launcher's options are.

    Attributes:
        package: Its package.
        first: The first version that one of SageMaker's containers has.
        files: The file that declares the options, and what else is read.
        function: The function that declares them.
    """

    package: str
    first: str
    files: tuple[str, ...]
    function: str


SOURCES = {
    "torchrun": Source("torch", "1.10", ("torch/distributed/run.py",), "get_args_parser"),
    "accelerate launch": Source(
        "accelerate",
        "0.19",
        ("accelerate/commands/launch.py", "accelerate/commands/config/config_args.py", "accelerate/commands/utils.py"),
        "launch_command_parser",
    ),
    "deepspeed": Source(
        "deepspeed",
        "0.9",
        (
            "deepspeed/launcher/runner.py",
            "deepspeed/runtime/zero/config.py",
            "deepspeed/runtime/zero/offload_config.py",
        ),
        "parse_args",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", metavar="INDEX")
    args = parser.parse_args()
    session = requests.Session()
    tables = {name: table_of(source, args.index, session) for name, source in SOURCES.items()}
    FACTS.write_text(rendered(tables))


def table_of(source: Source, index: str, session: requests.Session) -> dict[str, Any]:
    last: dict[tuple[int, ...], tuple[Version, bool, str]] = {}
    for version, file in files_of(source.package, index, session):
        if version < Version(source.first) or file.get("yanked"):
            continue
        found = (version, file["filename"].endswith(("x86_64.whl", "-none-any.whl")), file["url"])
        if file["filename"].endswith(".tar.gz") or found[1]:
            last[version.release[:2]] = max(found, last.get(version.release[:2], found))
    minors = sorted(last)
    versions = [f"{minor[0]}.{minor[1]}" for minor in minors]
    texts = [sources(last[minor][2], source.files, session) for minor in track(minors, source.package)]
    table: dict[str, Any] = {
        "versions": versions,
        "options": spans([[*options_in(text[0], source.function)] for text in texts], versions),
    }
    if source.package == "accelerate":
        keys = [[(name,) for name, _ in fields_of(text[1], ("BaseConfig", "ClusterConfig"))] for text in texts]
        table["keys"] = spans(keys, versions)
        # `CustomArgumentParser` takes `--some-name` for `--some_name` too.
        table["hyphens_from"] = next(v for v, text in zip(versions, texts, strict=True) if "CustomArg" in text[2])
    if source.package == "deepspeed":
        for part, (number, name) in _PARTS.items():
            table[part] = spans([[*fields_of(text[number], (name,))] for text in texts], versions)
    return table


def sources(url: str, names: tuple[str, ...], session: requests.Session) -> list[str]:
    """Files of a wheel, or of a source distribution; empty where one is not there."""
    if url.endswith(".whl"):
        with RemoteZip(url, session=session, initial_buffer_size=3_000_000) as archive:
            found = {*archive.namelist()}
            return [archive.read(name).decode() if name in found else "" for name in names]
    with tarfile.open(fileobj=io.BytesIO(session.get(url, timeout=60).content)) as archive:
        members = {name.partition("/")[2]: name for name in archive.getnames()}
        files = (archive.extractfile(members[name]) for name in names)
        return [file.read().decode() if file else "" for file in files]


def options_in(text: str, function: str) -> Iterator[Row]:
    """The names of each option, what follows it, its type and its choices."""
    body = next(node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == function)
    for call in ast.walk(body):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            given = {one.arg: ast.unparse(one.value).strip("'") for one in call.keywords if one.arg}
            names = [str(ast.literal_eval(one)) for one in call.args]
            takes = "nothing" if given.get("action", "").rpartition(".")[2] in _WITHOUT_VALUE else "value"
            takes = "rest" if "REMAINDER" in given.get("nargs", "") else "optional" if "nargs" in given else takes
            choices = next((one.value for one in call.keywords if one.arg == "choices"), None)
            listed = isinstance(choices, ast.List | ast.Tuple) and all(
                isinstance(one, ast.Constant) for one in choices.elts
            )
            values = tuple(map(str, ast.literal_eval(choices))) if listed and choices is not None else ()
            kind = given.get("type", "")
            yield " ".join(names), takes, kind if kind in _TYPES else "", values


def fields_of(text: str, classes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The fields of classes and their types; of pydantic's, by their aliases too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    kind = ast.unparse(field.annotation).removeprefix("Optional[").rstrip("]")
                    yield field.target.id, kind
                    given = field.value.keywords if isinstance(field.value, ast.Call) else ()
                    yield from ((ast.literal_eval(one.value), kind) for one in given if one.arg == "alias")


def spans(rows: list[list[Any]], versions: list[str]) -> list[list[Any]]:
    """Each row once for each run of versions that have it, with the first and the last of them."""
    found = []
    for row in dict.fromkeys(row for of_version in rows for row in of_version):
        start = None
        for number, of_version in enumerate([*rows, []]):
            if row in of_version and start is None:
                start = number
            elif row not in of_version and start is not None:
                found.append([*row, versions[start], versions[number - 1]])
                start = None
    return found


def rendered(tables: dict[str, Any]) -> str:
    """The table with a line for each row."""
    head = {
        "source": "torch/distributed/run.py, accelerate/commands/launch.py and deepspeed/launcher/runner.py of the last release "
        "of each minor version",
        "options": ["names", "what follows: value, nothing, optional or rest", "type", "choices", "first", "last"],
        "keys": ["of the file that --config_file names", "first", "last"],
        "zero_optimization, offload_param, offload_optimizer": [
            "key of these parts of a file of DeepSpeed",
            "type",
            "first",
            "last",
        ],
    }
    lines = [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    parts = []
    for name, table in tables.items():
        inner = [
            f'   "{key}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in value) + "\n   ]"
            if value and isinstance(value[0], list)
            else f'   "{key}": {json.dumps(value)}'
            for key, value in table.items()
        ]
        parts.append(f'  "{name}": {{\n' + ",\n".join(inner) + "\n  }")
    return "\n".join(["{", *lines, ' "launchers": {', ",\n".join(parts), " }", "}"]) + "\n"


if __name__ == "__main__":
    main()
