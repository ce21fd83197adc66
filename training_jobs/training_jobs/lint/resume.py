"""The rules of jobs that are interrupted and go on: what they save, load and count.

Each has its source in its docstring. ``training-jobs check`` shows what they say by a run of the script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from training_jobs.lint.program import KERAS, LIGHTNING, TRAINERS, Program, function_around, programs
from training_jobs.lint.script import Check, Found, Function, Job, Loop, Script, constant, keyword, name_of
from training_jobs.lint.trainer_values import is_true

_SAVES = re.compile(
    r"torch\.save\b|xm\.save\b|save_(?:state|checkpoint|weights|pretrained|model)\b|ModelCheckpoint|BackupAndRestore|Checkpoint"
    r"|dcp\.|/opt/ml/checkpoints|resume_from_checkpoint|save_strategy|checkpoints?\.(?:save|write)|async_save"
)
_LOADS = re.compile(
    r"torch\.load\b|load_(?:state|state_dict|checkpoint|weights|model)\b|resume_from_checkpoint|get_last_checkpoint|restore"
    r"|BackupAndRestore|latest_checkpoint|dcp\.load|load_from_checkpoint|ckpt_path"
)
# What `from_pretrained` is given where that is a checkpoint, and not a model to begin with.
_OF_JOB = re.compile(r"ckpt|checkpoint|resum|last|latest|output|opt/ml|save", re.IGNORECASE)
_ASKS = re.compile(r"exists|isfile|isdir|is_file|is_dir|listdir|glob")
_OF_OTHERS = re.compile(r"init_|initial|pre_?train", re.IGNORECASE)
# The handlers of aws/sagemaker-pytorch-inference-toolkit and aws/sagemaker-tensorflow-serving-container.
_OF_INFERENCE = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn", "input_handler", "output_handler")
_OPTIMIZER = re.compile(r"adam|sgd|optim|lion|adafactor|rmsprop|lamb|\bopt", re.IGNORECASE)
_WITH_MOMENTS = ("Adam", "AdamW", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Adafactor")
_WRITES = {"save_pretrained", "save_state", "save_checkpoint", "save_weights", "save_model", "async_save", "dcp_save"}
_READS = re.compile(r"torch\.load\b|\.load_state\(|dcp\.load|checkpoint\.load\(|load_file\(")
_RESTORES = ("load_state", "load_state_dict")
# Which go on from the optimizer's rate.
_OF_RATE = ("ReduceLROnPlateau", "ExponentialLR", "MultiplicativeLR")
_SCHEDULERS = re.compile(r"(?:LR|get_\w*schedule\w*|Scheduler)$")
_OF_SCHEDULER = re.compile(r"sched|\blr_|_lr\b", re.IGNORECASE)
_KNOWN = re.compile(
    r"model|net\b|network|optim|opt\b|scaler|ema|encoder|decoder|head|backbone|generator|discrim", re.IGNORECASE
)
_NUMBER = re.compile(r"epoch|step|iter|\b[ein]\b")
_NOT_OVERWRITTEN = re.compile(r"not \w+\.overwrite_output_dir")
_PARSERS = ("HfArgumentParser", "TrlParser")
_NAMES = ("listdir", "glob", "iglob", "scandir", "iterdir", "rglob")


@dataclass(frozen=True)
class _Training:
    """A program's loops that train, and what runs within them."""

    program: Program

    @cached_property
    def _called(self) -> Mapping[str, set[str]]:
        """What each function and class calls, by name."""
        return {
            name: {name_of(call) for one in made for call in ast.walk(one) if isinstance(call, ast.Call)}
            for name, made in self.program.definitions.items()
        }

    @cached_property
    def stepping(self) -> set[str]:
        """The names of the functions that make steps, or call such."""
        found = {
            function.name
            for script in self.program.scripts
            for loop in script.step_loops
            if (function := function_around(script, loop)) is not None
        }
        functions = [name for name, made in self.program.definitions.items() if isinstance(made[0], Function)]
        while more := {name for name in functions if self._called[name] & found} - found:
            found |= more
        return found

    @cached_property
    def loops(self) -> list[tuple[Script, Loop]]:
        """The loops around steps."""
        return [
            (script, node)
            for script in self.program.scripts
            for node in script.nodes
            if isinstance(node, Loop) and self._steps(script, node)
        ]

    def _steps(self, script: Script, loop: Loop) -> bool:
        return any(
            one in script.step_loops or (isinstance(one, ast.Call) and name_of(one) in self.stepping)
            for one in ast.walk(loop)
        )

    @cached_property
    def _reached(self) -> set[str]:
        """The names of the functions that may run within a loop: by a call there, or since they are given on."""
        called = {
            name_of(call)
            for script in self.program.scripts
            for loop in script.nodes
            if isinstance(loop, Loop)
            for call in ast.walk(loop)
            if isinstance(call, ast.Call)
        }
        for script in self.program.scripts:
            functions = {id(call.func) for call in script.calls}
            called |= {
                node.id if isinstance(node, ast.Name) else node.attr
                for node in script.nodes
                if isinstance(node, ast.Name | ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and id(node) not in functions
            }
        found = called & self._called.keys()
        while more := set().union(*(self._called[name] for name in found)) & self._called.keys() - found:
            found |= more
        return found

    def runs_in(self, script: Script, node: ast.AST) -> bool:
        """Whether a node may run in a loop."""
        around = list(script.ancestors(node))
        if any(isinstance(one, Loop) for one in around):
            return True  # whichever it is: its steps may be made by a function that it was given
        names = {one.name for one in around if isinstance(one, Function | ast.ClassDef)}
        return bool(names & self._reached) or any(name.startswith("on_") for name in names)


def _trained(scripts: Sequence[Script], job: Job) -> Iterator[_Training]:
    """The programs whose loops are written by hand, of a job that goes on where it was."""
    for program in programs(scripts, job.entry_point) if job.resumes else ():
        if program.by_hand or "accelerate" in set().union(*(script.imports for script in program.scripts)):
            yield _Training(program)


def _checkpoint(scripts: Sequence[Script], job: Job) -> Found:
    """AWS's "Managed Spot Training": without checkpoints an interrupted job begins again; nothing restores them by itself."""
    if not job.spot:
        return
    trains, loads = _by_library(scripts)
    loop = trains or next(((script, script.step_loops[0].lineno) for script in scripts if script.step_loops), None)
    if loop is None:
        return
    begins = "/opt/ml/checkpoints, and a spot job that is interrupted begins again"
    if trains is None and not any(_SAVES.search(_without_inference(script)) for script in scripts):
        yield *loop, f"nothing saves a checkpoint below {begins}"
    elif not loads and not _loads(scripts):
        yield *loop, f"nothing loads the last checkpoint from {begins}"


def _by_library(scripts: Sequence[Script]) -> tuple[tuple[Script, int] | None, bool]:
    """Where transformers' or Lightning's Trainer trains, and whether that may load a checkpoint."""
    found = list[tuple[Script, ast.Call]]()
    for script in scripts:
        made = {
            ast.unparse(target)
            for node in script.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and name_of(node.value).endswith("Trainer")
            for target in node.targets
        }
        packages = {
            name.partition(".")[0] for name in script.aliases.values() if name.endswith("Trainer") or "." not in name
        }
        method = "train" if packages & {*TRAINERS} else "fit" if packages & {*LIGHTNING} else ""
        found += [
            (script, call)
            for call in script.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == method
            and ast.unparse(call.func.value) in made
        ]
    if not found:
        return None, False
    loads = any(
        any(one.arg in (None, "resume_from_checkpoint", "ckpt_path") for one in call.keywords)
        or len(call.args) >= (1 if name_of(call) == "train" else 5)
        for _, call in found
    )
    return (found[0][0], found[0][1].lineno), loads


def _loads(scripts: Sequence[Script]) -> bool:
    """Whether something may load what the job has saved, which ``from_pretrained`` of another name does not."""
    return any(_LOADS.search(_without_inference(script)) for script in scripts) or any(
        name_of(call) == "from_pretrained" and any(_OF_JOB.search(ast.unparse(one)) for one in call.args)
        for script in scripts
        for call in script.calls
    )


def _without_inference(script: Script) -> str:
    """A script's text without imports, and without the functions by which AWS's containers serve a model, which load it too."""
    lines = script.text.splitlines()
    for node in script.nodes:
        serves = isinstance(node, ast.FunctionDef) and node.name in _OF_INFERENCE
        if serves or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            lines[node.lineno - 1 : node.end_lineno] = [""] * len(lines[node.lineno - 1 : node.end_lineno])
    return "\n".join(lines)


def _saved_at_end(scripts: Sequence[Script], job: Job) -> Found:
    """AWS's "Checkpoints in Amazon SageMaker AI": they are "snapshots under training due to an unexpected interruption"."""
    for training in _trained(scripts, job):
        program = training.program
        writes = [(script, call) for script, call in program.calls if _writes(script, call)]
        if writes and _loads(program.scripts) and not any(training.runs_in(*one) for one in writes):
            (script, call), why = writes[0], "the only checkpoint is saved after the last step"
            yield (
                script,
                call.lineno,
                f"{why}, and an interrupted job begins again: save in the loop, as after each epoch",
            )


def _writes(script: Script, call: ast.Call) -> bool:
    return script.imported(call.func) in ("torch.save", "torch_xla.core.xla_model.save") or name_of(call) in _WRITES


def _restores(program: Program) -> bool:
    """Whether the optimizer of the script that trains goes on with its state, by that script or a function that it calls."""
    called = {name_of(call) for call in program.script.calls}
    if not program.mentions(_READS):
        return False
    for script, call in program.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _RESTORES:
            continue
        around = function_around(script, call)
        here = script is program.script or (around is not None and around.name in called)
        if here and (call.func.attr == "load_state" or _OPTIMIZER.search(ast.unparse(call.func.value))):
            return True
    return False


def _epochs_again(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's tutorial "Saving and loading a general checkpoint": it saves the epoch, and reads ``checkpoint['epoch']``."""
    for training in _trained(scripts, job):
        if not _restores(training.program):
            continue
        counted = [(script, loop) for script, loop in training.loops if _counts(loop)]
        if not counted or any(_goes_on(loop) for _, loop in training.loops):
            continue
        script, loop = counted[0]
        assert isinstance(loop, ast.For)
        text = f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
        why = "the loop begins at 0 again, though the optimizer goes on, so that an interrupted job trains for longer"
        yield script, loop.lineno, f"{text}: {why}: save the number with the checkpoint, and begin there"


def _counts(loop: Loop) -> bool:
    """Whether a loop counts from 0: ``range(n)``, also in ``tqdm``."""
    return isinstance(loop, ast.For) and (found := _range(loop.iter)) is not None and _from_zero(found)


def _range(node: ast.expr) -> ast.Call | None:
    """The call of ``range`` in what is looped over."""
    while isinstance(node, ast.Call):
        if name_of(node) in ("range", "trange"):
            return node
        if not node.args:
            return None
        node = node.args[0]
    return None


def _from_zero(call: ast.Call) -> bool:
    if not call.args or any(isinstance(one, ast.BinOp) for one in ast.walk(call)):
        return False  # `range(epochs - done)`
    return len(call.args) == 1 or constant(call.args[0]) == 0


def _goes_on(loop: Loop) -> bool:
    """Whether a loop around steps may begin or end by what a checkpoint has."""
    if not isinstance(loop, ast.For):
        return True
    if (found := _range(loop.iter)) is not None and not _from_zero(found):
        return True
    return any(isinstance(one, ast.Continue | ast.Break | ast.Return) for one in ast.walk(loop))


def _scheduler_state(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's "Adjusting learning rate": a scheduler has a ``state_dict``; transformers' Trainer saves it as scheduler.pt."""
    for training in _trained(scripts, job):
        program = training.program
        if not _restores(program):
            continue
        loaded = {
            ast.unparse(call.func.value)
            for _, call in program.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr in _RESTORES
        }
        prepared = {
            ast.unparse(one)
            for _, call in program.calls
            if name_of(call) in ("prepare", "register_for_checkpointing", "prepare_scheduler")
            for one in call.args
        }
        if any(map(_OF_SCHEDULER.search, loaded)) or not all(
            _KNOWN.search(one) or one.endswith(("accelerator", "fabric")) for one in loaded
        ):
            continue
        for script, name, made in _schedulers(program):
            steps = [call for _, call in program.calls if ast.unparse(call.func) == f"{name}.step"]
            from_epoch = any(call.args or call.keywords for call in steps) or keyword(made, "last_epoch") is not None
            if steps and not from_epoch and name not in prepared:
                why = f"{name_of(made)} begins at its first step again, though the optimizer goes on"
                yield script, made.lineno, f"{why}: save {name}.state_dict() too, and load it"


def _schedulers(program: Program) -> Iterator[tuple[Script, str, ast.Call]]:
    """The schedulers of learning rates, by the names of their variables."""
    for script in program.scripts:
        for node in script.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name, whole = name_of(node.value), script.imported(node.value.func)
                known = whole.startswith(("torch.optim", "transformers")) and name not in _OF_RATE
                if known and _SCHEDULERS.search(name):
                    yield script, ast.unparse(node.targets[0]), node.value


def _newest_by_name(scripts: Sequence[Script], job: Job) -> Found:
    """Python, "Sorting Techniques": texts are compared by their characters, so that ``epoch-9`` comes after ``epoch-10``."""
    if not job.resumes:
        return
    if not any(_numbered(script) for script in scripts):
        return
    for script in scripts:
        for node in script.nodes:
            if (call := _last_by_name(node)) is not None and _OF_JOB.search(_around(script, node)):
                why = f"{ast.unparse(node)} has the last of the names, of which 'epoch-9' comes after 'epoch-10'"
                yield script, call.lineno, f"{why}: compare their numbers, or write them as f'{{epoch:04}}'"


def _around(script: Script, node: ast.AST) -> str:
    """The text of a node, of its statement and of its function's name."""
    statement = next((one for one in (node, *script.ancestors(node)) if isinstance(one, ast.stmt)), node)
    function = function_around(script, node)
    return f"{ast.unparse(statement)} {'' if function is None else function.name}"


def _last_by_name(node: ast.AST) -> ast.Call | None:
    """The call that lists names, where a node is the last of them: ``sorted(names)[-1]`` or ``max(names)``, without a key."""
    call: ast.AST = node
    if isinstance(node, ast.Subscript):
        if ast.unparse(node.slice) != "-1":
            return None
        call = node.value
    if not isinstance(call, ast.Call) or name_of(call) != ("sorted" if call is not node else "max") or call.keywords:
        return None
    names = call.args[0] if len(call.args) == 1 else None
    return names if isinstance(names, ast.Call) and name_of(names) in _NAMES else None


def _numbered(script: Script) -> bool:
    """Whether it saves under a name with a number that is not padded."""
    return any(
        isinstance(text, ast.FormattedValue) and text.format_spec is None and _NUMBER.search(ast.unparse(text.value))
        for call in script.calls
        if _writes(script, call)
        for text in ast.walk(call)
    )


def _optimizer_state(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's tutorial "Saving and loading a general checkpoint": "It is important to also save the optimizer's state_dict"."""
    for program in programs(scripts, job.entry_point) if job.resumes else ():
        saves = [(one, call) for one, call in program.calls if one.imported(call.func) == "torch.save"]
        moments = [name for _, call in program.calls if (name := name_of(call)) in _WITH_MOMENTS]
        kept = [
            call
            for _, call in program.calls
            if name_of(call) in ("state_dict", "save", "get_state_dict") and _OPTIMIZER.search(ast.unparse(call))
        ]
        if program.by_hand and moments and saves and not kept and "load_state_dict" in program.used:
            (script, call), why = saves[0], f"an interrupted job goes on without the moments of {moments[0]}"
            yield script, call.lineno, f"{why}: save optimizer.state_dict() too, and load it"


def _save_only_model(scripts: Sequence[Script], job: Job) -> Found:
    """Transformers, TrainingArguments: with ``save_only_model`` "you won't be able to resume training from checkpoint"."""
    why = "the optimizer and its schedule begin again after an interruption, with nothing but the model: leave it out"
    for script in scripts if job.resumes else ():
        for call in script.calls:
            given = _is_given(job, "save_only_model") and name_of(call) in _PARSERS
            if constant(keyword(call, "save_only_model")) is True or given:
                yield script, call.lineno, f"save_only_model=True: {why}"


def _is_given(job: Job, name: str) -> bool:
    """Whether the job gives the script an option that is true."""
    return is_true((job.arguments.get(name) or "").strip('"'))


def _overwrites(scripts: Sequence[Script], job: Job) -> Found:
    """Transformers' examples until 4.57: "not training_args.overwrite_output_dir" is a condition of ``get_last_checkpoint``."""
    if not job.resumes or not _is_given(job, "overwrite_output_dir"):
        return
    for script in scripts:
        for node in script.nodes:
            resumes = isinstance(node, ast.If) and any(
                isinstance(call, ast.Call) and name_of(call) == "get_last_checkpoint"
                for one in node.body
                for call in ast.walk(one)
            )
            if isinstance(node, ast.If) and resumes and _NOT_OVERWRITTEN.search(ast.unparse(node.test)):
                why = "with overwrite_output_dir no checkpoint is loaded, and an interrupted job begins again"
                yield script, node.lineno, f"{why}: leave it out of the hyperparameters"


def _no_checkpoint_yet(scripts: Sequence[Script], job: Job) -> Found:
    """Transformers, Trainer.train: "No valid checkpoint found in output directory" is a ValueError."""
    for script in scripts:
        for call in script.calls:
            if name_of(call) != "train" or constant(keyword(call, "resume_from_checkpoint")) is not True:
                continue
            if not any(isinstance(one, ast.If | ast.IfExp | ast.Try | ast.While) for one in _inside(script, call)):
                how = "resume_from_checkpoint=get_last_checkpoint(args.output_dir)"
                yield script, call.lineno, f"the first start ends here, since it finds no checkpoint to resume: {how}"


def _inside(script: Script, node: ast.AST) -> Iterator[ast.AST]:
    """What is around a node, but for ``if __name__ == "__main__"``."""
    for one in script.ancestors(node):
        if not (isinstance(one, ast.If) and "__name__" in ast.unparse(one.test)):
            yield one


def _is_of_job(script: Script, call: ast.Call) -> bool:
    """Whether a call loads what the job has saved: by its names, or where that is there."""
    text = _around(script, call)
    asks = any(isinstance(one, ast.If) and _ASKS.search(ast.unparse(one.test)) for one in script.ancestors(call))
    return (asks or _OF_JOB.search(text) is not None) and not _OF_OTHERS.search(text)


def _initial_epoch(scripts: Sequence[Script], job: Job) -> Found:
    """Keras, Model.fit: ``initial_epoch``: "Epoch at which to start training (useful for resuming a previous training run)"."""
    if not job.resumes or any("BackupAndRestore" in script.used_names for script in scripts):
        return
    for script in scripts:
        if not script.imports & KERAS or "initial_epoch" in script.text:
            continue
        loads = [
            call
            for call in script.calls
            if name_of(call) in ("load_weights", "load_model", "restore") and _is_of_job(script, call)
        ]
        fits = [call for call in script.calls if name_of(call) == "fit" and keyword(call, "epochs") is not None]
        if loads and fits and loads[0].lineno < fits[0].lineno:
            why = "all epochs are trained again after an interruption, from the model that is loaded"
            yield script, fits[0].lineno, f"{why}: fit(initial_epoch=...), or keras.callbacks.BackupAndRestore"


RESUME: Mapping[str, Check] = {
    "checkpoint": _checkpoint,
    "saved-at-end": _saved_at_end,
    "epochs-again": _epochs_again,
    "optimizer-state": _optimizer_state,
    "scheduler-state": _scheduler_state,
    "newest-by-name": _newest_by_name,
    "save-only-model": _save_only_model,
    "overwrites": _overwrites,
    "no-checkpoint-yet": _no_checkpoint_yet,
    "initial-epoch": _initial_epoch,
}
