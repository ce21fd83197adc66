"""The options of a script whose dataclasses Hugging Face's HfArgumentParser reads, or trl's TrlParser, which is one.

Sources: hf_argparser.py of transformers, and `TrlParser` in trl's scripts/utils.py.

Those of the libraries' classes are known where the versions are, and those of the script's own dataclasses by its syntax.
Nothing is said where a class comes from elsewhere, or a file may have arguments that is not here.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training_jobs.facts.libraries import (
    LIBRARIES,
    Argument,
    Versions,
    arguments_of,
    arguments_of_others,
    refuses_keys,
    takes_hyphens,
)
from training_jobs.lint import argparse_options
from training_jobs.lint.options import RULE, Config, Option, Options, Takes
from training_jobs.lint.script import Script, constant, keyword, name_of
from training_jobs.lint.trainer_values import Device, refused_values

# The parsers, and what reads the arguments of each.
_PARSERS = {
    "transformers.HfArgumentParser": ("parse_args_into_dataclasses",),
    "trl.TrlParser": ("parse_args_into_dataclasses", "parse_args_and_config"),
}
_NAMES = tuple(name.partition(".")[2] for name in _PARSERS)
_READS = _PARSERS["trl.TrlParser"]
_READ_WITH = {"return_remaining_strings", "look_for_args_file", "fail_with_unknown_args"}
_FILES = ("parse_json_file", "parse_yaml_file", "parse_dict")
_ADDS = ("add_argument", "add_argument_group", "add_mutually_exclusive_group", "set_defaults", "parse_known_args")
# What the scripts of transformers' examples ask before they read a file's arguments.
_ONE_ARGUMENT = "len(sys.argv) == 2"
_FIELDS = ("field", "HfArg")
Fields = Mapping[str, tuple[Option, ...]]


def options_of(script: Script, versions: Versions | None = None) -> Options | None:
    """Return the options of a script; None where they are not certain.

    Args:
        script: The file that is started.
        versions: The versions of libraries that it finds, such as ``{"transformers": "5.3.0"}``; others are not known.
    """
    if not any(name_of(call) in _NAMES for call in script.calls):
        return argparse_options.options_of(script)
    versions = {} if script.installs else versions or {}  # it may be another version
    parsers = [call for call in script.calls if name_of(call).endswith(("ArgumentParser", "TrlParser"))]
    reading = [call for call in script.calls if name_of(call) in _READS]
    if (
        len(parsers) != 1
        or not reading
        or RULE in script.allowed.get(0, ())
        or _may_differ(script, parsers[0], reading)
    ):
        return None
    kinds = _kinds(parsers[0])
    found = [_fields(script, kind, versions) for kind in kinds]
    if None in found:
        return None
    options = tuple(option for fields in found for options in (fields or {}).values() for option in options)
    remaining = any(constant(keyword(call, "return_remaining_strings")) is True for call in reading)
    by_config = any(name_of(call) == "parse_args_and_config" for call in reading)
    if by_config:
        of_parser = Option(("--config",), parsers[0].lineno, "value", False, "str", None, "TrlParser of trl")
        options = (*options, of_parser)
    lenient = any(constant(keyword(call, "fail_with_unknown_args")) is False for call in reading)
    return Options(
        script.path,
        options,
        constant(keyword(parsers[0], "allow_abbrev")) is not False,
        remaining,
        False,
        {
            name: f", nor of {_place(of_library, versions)}, {known}"
            for of_library in (_of_library(script, kind) for kind in kinds)
            for name, known in arguments_of_others(of_library, versions).items()
        },
        _conflict(options),
        _config(versions, parsers[0], remaining=remaining, lenient=lenient) if by_config else "",
        tuple(filter(None, (_of_library(script, kind) for kind in kinds))),
        versions,
    )


def _config(versions: Versions, parser: ast.Call, *, remaining: bool, lenient: bool) -> Config:
    """What TrlParser does with keys of its file that are no options."""
    if remaining or {one.arg for one in parser.keywords} - {"dataclass_types"} or len(parser.args) > 1:
        return "kept"
    return "refused" if refuses_keys(versions.get("trl", "")) and not lenient else "ignored"


def _conflict(options: Sequence[Option]) -> tuple[Option, Option] | None:
    """Two options of one name, at which argparse ends: a class may have a field that a new version of another one has too."""
    seen: dict[str, Option] = {}
    for option in options:
        for name in option.names:
            if name in seen:
                return seen[name], option
            seen[name] = option
    return None


def _may_differ(script: Script, parser: ast.Call, reading: Sequence[ast.Call]) -> bool:
    """Whether a parser may get other options than its classes', or other arguments than the command line's."""
    reads = _PARSERS.get(_of_library(script, parser.func), ())
    if not reads or not _kinds(parser) or any(name_of(call) not in reads for call in reading):
        return True
    if any(one.arg in argparse_options.UNKNOWN_PARSERS for one in parser.keywords):
        return True
    if argparse_options.passes_on(script, parser) or any(name_of(call) in _ADDS for call in script.calls):
        return True
    if any(argparse_options.is_renamed(script, node, (*_READS, *_FILES, *_ADDS)) for node in script.nodes):
        return True
    if any(call.args or {one.arg for one in call.keywords} - _READ_WITH for call in reading):
        return True
    asked = [node for node in script.nodes if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv"]
    files = [call for call in script.calls if name_of(call) in _FILES]
    if script.text.count("argv") != sum(ast.unparse(node) == "sys.argv" for node in asked):
        return True
    return any(not _of_one_argument(script, node) for node in (*asked, *files))


def _of_one_argument(script: Script, node: ast.AST) -> bool:
    """Whether a node is of a branch for one argument, the name of a file, which a hyperparameter and its value are not."""
    return any(isinstance(one, ast.If) and _ONE_ARGUMENT in ast.unparse(one.test) for one in script.ancestors(node))


def _fields(script: Script, kind: ast.expr, versions: Versions) -> Fields | None:
    """The options of a dataclass, by its fields; None where they are not certain."""
    transformers = versions.get("transformers")
    if of_library := _of_library(script, kind):
        known, place = arguments_of(of_library, versions), _place(of_library, versions)
        if known is None:
            return None
        return {name: _options(name, one, kind.lineno, transformers, library=place) for name, one in known.items()}
    definition = _defined(script, kind)
    if definition is None or "dataclass" not in " ".join(map(ast.unparse, definition.decorator_list)):
        return None
    found: dict[str, tuple[Option, ...]] = {}
    for base in definition.bases:
        of_base = _fields(script, base, versions)
        if of_base is None:
            return None
        found |= of_base
    for one in _declared(definition):
        if one is None:
            return None
        found.pop(one.name, None)
        if one.is_option:
            found[one.name] = _options(one.name, one.argument, one.line, transformers, one.annotation, one.given)
    return found


class Declared(NamedTuple):
    """A field that a dataclass of a script declares.

    Attributes:
        name: Its name.
        line: Its line.
        argument: Its type, and what is known of its default.
        annotation: Its annotation.
        given: What it is given: its ``default`` and what its metadata has.
        is_option: Whether the parser makes an option of it.
    """

    name: str
    line: int
    argument: Argument
    annotation: ast.expr
    given: Mapping[str, ast.expr]
    is_option: bool


def _declared(definition: ast.ClassDef) -> Iterator[Declared | None]:
    """The fields of a dataclass itself; None for one that is not certain."""
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text, given = ast.unparse(node.annotation), _given(node.value)
            if "InitVar" in text or given is None:
                yield None
                continue
            is_option = "ClassVar" not in text and constant(given.get("init")) is not False
            argument = Argument(field_type(node.annotation), _default(given))
            yield Declared(node.target.id, node.lineno, argument, node.annotation, given, is_option)


def declared_fields(script: Script) -> dict[str, Declared]:
    """Return the options of the dataclasses that a script declares and gives to a parser, by name.

    Args:
        script: A file.
    """
    found = (one for definition in _definitions(script) if definition for one in _declared(definition))
    return {one.name: one for one in found if one is not None and one.is_option}


def takes_others(script: Script) -> bool:
    """Return whether a parser may take more than the fields of dataclasses that a script declares.

    Args:
        script: A file.
    """
    definitions = _definitions(script)
    return not definitions or any(definition is None or definition.bases for definition in definitions)


def _definitions(script: Script) -> list[ast.ClassDef | None]:
    """The classes that the parsers of a script are given; None for each that it does not define."""
    parsers = [call for call in script.calls if name_of(call).endswith("Parser")]
    return [_defined(script, kind) for parser in parsers for kind in _kinds(parser)]


def _kinds(parser: ast.Call) -> Sequence[ast.expr]:
    """The classes that a parser is given."""
    types = parser.args[0] if parser.args else keyword(parser, "dataclass_types")
    return types.elts if isinstance(types, ast.Tuple | ast.List) else [types] if types is not None else []


def _defined(script: Script, kind: ast.expr) -> ast.ClassDef | None:
    """The only class of a name in a file, at its top."""
    text = ast.unparse(kind)
    found = [node for node in script.nodes if isinstance(node, ast.ClassDef) and node.name == text]
    return found[0] if len(found) == 1 and found[0] in script.tree.body else None


def _given(value: ast.expr | None) -> dict[str, ast.expr] | None:
    """What a field is given: of `field(...)` its keywords and those of its metadata; None where they are not literal."""
    if value is None:
        return {}
    if not isinstance(value, ast.Call) or name_of(value) not in _FIELDS:
        return {"default": value}
    given = {one.arg: one.value for one in value.keywords if one.arg}
    metadata = given.pop("metadata", ast.Dict([], []))
    if len(given) + ("metadata" in {one.arg for one in value.keywords}) != len(value.keywords):
        return None
    if not isinstance(metadata, ast.Dict) or not all(isinstance(constant(key), str) for key in metadata.keys):
        return None
    return {**{str(constant(key)): item for key, item in zip(metadata.keys, metadata.values, strict=True)}, **given}


def _default(given: Mapping[str, ast.expr]) -> str:
    if not {"default", "default_factory"} & {*given}:
        return "required"
    default = ast.unparse(given.get("default", ast.Name("")))
    return default if default in ("True", "None") else ""


def field_type(annotation: ast.expr) -> str:
    """Return the type of a dataclass's field as HfArgumentParser takes it, ``Optional`` left out of all but a ``bool``.

    Args:
        annotation: Its annotation.

    Returns:
        ``int``, ``float``, ``str``, ``bool``, ``Optional[bool]`` or ``list``; "" for others.
    """
    text = constant(annotation) if isinstance(constant(annotation), str) else ast.unparse(annotation)
    words = [*dict.fromkeys(_words(ast.parse(str(text).replace("typing.", ""), mode="eval").body))]
    optional = "None" in words
    words = [word for word in words if word != "None"]
    if len(words) != 1:
        return ""
    if words[0] == "bool" and optional:
        return "Optional[bool]"
    kind = words[0].partition("[")[0].lower()
    return kind if kind in ("int", "float", "str", "bool", "list") else ""


def _words(node: ast.expr) -> Iterator[str]:
    """The types of a union, ``None`` of an optional one."""
    outer = ast.unparse(node.value) if isinstance(node, ast.Subscript) else ""
    if isinstance(node, ast.BinOp):
        yield from (*_words(node.left), *_words(node.right))
    elif isinstance(node, ast.Subscript) and outer in ("Optional", "Union"):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        yield from (word for part in parts for word in _words(part))
        yield from ["None"] if outer == "Optional" else []
    else:
        yield ast.unparse(node)


def _options(
    name: str,
    argument: Argument,
    line: int,
    transformers: str | None,
    annotation: ast.expr | None = None,
    given: Mapping[str, ast.expr] | None = None,
    library: str = "",
) -> tuple[Option, ...]:
    """The options of one field (`_parse_dataclass_field`)."""
    aliases = (given or {}).get("aliases", ast.Tuple([]))
    texts = aliases.elts if isinstance(aliases, ast.List | ast.Tuple) else [aliases]
    names = [f"--{name}", *(str(constant(text)) for text in texts)]
    if transformers is None or takes_hyphens(transformers):
        names.append(f"--{name.replace('_', '-')}")
    choices = choices_of(annotation, given or {})
    # What else metadata has is argparse's: nargs, type, action.
    known = {*(given or {})} <= {"help", "aliases", "choices", "default", "default_factory", "init", "repr", "compare"}
    boolean = argument.type.endswith("bool]") or argument.type == "bool"
    optional = argument.type == "bool" or (boolean and argument.default not in ("required", "None"))
    takes: Takes = "optional" if optional else "value" if argument.type or choices else "unknown"
    kind = "string_to_bool" if boolean else "str" if choices else argument.type.replace("list", "")
    first = Option(
        tuple(dict.fromkeys(names)),
        line,
        takes if known else "unknown",
        argument.is_required,
        kind if known else "",
        choices,
        library,
    )
    if not (boolean and argument.default == "True"):
        return (first,)
    negative = (f"--no_{name}", f"--no-{name.replace('_', '-')}")
    return first, Option(negative, line, "nothing", False, "", None, library)


def choices_of(annotation: ast.expr | None, given: Mapping[str, ast.expr]) -> tuple[object, ...] | None:
    """Return the texts that a field takes, of a Literal, alone or with None, or of its metadata; None for others.

    Args:
        annotation: Its annotation.
        given: What it is given.
    """
    parts = [
        node.slice
        for node in ast.walk(annotation or ast.Constant(None))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")
    ]
    if "choices" in given:
        parts = [given["choices"]]
    if len(parts) != 1:
        return None
    elements = parts[0].elts if isinstance(parts[0], ast.Tuple | ast.List) else [parts[0]]
    values = [constant(element) for element in elements]
    return tuple(values) if values and all(isinstance(value, str) for value in values) else None


def _of_library(script: Script, node: ast.expr) -> str:
    """The name of what a node names in a library, like ``trl.SFTConfig``; "" for anything else."""
    library, _, name = script.imported(node).partition(".")
    return f"{library}.{name.rpartition('.')[2]}" if library in LIBRARIES and ".experimental." not in f".{name}" else ""


def _place(of_library: str, versions: Versions) -> str:
    library, _, name = of_library.partition(".")
    return f"{name} of {library} {versions.get(library)}"


def unknown_arguments(script: Script, versions: Versions) -> Iterator[tuple[int, str]]:
    """Yield the lines and reasons of calls of the libraries' classes whose keywords the version does not take.

    Args:
        script: A file.
        versions: The versions of the libraries that it finds.
    """
    for call in script.calls if script.imports & {*LIBRARIES} else ():
        of_library, more = _library_of(script, call.func)
        takes = arguments_of(of_library, versions)
        if takes is None or script.asks_version(call):
            continue
        others = arguments_of_others(of_library, versions)
        for one in call.keywords:
            if one.arg and one.arg not in takes and one.arg not in more:
                near = difflib.get_close_matches(one.arg, takes, n=1)
                named = others.get(one.arg) or (f"which has {near[0]}" if near else "nor does another version")
                yield (
                    one.value.lineno,
                    f"{_place(of_library, versions)} takes no {one.arg}, {named}: a TypeError",
                )


def wrong_values(script: Script, versions: Versions, device: Device) -> Iterator[tuple[int, str]]:
    """Yield the lines and reasons of calls of the libraries' classes that end at the values of their keywords.

    Args:
        script: A file.
        versions: The versions of the libraries that it finds.
        device: What computes.
    """
    for call in script.calls if script.imports & {*LIBRARIES} else ():
        of_library, more = _library_of(script, call.func)
        if not of_library or script.asks_version(call):
            continue
        by_name = {one.arg: one.value for one in call.keywords if one.arg}
        given = {name: _known(value) for name, value in by_name.items()}
        if more or len(by_name) < len(call.keywords):  # others may have values too
            given = {**dict.fromkeys(arguments_of(of_library, versions) or (), ...), **given}
        for one in refused_values(of_library, given, versions, device):
            reason = (
                f"{one.argument} of {_place(of_library, versions)} must {one.rule}, like {one.example}, got {one.got}"
            )
            yield by_name.get(one.argument, call).lineno, reason


def _known(node: ast.expr) -> object:
    """A constant; ``...`` for anything else."""
    return node.value if isinstance(node, ast.Constant) else ...


def _library_of(script: Script, node: ast.expr) -> tuple[str, set[str]]:
    """The class of a library that a call makes, or that its class without ``__init__`` is of, and the fields of that."""
    if name := _of_library(script, node):
        return name, set()
    definition = _defined(script, node)
    if definition is None or len(definition.bases) != 1:
        return "", set()
    if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in definition.body):
        return "", set()
    fields = {
        one.target.id for one in definition.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    name, more = _library_of(script, definition.bases[0])
    return name, more | fields
