"""The options of a script that argparse reads, as far as its syntax says, and the hyperparameters that end the job there.

SageMaker's toolkit starts the script with ``--key value`` for each hyperparameter, or ``-k value`` where its name is a letter
(`to_cmd_args` in mapping.py of sagemaker-training). What argparse takes is what Python's documentation of it says; nothing is
said of a script whose options are not all plain calls of one parser in one file.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from training_jobs.lint.script import Script, constant, keyword, name_of, whole_name

RULE = "options"  # by which a comment switches it off
_WITHOUT_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
_WITH_VALUE = ("store", "append", "extend")
_OPTIONAL = ("?", "*")
_METHODS = ("add_argument", "add_argument_group", "add_mutually_exclusive_group", "parse_args", "parse_known_args")
_TYPES = ("int", "float", "bool", "str")
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")  # `_negative_number_matcher`, argparse.py: -1e-5 is none
_UNKNOWN_PARSERS = ("parents", "prefix_chars", "exit_on_error", "fromfile_prefix_chars", None)
_FALSE = ("false", "0", "no", "off", "none")
_INVALID: Mapping[str, type] = {"int": int, "float": float}
# How scripts get hyperparameters beside their arguments.
_ELSEWHERE = re.compile(r"SM_HP|hyperparameters\.json|SM_TRAINING_ENV|SM_USER_ARGS")


@dataclass(frozen=True)
class Option:
    """One argument that a script declares.

    Attributes:
        names: Its names, with their hyphens; of a positional argument the one without.
        line: Its line in the file.
        takes: Whether a value follows its name; ``"unknown"`` where the source does not say.
        required: Whether argparse ends the script without it.
        type: ``int``, ``float``, ``bool`` or ``str``; "" for another, or none.
        choices: What it may be; None for anything, or where the source does not say.
    """

    names: tuple[str, ...]
    line: int
    takes: Literal["value", "nothing", "unknown"]
    required: bool
    type: str
    choices: tuple[object, ...] | None

    @property
    def is_positional(self) -> bool:
        """Whether it has no hyphens."""
        return not self.names[0].startswith("-")

    @property
    def key(self) -> str:
        """The hyperparameter that gives it: its longest name of two hyphens, or one of a letter; "" where it has none."""
        names = [name for name in self.names if name.startswith("--") or len(name) == len("-k")]
        return max(names, key=len, default="").lstrip("-")


@dataclass(frozen=True)
class Options:
    """The arguments that a script declares.

    Attributes:
        path: The script.
        options: All of them.
        abbreviates: Whether the beginning of a name is enough.
        ignores_others: Whether other arguments are ignored; else they end the script.
        drops_others: Whether it does not look at what it ignores.
    """

    path: str
    options: tuple[Option, ...]
    abbreviates: bool
    ignores_others: bool
    drops_others: bool

    def of(self, key: str) -> list[Option]:
        """Return the options that a hyperparameter may be: none, one, or several that begin alike.

        Args:
            key: The hyperparameter's name.
        """
        hyphens = "--" if len(key) > 1 else "-"
        exact = [option for option in self.options if f"{hyphens}{key}" in option.names]
        if exact or not self.abbreviates:
            return exact
        begins = re.compile(f"{hyphens}{re.escape(key)}")
        return [option for option in self.options if any(map(begins.match, option.names))]


class Refusal(NamedTuple):
    """Why a script ends at its arguments, or takes one for another value.

    Attributes:
        key: The hyperparameter; "" where one is missing.
        rule: What must be.
        example: A value that is.
        got: What is.
    """

    key: str
    rule: str
    example: str
    got: str


def options_of(script: Script) -> Options | None:
    """Return the options of a script; None where they are not certain.

    Args:
        script: The file that is started.
    """
    parser = _only_parser(script)
    if parser is None or "sys.argv" in script.text:
        return None
    named = [(name_of(call), call) for call in script.calls]
    reading = [call for name, call in named if name in ("parse_args", "parse_known_args")]
    if not reading or any(call.args or call.keywords for call in reading) or _passes_on(script, parser):
        return None
    if {"add_subparsers", "parse_intermixed_args", "add_mutually_exclusive_group"} & {name for name, _ in named}:
        return None
    if any(_is_renamed(script, node) for node in script.nodes):
        return None
    found = [_option(script, call) for name, call in named if name == "add_argument"]
    if any(option is None for option in found) or RULE in script.allowed.get(0, ()):
        return None
    return Options(
        script.path,
        tuple(option for option in found if option is not None),
        constant(keyword(parser, "allow_abbrev")) is not False,
        any(name_of(call) == "parse_known_args" for call in reading),
        all(_drops(script, call) for call in reading),
    )


def _only_parser(script: Script) -> ast.Call | None:
    """The call that makes the one parser of a script, where it is argparse's own, and has options of its own alone."""
    found = [call for call in script.calls if name_of(call).endswith("ArgumentParser")]
    if len(found) != 1 or any(one.arg in _UNKNOWN_PARSERS for one in found[0].keywords):
        return None
    # Another module may have the name: `import configargparse as argparse`.
    imported = {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in script.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname is None
    }
    needs = {"argparse.ArgumentParser": "argparse", "ArgumentParser": "argparse.ArgumentParser"}
    return found[0] if needs.get(whole_name(found[0])) in imported else None


