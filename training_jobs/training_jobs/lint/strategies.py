"""The rules of several replicas of tf.distribute, whose gradients versions of Keras add, average or leave apart.

`release/replica_table.py` measures each version beside one device with the same batch (`facts/replicas.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training_jobs.facts.replicas import RIGHT, Strategy, results, right_since
from training_jobs.lint.program import KERAS, Program, started, whole
from training_jobs.lint.removed import LEGACY_KERAS
from training_jobs.lint.script import Check, Found, Function, Job, Script, constant, keyword, name_of, versions_of

_REPLICATES = re.compile(r"^(?:MultiWorkerMirrored|Mirrored|TPU|CentralStorage)Strategy\w*$")
# By what the gradients of replicas are added otherwise, or not at all.
_AGGREGATES = re.compile(r"aggregate_gradients|horovod|smdistributed|merge_call")
_MEAN = "tensorflow.reduce_mean"
_MODEL = re.compile(r"model|net\b|gan\b|encoder\b|self$", re.IGNORECASE)
_STRATEGY = re.compile(r"strat", re.IGNORECASE)
_OF_FIT = {"epochs", "validation_data", "callbacks", "batch_size", "steps_per_epoch", "validation_split"}
_MEANS = re.compile(
    r"(?:tensorflow\.(?:math\.)?reduce_mean|(?:tensorflow\.)?keras\.ops\.mean|(?:tensorflow\.)?keras\.backend\.mean)"
)
_LOSS = re.compile(r"(?:tensorflow\.)?keras\.losses\.Loss")
# What describes the machines to TensorFlow.
_CLUSTER = re.compile(r"TF_CONFIG|cluster_?resolver", re.IGNORECASE)
_ACCUMULATES = "gradient_accumulation_steps"
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
# By what replicas may be counted, or gradients aggregated otherwise.
_BY_NUMBER = re.compile(
    r"num_replicas|n(?:um)?_?gpus?\b|world_?size|compute_average_loss|aggregate_gradients|merge_call|all_reduce",
    re.IGNORECASE,
)
_ADDS = "replicas add their gradients, and this loss is the mean of one replica's batch, so that a step is too long"


class _Replicas(NamedTuple):
    """A program whose model has several replicas.

    Attributes:
        program: It.
        strategy: That of tf.distribute.
        keras: The version of Keras; "" where that is not known.
    """

    program: Program
    strategy: Strategy
    keras: str

    def results(self, way: str) -> frozenset[str]:
        """How they train by a way, as far as that is known."""
        return results(self.strategy, way, self.keras) if self.keras else frozenset()

    def is_wrong(self, way: str) -> bool:
        """Whether steps of ``fit`` by a way are too long, of each version that it may be, and those of plain ``fit`` are not."""
        return self.results(f"fit, {way}") == {"too long"} and self.results("fit") == {RIGHT}

    @property
    def fits(self) -> list[tuple[Script, ast.Call]]:
        """Where it trains by ``fit``."""
        calls = [(script, call) for script, call in self.program.calls if name_of(call) == "fit"]
        return [
            (script, call)
            for script, call in calls
            if _OF_FIT & {one.arg for one in call.keywords}
            or (isinstance(call.func, ast.Attribute) and _MODEL.search(ast.unparse(call.func.value)))
        ]


def _replicas(scripts: Sequence[Script], job: Job) -> Iterator[_Replicas]:
    """The program that a job starts, if its model has several replicas."""
    program = started(scripts, job.entry_point) if scripts else None
    if program is None or program.mentions(LEGACY_KERAS) or not any(KERAS & one.imports for one in program.scripts):
        return
    keras = versions_of(program.scripts, job).get("keras", "")
    if (job.hosts or 1) > 1 and "MultiWorkerMirroredStrategy" in program.used:
        yield _Replicas(program, "MultiWorkerMirroredStrategy", keras)
    elif (job.devices or 1) > 1 and "MirroredStrategy" in program.used and not _on_one_device(program):
        yield _Replicas(program, "MirroredStrategy", keras)


def _on_one_device(program: Program) -> bool:
    """Whether a strategy names one device, or may name fewer than there are."""
    made = [call for _, call in program.calls if name_of(call) == "MirroredStrategy"]
    devices = [one for call in made for one in (*call.args, keyword(call, "devices")) if one is not None]
    return any(not isinstance(one, ast.List | ast.Tuple) or len(one.elts) < 2 for one in devices)


def _fit(scripts: Sequence[Script], job: Job) -> Found:
    """keras-team/keras#19891, #20585; `resources/scripts/mnist.py` of AWS's test of its container; each version was measured."""
    for replicas in _replicas(scripts, job):
        by_run = any(
            name_of(call) == "run" and _STRATEGY.search(ast.unparse(call.func)) for _, call in replicas.program.calls
        )
        # A script that has both may choose by the number of machines, as AWS's own test of its container does.
        fits = [] if by_run and replicas.strategy == "MultiWorkerMirroredStrategy" else replicas.fits
        steps = [one for one in replicas.program.calls if name_of(one[1]) in ("apply_gradients", "apply")]
        way, calls = ("fit", fits) if fits else ("run, compute_average_loss", steps if by_run else [])
        wrong = replicas.results(way) - {RIGHT}
        for script, call in calls[:1] if wrong else ():
            yield script, call.lineno, f"{_how_wrong(wrong, way, replicas)}: {_mends(way, replicas.strategy)}"
        if fits and replicas.strategy == "MirroredStrategy":
            yield from _accumulates(replicas)


