"""The rules of transformers' Trainer and of its callbacks, of which a script makes classes of its own.

Sources: the wheels of transformers, in which `release/library_tables.py` finds how each version calls their methods; and how long
a gradient is that each accumulates, which `release/accumulation_table.py` measures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training_jobs.facts.accumulation import models_of, wrong_length
from training_jobs.facts.libraries import Call, arguments_of, calls_of
from training_jobs.lint.options import argument
from training_jobs.lint.program import Program, is_alone, started
from training_jobs.lint.scales import divisors
from training_jobs.lint.script import Check, Found, Function, Job, Script, constant, keyword, name_of, versions_of

_STEPS = "gradient_accumulation_steps"
_SMOOTHS = "label_smoothing_factor"
_BASES = {
    **dict.fromkeys(("transformers.Trainer", "transformers.trainer.Trainer", "transformers.Seq2SeqTrainer"), "Trainer"),
    **dict.fromkeys(("trl.SFTTrainer", "trl.DPOTrainer", "trl.GRPOTrainer", "trl.RewardTrainer"), "Trainer"),
    **dict.fromkeys(
        ("transformers.TrainerCallback", "transformers.trainer_callback.TrainerCallback"), "TrainerCallback"
    ),
}
_MODULE = ("transformers.trainer.", "transformers.")
# Trainers that accumulate, and what makes a model of a name for those that do so themselves.
_DIVIDED = "AutoModelForQuestionAnswering"
_BY_MODEL = {
    **{"transformers.Trainer": "", "transformers.Seq2SeqTrainer": "", "trl.SFTTrainer": "AutoModelForCausalLM"},
    # Whose losses are of no labels, as that of such models: Trainer divides them.
    **dict.fromkeys(("trl.DPOTrainer", "trl.GRPOTrainer", "trl.RewardTrainer"), _DIVIDED),
}
_ARGUMENTS = (
    *("TrainingArguments", "Seq2SeqTrainingArguments"),
    *("SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig"),
)
_PARSES = ("HfArgumentParser", "TrlParser")
# By what a script may say itself how long a gradient is.
_SAID = re.compile(
    r"model_accepts_loss_kwargs|loss_is_scaled_for_ga|accelerator\.gradient_accumulation_steps\s*=|deepspeed", re.I
)
_EVALUATES = re.compile(r"eval_strategy|evaluation_strategy|do_eval")
_SAVES_NONE = re.compile(r"save_strategy\W+no\b")
_ITEMS = "num_items_in_batch"
# How Trainer.compute_loss calls a function that it is given.
_OF_FUNCTION = Call("compute_loss", 2, (_ITEMS,), more=False)
# How Trainer.compute_loss calls a function that it is given.
_OF_FUNCTION = Call("compute_loss", 2, (_ITEMS,), more=False)
_AVERAGES = "average_tokens_across_devices"
# By what a loss may be multiplied by the number of processes, or the items be those of one.
_OF_ALL = re.compile(r"num_processes|world_?size|n_gpu|gather|reduce\(", re.IGNORECASE)


class _Class(NamedTuple):
    """A class of a script that is a library's.

    Attributes:
        script: The script.
        definition: The class.
        of: ``"Trainer"`` or ``"TrainerCallback"``.
        library: The whole name of the library's class.
        methods: The names of what it has itself, with the classes of the scripts that it is of.
    """

    script: Script
    definition: ast.ClassDef
    of: str
    library: str
    methods: Mapping[str, Function]


def _classes(program: Program) -> Iterator[_Class]:
    for script in program.scripts:
        for node in script.nodes:
            if isinstance(node, ast.ClassDef) and node.name in program.used | {"Trainer"}:
                library, methods = _chain(program, script, node, frozenset())
                if library in _BASES:
                    yield _Class(script, node, _BASES[library], library, methods)


def _chain(
    program: Program, script: Script, node: ast.ClassDef, seen: frozenset[str]
) -> tuple[str, dict[str, Function]]:
    """The library's class that a class is of, and the methods that the scripts' own classes have for it."""
    methods = {one.name: one for one in node.body if isinstance(one, Function)}
    for base in node.bases:
        if (library := script.imported(base)) in _BASES:
            return library.replace(*_MODULE), methods
        name = ast.unparse(base).rpartition(".")[2]
        for other in program.scripts if name not in seen | {node.name} else ():
            for one in other.tree.body:
                if isinstance(one, ast.ClassDef) and one.name == name:
                    library, inherited = _chain(program, other, one, seen | {node.name})
                    if library:
                        return library, {**inherited, **methods}
    return "", methods


def _override(scripts: Sequence[Script], job: Job) -> Found:
    """The wheels of transformers: how each version calls the methods of Trainer and TrainerCallback."""
    versions, program = versions_of(scripts, job), started(scripts, job.entry_point)
    version = versions.get("transformers", "")
    for one in _classes(program):
        for method in one.definition.body:
            if (
                isinstance(method, ast.FunctionDef)
                and not method.decorator_list
                and not one.script.asks_version(method)
            ):
                caller, refusal = _refused(program, one, method, calls_of(one.of, version).get(method.name, ()))
                where = (
                    f"by {caller} of transformers {version}'s {'callbacks' if caller == 'call_event' else 'Trainer'}"
                )
                if refusal:
                    what = f"{one.definition.name}.{method.name} {refusal}"
                    yield one.script, method.lineno, f"{what}, {where}: a TypeError"
    takes_function = "compute_loss_func" in (arguments_of("transformers.Trainer", versions) or {})
    for made in _made(program) if takes_function else ():
        given = keyword(made.call, "compute_loss_func")
        for function in program.definitions.get(ast.unparse(given), []) if given is not None else ():
            if isinstance(function, ast.FunctionDef) and (refusal := _refusal(function, _OF_FUNCTION, 0)):
                where = f"by compute_loss of transformers {version}'s Trainer"
                yield made.script, made.call.lineno, f"{function.name} {refusal}, {where}: a TypeError"


def _refused(program: Program, one: _Class, method: ast.FunctionDef, calls: Sequence[Call]) -> tuple[str, str]:
    """What calls a class's method with what it does not take, in each of its calls, and at what it ends; two "" for none."""
    by_caller: dict[str, list[str]] = {}
    for call in calls:
        if call.caller not in one.methods and not _is_off(program, call.caller, method.name):
            by_caller.setdefault(call.caller, []).append(_refusal(method, call))
    found = ((caller, refusals[0]) for caller, refusals in reversed(by_caller.items()) if all(refusals))
    return next(found, ("", ""))