def _passes_on(script: Script, parser: ast.Call) -> bool:
    """Whether a parser may get options elsewhere: it is given to a function, or kept where others find it."""
    place = script.parents[parser]
    if not isinstance(place, ast.Assign) or not all(isinstance(target, ast.Name) for target in place.targets):
        return True
    names = {target.id for target in place.targets if isinstance(target, ast.Name)}
    for node in script.nodes:
        loaded = isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)
        if loaded and not isinstance(script.parents[node], ast.Attribute | ast.Return):
            return True
    return False


def _is_renamed(script: Script, node: ast.AST) -> bool:
    """Whether a method of a parser is not called where it is named, like `add = parser.add_argument`."""
    if not isinstance(node, ast.Attribute) or node.attr not in _METHODS:
        return False
    call = script.parents[node]
    return not (isinstance(call, ast.Call) and call.func is node)


def _drops(script: Script, call: ast.Call) -> bool:
    """Whether nothing reads the second value of a call of `parse_known_args`, the arguments that it does not know."""
    place = script.parents[call]
    if isinstance(place, ast.Subscript):
        return constant(place.slice) == 0
    target = place.targets[0] if isinstance(place, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or not all(isinstance(one, ast.Name) for one in target.elts):
        return False
    rest = ast.unparse(target.elts[-1])
    return not any(
        isinstance(node, ast.Name) and node.id == rest and isinstance(node.ctx, ast.Load) for node in script.nodes
    )


def _option(script: Script, call: ast.Call) -> Option | None:
    """What a call of `add_argument` declares; None where its names are not literal."""
    names = [constant(one) for one in call.args]
    texts = tuple(name for name in names if isinstance(name, str) and name)
    nargs = keyword(call, "nargs")
    if not texts or len(texts) != len(names) or (nargs is not None and constant(nargs) in (None, "...", "A...")):
        return None
    unknown = any(one.arg is None for one in call.keywords)
    takes, others = _takes(call)
    positional = not texts[0].startswith("-")
    required = constant(nargs) not in _OPTIONAL if positional else constant(keyword(call, "required")) is True
    kind = keyword(call, "type")
    return Option(
        texts + others,
        call.lineno,
        "unknown" if unknown or (isinstance(constant(nargs), int) and constant(nargs) != 1) else takes,
        required and not unknown and not _may_not_run(script, call),
        kind.id if isinstance(kind, ast.Name) and kind.id in _TYPES else "" if kind is not None else "str",
        _choices(keyword(call, "choices")),
    )


def _takes(call: ast.Call) -> tuple[Literal["value", "nothing", "unknown"], tuple[str, ...]]:
    """Whether a value follows an option, and the names that its action adds."""
    action = keyword(call, "action")
    if action is not None and ast.unparse(action).endswith("BooleanOptionalAction"):
        long = [str(constant(one)) for one in call.args if str(constant(one)).startswith("--")]
        return "nothing", tuple(f"--no-{name[2:]}" for name in long)
    if constant(action) in _WITHOUT_VALUE:
        return "nothing", ()
    return ("value" if action is None or constant(action) in _WITH_VALUE else "unknown"), ()


def _may_not_run(script: Script, node: ast.AST) -> bool:
    """Whether a call is below a condition other than that the file is the one that is started."""
    return any(
        isinstance(one, ast.If | ast.Try | ast.IfExp) and "__main__" not in ast.unparse(getattr(one, "test", one))
        for one in script.ancestors(node)
    )


def _choices(node: ast.expr | None) -> tuple[object, ...] | None:
    """The choices of a list, a tuple or a range of literals; None for others."""
    if isinstance(node, ast.Call) and name_of(node) == "range":
        bounds = [number for one in node.args if isinstance(number := constant(one), int)]
        return tuple(range(*bounds)) if 0 < len(bounds) == len(node.args) else None
    try:
        return tuple(ast.literal_eval(node)) if isinstance(node, ast.List | ast.Tuple) else None
    except ValueError:
        return None


def refusals(options: Options, given: Mapping[str, str | None], flags: Sequence[str], pairs: bool) -> Iterator[Refusal]:
    """Yield why a script refuses its hyperparameters, or takes False for True.

    Args:
        options: The script's options.
        given: The hyperparameters' texts as in the request; None for one that is not known.
        flags: Those that are given without a value, or not at all.
        pairs: Whether a value follows the name as an argument of its own, and not by ``=``.
    """
    seen: set[Option] = set()
    for key, text in given.items():
        found = options.of(key)
        seen.update(found)
        if not found and not options.ignores_others:
            rule = "be an option of the script, since argparse ends it at others"
            yield Refusal(key, rule, _nearest(key, options), f"none of {options.path}")
        elif len(found) > 1:
            names = " and ".join(repr(option.key) for option in found)
            rule = "be the name of one option of the script, since argparse ends it at the beginning of several"
            yield Refusal(key, rule, repr(found[0].key), f"that of {names} of {options.path}")
        elif found:
            yield from _value_refusals(options, found[0], key, text, is_flag=key in flags, pairs=pairs)
    for option in options.options:
        where = f"{options.path}:{option.line}"
        if option.is_positional and option.required:
            example = f"parser.add_argument('--{option.names[0]}', required=True)"
            rule = "be those of a script without positional arguments, since each is passed as an option"
            yield Refusal("", rule, example, f"{option.names[0]!r} of {where}")
        elif option.required and option not in seen:
            rule = f"have {option.key!r}, which the script requires"
            yield Refusal("", rule, f"{{{option.key!r}: ...}}", f"none for {where}")


def _value_refusals(
    options: Options, option: Option, key: str, text: str | None, *, is_flag: bool, pairs: bool
) -> Iterator[Refusal]:
    where = f"{options.path}:{option.line}"
    # The value is an argument of its own, which the script may ignore, and with it that it is false.
    ignored = options.ignores_others and pairs and (text is None or argument(text).lower() not in _FALSE)
    if option.takes == "nothing" and not is_flag and not ignored:
        rule = "be among the flags of code, since the script takes no value for it"
        yield Refusal(key, rule, f"TrainingCode('src', flags=[{key!r}])", where)
    elif option.takes == "value" and is_flag:
        rule = "not be among the flags of code, since the script takes a value for it"
        yield Refusal(key, rule, "TrainingCode('src', flags=[])", where)
    if option.takes != "value" or is_flag or text is None:
        return
    value = argument(text)
    if pairs and value.startswith("-") and " " not in value and not _NEGATIVE.fullmatch(value):
        rule = "not begin with a hyphen, which argparse takes for an option, as of a negative number with an exponent"
        yield Refusal(key, rule, "TrainingCode('src', arguments='--key=value')", f"{value!r} of {where}")
    elif option.type == "bool" and value.lower() in _FALSE:
        rule = "be left out where it is false, since type=bool takes each text for True (Python's argparse, 'type')"
        yield Refusal(key, rule, "an option with action='store_true' among the flags of code", f"{value!r} of {where}")
    else:
        yield from _type_refusals(option, key, value, where)


def _type_refusals(option: Option, key: str, value: str, where: str) -> Iterator[Refusal]:
    converted: object = value
    if (kind := _INVALID.get(option.type)) is not None:
        try:
            converted = kind(value)
        except ValueError:
            yield Refusal(key, f"be one that type={option.type} of the script takes", "3", f"{value!r} of {where}")
            return
    if option.choices is not None and option.type in ("int", "float", "str") and converted not in option.choices:
        choices = ", ".join(map(repr, option.choices))
        example = repr(option.choices[0]) if option.choices else "none"
        yield Refusal(key, f"be one of the script's choices, {choices}", example, f"{converted!r} of {where}")


def ignored(options: Options, given: Mapping[str, str | None], scripts: Sequence[Script]) -> Iterator[tuple[str, str]]:
    """Yield the hyperparameters that nothing reads, each with the option that is named most like it.

    Args:
        options: The script's options.
        given: The hyperparameters.
        scripts: All files of the folder, which may read hyperparameters elsewhere.
    """
    if not (options.ignores_others and options.drops_others) or any(
        _ELSEWHERE.search(script.text) for script in scripts
    ):
        return
    named = {constant(node) for script in scripts for node in script.nodes}
    for key in given:
        if not options.of(key) and key not in named:
            yield key, _nearest(key, options)


def argument(text: str) -> str:
    """Return the argument that the toolkit makes of a hyperparameter's text (`read_hyperparameters` and `to_cmd_args`).

    Args:
        text: The text in the request.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return "" if value is None else str(value)


def _nearest(key: str, options: Options) -> str:
    """The option that is named most like a hyperparameter, hyphens and underscores alike."""
    import difflib  # here, since a script whose options are right does without

    same = {option.key.replace("-", "_").lower(): option.key for option in options.options if option.key}
    near = difflib.get_close_matches(key.replace("-", "_").lower(), same, n=1, cutoff=0.0)
    return repr(same[near[0]]) if near else "none"
