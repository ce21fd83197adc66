"""The options that a script takes, and the hyperparameters that end the job there.

SageMaker's toolkit starts the script with ``--key value`` for each hyperparameter, or ``-k value`` where its name is a letter
(`to_cmd_args` in mapping.py of sagemaker-training). What argparse takes is what Python's documentation of it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from training_jobs.facts.libraries import Versions, arguments_of
from training_jobs.lint.optional_dependencies import dependencies_of
from training_jobs.lint.script import Script, constant
from training_jobs.lint.trainer_values import TRUE, Device, RefusedValue, refused_values

RULE = "options"  # by which a comment switches it off
NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")  # `_negative_number_matcher`, argparse.py: -1e-5 is none
_FALSE = ("false", "0", "no", "off", "none")
_BOOLEANS = (*TRUE, "no", "false", "f", "n", "0")
_INVALID: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "string_to_bool": lambda text: _BOOLEANS.index(text.lower()),
}
# How scripts get hyperparameters beside their arguments.
_ELSEWHERE = re.compile(r"SM_HP|hyperparameters\.json|SM_TRAINING_ENV|SM_USER_ARGS")
# A key of a file of YAML, and where SageMaker's toolkit puts the folder of the script.
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s|$)")
_AFTER = re.compile(r"(?:^|\s)#.*")
_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<text>[^\"'\\]*)(?P=quote)")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_YAML_BOOLS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
_CODE = "/opt/ml/code"
Config = Literal["refused", "ignored", "kept", ""]
Takes = Literal["value", "nothing", "optional", "unknown"]


@dataclass(frozen=True)
class Option:
    """One argument that a script declares.

    Attributes:
        names: Its names, with their hyphens; of a positional argument the one without.
        line: Its line in the file.
        takes: Whether a value follows its name, or may; ``"unknown"`` where the source does not say.
        required: Whether argparse ends the script without it.
        type: ``int``, ``float``, ``bool``, ``str`` or transformers' ``string_to_bool``; "" for another, or none.
        choices: What it may be; None for anything, or where the source does not say.
        library: The class of a library that has it; "" where the line declares it.
    """

    names: tuple[str, ...]
    line: int
    takes: Takes
    required: bool
    type: str
    choices: tuple[object, ...] | None
    library: str = ""

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
        elsewhere: What is known of names that are none of its options.
        conflict: Two options of one name, at which the script ends; None where there are none.
        config: What becomes of keys that are no options in the file of YAML that ``--config`` names; "" for no such file.
        classes: The libraries' classes that take the values.
        versions: The versions of the libraries.
    """

    path: str
    options: tuple[Option, ...]
    abbreviates: bool
    ignores_others: bool
    drops_others: bool
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    conflict: tuple[Option, Option] | None = None
    config: Config = ""
    classes: tuple[str, ...] = ()
    versions: Versions = field(default_factory=dict)

    def where(self, option: Option) -> str:
        """Return the place that declares an option.

        Args:
            option: One of these.
        """
        return f"{self.path}:{option.line}{option.library and f', {option.library}'}"

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

    def __str__(self) -> str:
        return f"must {self.rule}, like {self.example}, got {self.got}"