def _is_off(program: Program, caller: str, method: str) -> bool:
    """Whether what calls a method may not run in a script's training: that evaluates, or saves."""
    if method == "evaluate":
        return not program.mentions(_EVALUATES)
    return caller == "_save_checkpoint" and program.mentions(_SAVES_NONE)


def _refusal(method: ast.FunctionDef, call: Call, bound: int = 1) -> str:
    """At what of a call a method, or a function of which none of the first parameters is bound, ends; "" where it takes it."""
    arguments = method.args
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)][bound:]
    if call.positional is None or len(arguments.posonlyargs + arguments.args) < bound:
        return ""
    if call.positional > len(positional) and arguments.vararg is None:
        return f"takes {len(positional)} and is given {call.positional} arguments"
    if twice := [name for name in call.names if name in positional[: call.positional]]:
        return f"is given {', '.join(twice)} twice"
    left = positional[call.positional :]
    taken = {*left, *(one.arg for one in arguments.kwonlyargs)}
    if arguments.kwarg is None and (unknown := [name for name in call.names if name not in taken]):
        more = "**kwargs" if len(unknown) > 1 else f"{unknown[0]}=None, or **kwargs,"
        return f"takes no {', '.join(unknown)}, which it is given (add {more.rstrip(',')})"
    required = left[: max(0, len(left) - len(arguments.defaults))]
    required += [
        one.arg for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    missing = [name for name in required if name not in call.names]
    return f"needs {', '.join(missing)}, which it is not given" if missing and not call.more else ""


class _Made(NamedTuple):
    """A Trainer that a script makes.

    Attributes:
        script: The script.
        call: What makes it.
        library: The whole name of the library's class.
        methods: What the scripts' own class has for it.
    """

    script: Script
    call: ast.Call
    library: str
    methods: Mapping[str, Function]


def _made(program: Program) -> Iterator[_Made]:
    own = {one.definition.name: one for one in _classes(program) if one.library in _BY_MODEL}
    for script, call in program.calls:
        library = script.imported(call.func).replace(*_MODULE)
        if library in _BY_MODEL:
            yield _Made(script, call, library, {})
        elif (one := own.get(name_of(call))) is not None:
            yield _Made(script, call, one.library, one.methods)


def _accumulated(scripts: Sequence[Script], job: Job) -> Found:
    """huggingface/transformers#34198, #46731, #47688: who divides a loss by the accumulated steps; each version was measured."""
    version = versions_of(scripts, job).get("transformers", "")
    program = started(scripts, job.entry_point)
    steps = _value(program, job, _STEPS)
    if steps in ("", "1") or program.mentions(_SAID):
        return
    for made in _made(program):
        way, names = _way(program, job, made), _models(program, made)
        lengths = {wrong_length(name, way, version) for name in names or {""}} if way else {""}
        length = lengths.pop() if len(lengths) == 1 else ""
        # Those that a function computes are alike for all models; and too long by 4.46.3 alone, and losses without labels.
        known = names or way in ("compute_loss_func", _ITEMS)
        known = known and not (length == "too long" and (way == _ITEMS or _BY_MODEL[made.library] == _DIVIDED))
        if known and length:
            what = f"{_STEPS}={steps} makes a gradient {steps} times {length} with transformers {version}"
            of = {made.library} if made.library.startswith("trl.") else names
            whose = f" for {' and '.join(sorted(of))}" if way == "model" else _WHOSE[way]
            yield made.script, made.call.lineno, f"{what}{whose}: {_instead(way, length, version)}"


_WHOSE = {
    _SMOOTHS: f" for {_SMOOTHS}",
    _ITEMS: f" for a loss that is divided by {_ITEMS}",
    "compute_loss": f" for a compute_loss that does not divide by {_ITEMS}",
    "compute_loss_func": f" for a compute_loss_func that does not divide by {_ITEMS}",
}


def _instead(way: str, length: str, version: str) -> str:
    if length == "too short":
        return "accelerate divides once more, but with trainer.accelerator.gradient_accumulation_steps = 1 before it trains"
    if way == "compute_loss_func":
        return f"divide the sum of the losses by {_ITEMS}"
    if version.startswith(("4.46.", "4.47.")):
        return "use another version, or larger batches"
    return "set trainer.model_accepts_loss_kwargs = False before it trains, or use larger batches"


def _way(program: Program, job: Job, made: _Made) -> str:
    """Who computes the loss, as the table has it; "" where that is not known, or it is divided by the steps."""
    if "training_step" in made.methods or any(one.arg is None for one in made.call.keywords):
        return ""
    own, given = made.methods.get("compute_loss"), keyword(made.call, "compute_loss_func")
    if own is not None:
        return "" if "accum" in ast.unparse(own) else _ITEMS if _reads(own, _ITEMS) else _of_own(own)
    if given is not None and constant(given) is None and not isinstance(given, ast.Constant):
        functions = [one for one in program.definitions.get(ast.unparse(given), []) if isinstance(one, Function)]
        return "" if not functions else _ITEMS if any(map(_divides, functions)) else "compute_loss_func"
    smooths = _value(program, job, _SMOOTHS)
    return _SMOOTHS if smooths and _is_above_zero(smooths) else "model"


def _of_own(function: Function) -> str:
    """`_way` of a ``compute_loss`` that reads no items: "" where it hands them on, or is not given them."""
    more = function.args.kwarg
    takes = _ITEMS in [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
    return "compute_loss" if takes or (more is not None and not _reads(function, more.arg)) else ""


def _divides(function: Function) -> bool:
    """Whether a loss function may read how many items there are, which it is given by their name."""
    return function.args.kwarg is not None or _reads(function, _ITEMS)


def _reads(function: Function, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))


def _is_above_zero(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _models(program: Program, made: _Made) -> set[str]:
    """The classes that make the scripts' models, as far as they were measured; empty where one is not known."""
    if made.library.startswith("trl."):
        return {_BY_MODEL[made.library]}
    found = {
        name.rpartition(".")[2]
        for script in program.scripts
        for node in script.nodes
        if isinstance(node, ast.Name | ast.Attribute)
        and (name := script.imported(node)).startswith("transformers.")
        and re.search(r"(?:Model\w*For|For[A-Z]|LMHeadModel)\w*$", name.rpartition(".")[2])
        and "Collator" not in name
    }
    return found if all(map(models_of, found)) else set()


def _value(program: Program, job: Job, name: str) -> str:
    """The value of an option of TrainingArguments, as text; "" where it has its default, or is not known."""
    for _, call in program.calls:
        if name_of(call) in _ARGUMENTS:
            given = keyword(call, name)
            if isinstance(given, ast.Constant):
                return str(given.value)
            if given is not None:
                option = re.findall(r"\w+", ast.unparse(given))[-1]
                defaults = [constant(one) for one in program.defaults.get(option, [])]
                default = str(defaults[0]) if len(defaults) == 1 and defaults[0] is not None else ""
                return argument(job.arguments[option] or "") if option in job.arguments else default
    parses = any(name_of(call) in _PARSES for _, call in program.calls)
    return argument(job.arguments.get(name) or "") if parses else ""


def _items_of_all(scripts: Sequence[Script], job: Job) -> Found:
    """Transformers' ``average_tokens_across_devices``: it counts the items of all processes, and DDP divides by those again."""
    program = started(scripts, job.entry_point)
    told = program.mentions(re.compile(rf"{_AVERAGES}\W+(?!True)"))
    if is_alone(scripts, job) or told:
        return
    known = arguments_of("transformers.TrainingArguments", versions_of(scripts, job)) or {}
    averages = known.get(_AVERAGES)
    for made in _made(program) if averages is not None and averages.default == "True" else ():
        own = made.methods.get("compute_loss")
        if own is None or _OF_ALL.search(ast.unparse(own)):
            continue
        model = [one.arg for one in (*own.args.posonlyargs, *own.args.args)][1:2]
        script = program.script_of(own)
        for node in ast.walk(own):
            given = {ast.unparse(one.value) for one in node.keywords} if isinstance(node, ast.Call) else set()
            by_model = isinstance(node, ast.Call) and ast.unparse(node.func) in model and _ITEMS in given
            if by_model or _ITEMS in map(ast.unparse, divisors(node)):
                why = f"{_ITEMS} counts those of all processes, which divide their gradients by their number again"
                how = "multiply by self.accelerator.num_processes, or set average_tokens_across_devices=False"
                yield script, node.lineno, f"{why}: {how}"  # type: ignore[attr-defined]


TRAINERS: Mapping[str, Check] = {
    "override": _override,
    "accumulated-loss": _accumulated,
    "items-of-all": _items_of_all,
}