def _accumulates(replicas: _Replicas) -> Found:
    """Where an optimizer accumulates, if that ends with each version that it may be."""
    found = replicas.results(f"fit, {_ACCUMULATES}")
    for script, call in replicas.program.calls if found and RIGHT not in found else ():
        if constant(keyword(call, _ACCUMULATES)) is not None:
            why = f"with {_ACCUMULATES}, Keras 3's fit ends with a RuntimeError in MirroredStrategy"
            yield script, call.lineno, f"{why}: leave it out, or a loop by strategy.run() that adds gradients"


def _how_wrong(wrong: frozenset[str], way: str, replicas: _Replicas) -> str:
    """What replicas do with gradients, by one version of Keras or by those that it may be."""
    texts = {
        "each alone": "each replica trains with the gradient of its own part of the batch alone",
        "too long": "gradients of replicas are added, not averaged, so that a step is as many times too long as there are",
    }
    ends = "fit ends with an error in MultiWorkerMirroredStrategy (keras-team/keras#20585)"
    said = " or ".join(sorted({texts.get(one, ends) for one in wrong}))
    since = right_since(replicas.strategy, way)
    unknown = f"before {since}, which may be the container's" if since else "3"
    return f"with Keras {unknown if replicas.keras == '3' else replicas.keras}, {said}"


def _mends(way: str, strategy: Strategy) -> str:
    if since := right_since(strategy, way):
        return f"keras>={since} in a requirements.txt"
    return (
        "a step by strategy.run() with tf.nn.compute_average_loss, "
        "or tf_keras in a requirements.txt with environment={'TF_USE_LEGACY_KERAS': '1'}"
    )


def _mean(scripts: Sequence[Script], job: Job) -> Found:
    """TensorFlow's "Custom training with tf.distribute.Strategy": the loss of a replica is divided by the global batch."""
    for replicas in _replicas(scripts, job):
        program = replicas.program
        if not replicas.fits:
            continue
        for way, function in _losses(program):
            script = program.script_of(function)
            if replicas.is_wrong(way) and (line := _line_of_mean(script, function)):
                yield script, line, f"{_ADDS}: return one for each sample: tf.reduce_mean(..., axis=-1)"
        for way, method in _methods(program):
            script = program.script_of(method)
            line = _line_of_mean(script, method) if way == "compute_loss" else _line_of_step(script, method)
            if line and replicas.is_wrong(way):
                yield script, line, f"{_ADDS}: / tf.distribute.get_strategy().num_replicas_in_sync"


def _losses(program: Program) -> Iterator[tuple[str, Function]]:
    """The functions of a program's own that compute a compiled loss, each with the way."""
    given = [loss for _, call in program.calls if name_of(call) == "compile" and (loss := keyword(call, "loss"))]
    for value in (one for loss in given for one in (loss, *program.assigned(loss))):
        name = name_of(value) if isinstance(value, ast.Call) else ast.unparse(value)
        for found in program.definitions.get(name, ()):
            if isinstance(found, ast.ClassDef):
                is_loss = any(_LOSS.fullmatch(program.script_of(found).imported(base)) for base in found.bases)
                methods = (one for one in found.body if isinstance(one, Function) and one.name == "call")
                yield from (("Loss", one) for one in methods if is_loss)
            elif isinstance(value, ast.Call):  # a function that makes one
                made = {ast.unparse(one.value) for one in found.body if isinstance(one, ast.Return) and one.value}
                inner = (one for one in found.body if isinstance(one, Function))
                yield from (("loss function", one) for one in inner if one.name in made)
            else:
                yield "loss function", found


def _methods(program: Program) -> Iterator[tuple[str, Function]]:
    """What a program overrides of Keras's Model, each with the way."""
    for name, way in (("compute_loss", "compute_loss"), ("train_step", "train_step, mean")):
        for found in program.definitions.get(name, ()):
            is_method = isinstance(program.script_of(found).parents[found], ast.ClassDef)
            if isinstance(found, Function) and is_method:
                yield way, found


def _line_of_mean(script: Script, function: Function) -> int:
    """The line of what a function returns, if all of it is the mean of a batch; else 0."""
    returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    is_mean = all(one.value is not None and _is_mean(script, function, one.value) for one in returns)
    return returns[0].lineno if returns and is_mean and not _BY_NUMBER.search(ast.unparse(function)) else 0