def refusals(
    options: Options,
    given: Mapping[str, str | None],
    flags: Sequence[str],
    pairs: bool,
    folder: Path | None = None,
    device: Device = "",
    absent: frozenset[str] = frozenset(),
) -> Iterator[Refusal]:
    """Yield why a script refuses its hyperparameters, or takes False for True.

    Args:
        options: The script's options.
        given: The hyperparameters' texts as in the request; None for one that is not known.
        flags: Those that are given without a value, or not at all.
        pairs: Whether a value follows the name as an argument of its own, and not by ``=``.
        folder: The folder of the script, in which ``--config`` may name a file; None for none.
        device: What computes.
        absent: Modules that are certainly not installed.
    """
    if options.conflict is not None:
        first, second = options.conflict
        rule = "be those of a script whose options have different names, since argparse ends it at two of one name"
        got = f"{first.key!r} of {options.where(first)} and of {options.where(second)}"
        yield Refusal("", rule, f"{'my_' + first.key!r}", got)
        return
    seen: set[Option] = set()
    for key, text in given.items():
        found = options.of(key)
        seen.update(found)
        if not found and not options.ignores_others:
            rule = "be an option of the script, since argparse ends it at others"
            yield Refusal(key, rule, _nearest(key, options), f"none of {options.path}{options.elsewhere.get(key, '')}")
        elif len(found) > 1:
            names = " and ".join(repr(option.key) for option in found)
            rule = "be the name of one option of the script, since argparse ends it at the beginning of several"
            yield Refusal(key, rule, repr(found[0].key), f"that of {names} of {options.path}")
        elif found:
            yield from _value_refusals(options, found[0], key, text, is_flag=key in flags, pairs=pairs)
    file: Mapping[str, _Entry] | None = {}
    if options.config and "config" in given:
        file = _config(given["config"], folder)
        yield from _config_refusals(options, file, pairs)
        seen.update(option for name in file or () for option in options.options if f"--{name}" in option.names)
    yield from _wrong_values(options, given, file, device, absent)
    if file is None:  # which may have what is required
        return
    for option in options.options:
        where = options.where(option)
        if option.is_positional and option.required:
            example = f"parser.add_argument('--{option.names[0]}', required=True)"
            rule = "be those of a script without positional arguments, since each is passed as an option"
            yield Refusal("", rule, example, f"{option.names[0]!r} of {where}")
        elif option.required and option not in seen:
            rule = f"have {option.key!r}, which the script requires"
            yield Refusal("", rule, f"{{{option.key!r}: ...}}", f"none for {where}")


def _wrong_values(
    options: Options,
    given: Mapping[str, str | None],
    file: Mapping[str, _Entry] | None,
    device: Device,
    absent: frozenset[str],
) -> Iterator[Refusal]:
    """Values at which a library's class ends, of the file and of hyperparameters, which come before it."""
    entries = file or {}
    keys = {key.replace("-", "_"): key for key in given}
    texts = {name: ... if (text := given[key]) is None else argument(text) for name, key in keys.items()}
    for name in options.classes:
        unknown = dict.fromkeys(arguments_of(name, options.versions) or (), ...) if file is None else {}
        values = {**unknown, **{key: entry.value for key, entry in entries.items()}, **texts}
        lacking = _lacking(arguments_of(name, options.versions) or {}, values, absent)
        for one in (*refused_values(name, values, options.versions, device), *lacking):
            if one.argument in entries and one.argument not in keys:
                rule = f"name a file whose {one.argument} is right: it must {one.rule}"
                yield Refusal("config", rule, one.example, f"{entries[one.argument].place} with {one.got}")
            else:
                yield Refusal(keys.get(one.argument, one.argument), one.rule, one.example, one.got)


def _lacking(takes: Container[str], values: Mapping[str, object], absent: frozenset[str]) -> Iterator[RefusedValue]:
    """Values of a class's arguments that need a package which is not installed."""
    for needed in dependencies_of(values):
        if needed.argument in takes and {*needed.modules} <= absent:
            package = needed.modules[0]
            rule = f"be another, or {package} be in requirements.txt, which the job's container lacks"
            yield RefusedValue(needed.argument, rule, f"{package} in requirements.txt", needed.shown)


class _Entry(NamedTuple):
    """A key of a file of YAML: its place, and its value, ``...`` where it is not a plain one."""

    place: str
    value: object


def _plain(text: str) -> object:
    """A value of YAML as PyYAML reads it: a bool or a text; ``...`` for anything else."""
    value = _AFTER.sub("", text).strip()
    if quoted := _QUOTED.fullmatch(value):
        return quoted["text"]
    if value.lower() in _YAML_BOOLS:
        return _YAML_BOOLS[value.lower()]
    return value if _WORD.fullmatch(value) else ...


