"""The options of a script that argparse reads, as far as its syntax says.

Nothing is said of a script whose options are not all plain calls of one parser in one file.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from training_jobs.lint.options import RULE, Option, Options, Takes
from training_jobs.lint.script import Script, constant, keyword, name_of, whole_name

_WITHOUT_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
_WITH_VALUE = ("store", "append", "extend")
_OPTIONAL = ("?", "*")
_METHODS = ("add_argument", "add_argument_group", "add_mutually_exclusive_group", "parse_args", "parse_known_args")
_TYPES = ("int", "float", "bool", "str")
UNKNOWN_PARSERS = ("parents", "prefix_chars", "exit_on_error", "fromfile_prefix_chars", "conflict_handler", None)


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
    if not reading or any(call.args or call.keywords for call in reading) or passes_on(script, parser):
        return None
    if {"add_subparsers", "parse_intermixed_args", "add_mutually_exclusive_group"} & {name for name, _ in named}:
        return None
    if any(is_renamed(script, node, _METHODS) for node in script.nodes):
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
    if len(found) != 1 or any(one.arg in UNKNOWN_PARSERS for one in found[0].keywords):
        return None
    # Another module may have the name: `import configargparse as argparse`.
    of_argparse = script.imported(found[0].func) == "argparse.ArgumentParser"
    return found[0] if of_argparse and whole_name(found[0]) in ("argparse.ArgumentParser", "ArgumentParser") else None


def passes_on(script: Script, parser: ast.Call) -> bool:
    """Whether a parser may get options elsewhere: it is given to a function, or kept where others find it."""
    place = script.parents[parser]
    if isinstance(place, ast.Attribute):  # as in HfArgumentParser(...).parse_args_into_dataclasses()
        return False
    if not isinstance(place, ast.Assign) or not all(isinstance(target, ast.Name) for target in place.targets):
        return True
    names = {target.id for target in place.targets if isinstance(target, ast.Name)}
    for node in script.nodes:
        loaded = isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)
        if loaded and not isinstance(script.parents[node], ast.Attribute | ast.Return):
            return True
    return False


def is_renamed(script: Script, node: ast.AST, methods: Sequence[str]) -> bool:
    """Whether a method of a parser is not called where it is named, like `add = parser.add_argument`."""
    if not isinstance(node, ast.Attribute) or node.attr not in methods:
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


def _takes(call: ast.Call) -> tuple[Takes, tuple[str, ...]]:
    """Whether a value follows an option, and the names that its action adds."""
    action = keyword(call, "action")
    if action is not None and ast.unparse(action).endswith("BooleanOptionalAction"):
        long = [str(constant(one)) for one in call.args if str(constant(one)).startswith("--")]
        return "nothing", tuple(f"--no-{name[2:]}" for name in long)
    if constant(action) in _WITHOUT_VALUE:
        return "nothing", ()
    if action is None or constant(action) in _WITH_VALUE:
        return ("optional" if constant(keyword(call, "nargs")) in _OPTIONAL else "value"), ()
    return "unknown", ()


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