def _line_of_step(script: Script, method: Function) -> int:
    """The line of a gradient in a step, if it is of the mean of a batch; else 0."""
    calls = (one for one in ast.walk(method) if isinstance(one, ast.Call) and one.args)
    of_loss = (one for one in calls if name_of(one) in ("gradient", "minimize"))
    lines = (one.lineno for one in of_loss if _is_mean(script, method, one.args[0]))
    return 0 if _BY_NUMBER.search(ast.unparse(method)) else next(lines, 0)


def _is_mean(script: Script, function: Function, value: ast.expr) -> bool:
    """Whether a value is the mean of all of a batch, or a sum of such."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub | ast.Mult):
        parts = [one for one in (value.left, value.right) if not _is_number(one)]
        return bool(parts) and all(_is_mean(script, function, one) for one in parts)
    if isinstance(value, ast.Name):
        assigned = [one.value for one in ast.walk(function) if value.id in _targets(one)]  # type: ignore[attr-defined]
        return bool(assigned) and all(_is_mean(script, function, one) for one in assigned)
    if not isinstance(value, ast.Call):
        return False
    of_all = len(value.args) == 1 and keyword(value, "axis") is None
    return of_all and _MEANS.fullmatch(script.imported(value.func)) is not None


def _targets(node: ast.AST) -> list[str]:
    """What a node assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return list(map(ast.unparse, targets))


def _is_number(value: ast.expr) -> bool:
    """Whether a value may be a weight in a sum: a number, or an attribute."""
    return constant(value) is not None or isinstance(value, ast.Attribute)


def _clip(scripts: Sequence[Script], job: Job) -> Found:
    """Keras 3's ``BaseOptimizer.apply`` clips gradients before replicas add them, Keras 2 after; each version was measured."""
    for replicas in _replicas(scripts, job):
        for script, call in replicas.program.calls if replicas.fits else ():
            for name in _CLIPS:
                limit = keyword(call, name)
                if limit is None or constant(limit) is None or not replicas.is_wrong(name):
                    continue
                why = f"{name} limits the gradient of each replica, and then they are added, so that a step may be too long"
                yield script, call.lineno, f"{why}: {name}={ast.unparse(limit)} / strategy.num_replicas_in_sync"


def _config(scripts: Sequence[Script], job: Job) -> Found:
    """sagemaker-tensorflow-training's ``training.py`` sets TF_CONFIG for a launcher alone; without it there is one worker."""
    if (job.hosts or 1) < 2 or job.launched is not False or not scripts:
        return
    program = started(scripts, job.entry_point)
    for script, call in () if program.mentions(_CLUSTER) else program.calls:
        if name_of(call) == "MultiWorkerMirroredStrategy":
            why = f"each of the job's {job.hosts} machines trains a model of its own, since nothing sets TF_CONFIG"
            yield script, call.lineno, f"{why}: launcher=MultiWorkerMirrored()"


def _replica_mean(scripts: Sequence[Script], job: Job) -> Found:
    """TensorFlow's Reduction: a batch's mean is "not supported [...] with tf.distribute.Strategy outside of built-in" loops."""
    of_one = (job.device == "cpu" and job.processes == 1) or (job.hosts == 1 and job.devices in (0, 1))
    for script in () if of_one else scripts:
        replicates = "run" in script.used_names and any(map(_REPLICATES.search, script.used_names))
        if not replicates or _AGGREGATES.search(script.text):
            continue
        values = whole((script,)).values
        for call in script.calls:
            if name_of(call) != "gradient" or not call.args:
                continue
            loss = ast.unparse(call.args[0])
            given = [(one.lineno, one) for one in values.get(loss, [])] or [(call.lineno, call.args[0])]
            is_mean = [isinstance(one, ast.Call) and script.imported(one.func) == _MEAN for _, one in given]
            if all(is_mean) and not _is_scaled_by_replicas(script, loss):
                why = "replicas add their gradients, and this loss is the mean of one replica's batch, so that a step is too long"
                how = "tf.nn.compute_average_loss(..., global_batch_size=...)"
                yield script, given[0][0], f"{why} by their number: {how}"


def _is_scaled_by_replicas(script: Script, loss: str) -> bool:
    """Whether a loss or its gradients may be divided by the number of replicas."""
    return any(
        "num_replicas" in (text := ast.unparse(node)) and (loss in text or "loss" in text or "grad" in text)
        for node in script.nodes
        if isinstance(node, ast.BinOp | ast.AugAssign)
    )


STRATEGIES: Mapping[str, Check] = {
    "strategy-fit": _fit,
    "strategy-mean": _mean,
    "replica-mean": _replica_mean,
    "strategy-clip": _clip,
    "tf-config": _config,
}