def values_of_config(given: Mapping[str, str | None], folder: Path) -> dict[str, str]:
    """Return the plain values of the file of YAML that ``--config`` names, as texts.

    Args:
        given: The arguments.
        folder: The folder of the script.
    """
    path = _config_path(given.get("config"), folder)
    if path is None:
        return {}
    import yaml  # here, since few hyperparameters name one

    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    plain = values.items() if isinstance(values, dict) else ()
    return {str(key): str(value) for key, value in plain if isinstance(value, str | bool | int | float)}


def _config_path(text: str | None, folder: Path | None) -> Path | None:
    path = None if text is None or folder is None else folder / argument(text).removeprefix(f"{_CODE}/")
    return path if path is not None and path.is_file() else None


def _config(text: str | None, folder: Path | None) -> dict[str, _Entry] | None:
    """The keys of a file of YAML in the folder of the script; None where it is not there, or not plain."""
    path = _config_path(text, folder)
    if path is None:
        return None
    found: dict[str, _Entry] = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if key := _KEY.match(line):
            found[key[1]] = _Entry(f"{argument(text or '')}:{number}", _plain(line[key.end() :]))
        elif line[:1] not in ("", " ", "#", "-", "\t") and line not in ("---", "..."):
            return None
    found.pop("env", None)  # variables of the environment
    return found


def _config_refusals(options: Options, file: Mapping[str, _Entry] | None, pairs: bool) -> Iterator[Refusal]:
    if not pairs:
        rule = "be an argument of its own after --config, since TrlParser finds no --config=FILE"
        yield Refusal("config", rule, "TrainingCode('src', arguments='--key value')", options.path)
    for key, place in _other_keys(options, file) if options.config == "refused" else ():
        rule = f"name a file whose keys are options of the script, since TrlParser ends it at others, like {key!r}"
        got = f"{place}, none of {options.path}{options.elsewhere.get(key, '')}"
        yield Refusal("config", rule, _nearest(key, options), got)


def _other_keys(options: Options, file: Mapping[str, _Entry] | None) -> Iterator[tuple[str, str]]:
    for key, entry in (file or {}).items():
        if not any(f"--{key}" in option.names for option in options.options):
            yield key, entry.place


def ignored_keys(
    options: Options, given: Mapping[str, str | None], folder: Path | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of the file that ``--config`` names which the script ignores: place, what is known, the nearest option.

    Args:
        options: The script's options.
        given: The hyperparameters.
        folder: The folder of the script.
    """
    if options.config == "ignored" and "config" in given:
        for key, place in _other_keys(options, _config(given["config"], folder)):
            yield f"{key!r} of {place}", options.elsewhere.get(key, ""), _nearest(key, options)


def _value_refusals(
    options: Options, option: Option, key: str, text: str | None, *, is_flag: bool, pairs: bool
) -> Iterator[Refusal]:
    where = options.where(option)
    # The value is an argument of its own, which the script may ignore, and with it that it is false.
    ignored = options.ignores_others and pairs and (text is None or argument(text).lower() not in _FALSE)
    if option.takes == "nothing" and not is_flag and not ignored:
        rule = "be among the flags of code, since the script takes no value for it"
        yield Refusal(key, rule, f"TrainingCode('src', flags=[{key!r}])", where)
    elif option.takes == "value" and is_flag:
        rule = "not be among the flags of code, since the script takes a value for it"
        yield Refusal(key, rule, "TrainingCode('src', flags=[])", where)
    if option.takes not in ("value", "optional") or is_flag or text is None:
        return
    value = argument(text)
    if pairs and value.startswith("-") and " " not in value and not NEGATIVE.fullmatch(value):
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
            example = "True" if option.type == "string_to_bool" else "3"
            yield Refusal(key, f"be one that type={option.type} of the script takes", example, f"{value!r} of {where}")
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
    same = {option.key.replace("-", "_").lower(): option.key for option in options.options if option.key}
    near = nearest(key.replace("-", "_").lower(), same)
    return repr(same[near]) if near else "none"


def nearest(word: str, words: Iterable[str], default: str = "") -> str:
    """Return the word among others that is most like one.

    Args:
        word: The one.
        words: The others.
        default: What is returned where there are none.
    """
    import difflib  # here, since a script whose options are right does without

    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=0.0)), default)
