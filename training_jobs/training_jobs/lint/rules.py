"""The rules, each with its source.

"Compiler" is AWS's guide, "SageMaker Training Compiler Best Practices and Considerations"; "XLA" is PyTorch/XLA's guide,
"Troubleshooting" and "PyTorch on XLA devices". Where a rule says "each step", a line below ``if step % 10 == 0:`` is none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from training_jobs.facts.packages import distribution_of
from training_jobs.lint.dataclass_options import unknown_arguments, wrong_values
from training_jobs.lint.distributed import DISTRIBUTED
from training_jobs.lint.downloads import downloaded
from training_jobs.lint.hosts import HOSTS
from training_jobs.lint.optional_dependencies import dependencies_in
from training_jobs.lint.program import on_xla
from training_jobs.lint.removed import removed
from training_jobs.lint.replicas import REPLICAS
from training_jobs.lint.resume import RESUME
from training_jobs.lint.scales import SCALES
from training_jobs.lint.script import (
    Check,
    Found,
    Job,
    Script,
    always_imported,
    constant,
    keyword,
    name_of,
    variable_read,
    versions_of,
    whole_name,
)
from training_jobs.lint.shares import SHARES
from training_jobs.lint.strategies import STRATEGIES
from training_jobs.lint.trainers import TRAINERS
from training_jobs.lint.wrapped import WRAPPED

RULES: dict[str, Check] = {
    **DISTRIBUTED,
    **REPLICAS,
    **RESUME,
    **SHARES,
    **WRAPPED,
    **SCALES,
    **HOSTS,
    **TRAINERS,
    **STRATEGIES,
}

_LOGS = re.compile(
    r"^(?:print|xm\.master_print|(?:\w+\.)*(?:log(?:ger|ging)?|_logger)\.(?:info|debug|warning)|"
    r"(?:\w+\.)*(?:wandb|mlflow|accelerator|fabric|run)\.log|"
    r"(?:\w+\.)*(?:log_metrics?|add_scalars?|set_postfix|set_description|log_scalar))$"
)
_READS = ("item", "tolist", "numpy")
_MARKS = re.compile(r"mark_step|DeviceLoader|ParallelLoader|torch_xla\.(?:sync|step|compile)\b|accelerator\.backward")
_GROUP = re.compile(r"SM_CURRENT_INSTANCE_GROUP|current_group_name|current_instance_group")
_GROUPS = re.compile(r"SM_INSTANCE_GROUPS_DICT|instance_groups_dict")
_EVALUATES = re.compile(r"eval|valid|test|predict")
_HOST = re.compile(r"\balgo-\d+\b")
_WHOLE_LINES = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")


# How a script asks whether the toolkit started it.
_ASKS = re.compile(
    r"""["']SM_\w+["']\s+(?:not\s+)?in\b|(?:get|getenv|setdefault)\(\s*["']SM_|environ\[["']SM_\w+["']\]\s*=(?!=)"""
)


def _rule(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        RULES[name] = check
        return check

    return register


def _compiled(scripts: Sequence[Script], job: Job) -> list[Script]:
    """The scripts of a job with a compiler, or those that call one."""
    return [
        script
        for script in scripts
        if job.compiled
        or job.xla
        or "torch_xla" in script.imports
        or any(
            whole_name(one) == "torch.compile" or constant(keyword(one, "jit_compile")) is True for one in script.calls
        )
    ]


def _step_calls(scripts: Sequence[Script]) -> Iterator[tuple[Script, ast.Call]]:
    for script in scripts:
        yield from ((script, node) for node in script.each_step if isinstance(node, ast.Call))


def _reads_value(script: Script, node: ast.AST) -> bool:
    """Whether an expression reads the value of one of the step's tensors."""
    return any(
        isinstance(one, ast.Call)
        and (
            (name_of(one) == "item" and not one.args)
            or (name_of(one) in (*_READS, "float") and bool(_names(one) & script.tensors))
        )
        for one in ast.walk(node)
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _logged(script: Script, call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)] if _LOGS.match(whole_name(call)) else []


@_rule("item")
def _item(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: ``loss.item()`` and the like make XLA evaluate what it would have fused; PyTorch's graph breaks likewise."""
    for script, call in _step_calls(_compiled(scripts, job)):
        around = [one for one in script.ancestors(call) if isinstance(one, ast.Call)]
        logged = any(_logged(script, one) or name_of(one) in (*_READS, "float") for one in around)
        if not logged and _reads_value(script, call) and name_of(call) in (*_READS, "float"):
            why = "in each step makes the host wait for the device and ends the compiled graph: read it every N steps"
            yield script, call.lineno, f"{ast.unparse(call)} {why}"


@_rule("print-tensor")
def _print_tensor(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: ``print(a)`` of an intermediate tensor makes the compiler compute it again, alone."""
    for script, call in _step_calls(_compiled(scripts, job)):
        names = set().union(*(_names(part) for part in _logged(script, call))) & script.tensors
        if names and whole_name(call) in ("print", "xm.master_print") and not _reads_value(script, call):
            yield script, call.lineno, f"print of the tensor {min(names)} in each step reads it: print it every N steps"


@_rule("log-each-step")
def _log_each_step(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: "log every 10 epochs instead of every epoch"; TrainingArguments.logging_steps reads the loss."""
    for script, call in _step_calls(_compiled(scripts, job)):
        parts = _logged(script, call)
        tensor = whole_name(call) != "print" and any(_names(part) & script.tensors for part in parts)
        if parts and (tensor or any(_reads_value(script, part) for part in parts)):
            yield (
                script,
                call.lineno,
                f"{whole_name(call)} of the step's values in each step waits for the device: every N steps",
            )
    for script in _compiled(scripts, job):
        for call in script.calls:
            if constant(keyword(call, "logging_steps")) == 1 and name_of(call).endswith("TrainingArguments"):
                yield script, call.lineno, "logging_steps=1 reads the loss in each step: log every 10 steps or more"


@_rule("padding")
def _padding(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: "use padding='max_length'. Do not use padding='longest'", since each new shape is compiled again."""
    if job.dynamic:
        return
    for script in _compiled(scripts, job):
        for call in script.calls:
            value, name = keyword(call, "padding"), name_of(call)
            longest = constant(value) is True or constant(value) == "longest"
            collator = name == "DataCollatorWithPadding" and value is None and not _conditional(script, call)
            batched = name == "padded_batch" and keyword(call, "padded_shapes") is None and len(call.args) < 2
            if value is not None and longest:
                what = f"padding={ast.unparse(value)}"
            elif collator or batched:
                what = f"{name} without {'padding=' if collator else 'padded_shapes='}"
            else:
                continue
            yield (
                script,
                call.lineno,
                (
                    f"{what} pads each batch to its longest sample, and each new shape is compiled again: padding='max_length', "
                    "or padded_shapes of numbers"
                ),
            )


@_rule("drop-last")
def _drop_last(scripts: Sequence[Script], job: Job) -> Found:
    """A last, shorter batch is a new shape, which XLA compiles again (XLA, "Dynamic shapes"; DataLoader's ``drop_last``)."""
    if job.dynamic or not job.compiled:
        return
    for script in scripts:
        for call in script.calls:
            name = name_of(call)
            trains = constant(keyword(call, "shuffle")) is True or keyword(call, "sampler") is not None
            options = {one.arg for one in call.keywords}
            loader = name == "DataLoader" and trains and not {"drop_last", "batch_sampler"} & options
            loader = loader and not script.is_within(call, _EVALUATES)
            arguments = (
                name.endswith("TrainingArguments") and call.keywords and keyword(call, "dataloader_drop_last") is None
            )
            tensorflow = name == "batch" and "tensorflow" in script.imports and keyword(call, "drop_remainder") is None
            if loader or (arguments and all(one.arg for one in call.keywords)) or (tensorflow and len(call.args) == 1):
                option = "drop_last" if loader else "dataloader_drop_last" if arguments else "drop_remainder"
                yield (
                    script,
                    call.lineno,
                    (
                        f"{name} without {option}=True ends an epoch with a shorter batch, for which the step is compiled again: "
                        f"{option}=True, or fill the last batch"
                    ),
                )


@_rule("dynamic-shape")
def _dynamic_shape(scripts: Sequence[Script], job: Job) -> Found:
    """XLA, "Dynamic shapes": the shape of what ``nonzero`` and the like return depends on values, so each is compiled."""
    for script, call in _step_calls(on_xla(scripts, job)):
        if name_of(call) in _WHOLE_LINES or (whole_name(call) == "torch.where" and len(call.args) == 1):
            yield (
                script,
                call.lineno,
                f"the shape of {whole_name(call)}(...) depends on values, so XLA compiles again: use a mask",
            )


@_rule("compile-each-step")
def _compile_each_step(scripts: Sequence[Script], job: Job) -> Found:
    """torch.compile and tf.function return a function with a cache of its own, empty at first."""
    for script, call in _step_calls(scripts):
        if whole_name(call) in ("torch.compile", "tf.function"):
            yield (
                script,
                call.lineno,
                f"{whole_name(call)} in each step compiles in each step: call it once, before the loop",
            )


@_rule("cuda")
def _cuda(scripts: Sequence[Script], job: Job) -> Found:
    """XLA: tensors of a model on an XLA device and of CUDA cannot be mixed; AWS's "PyTorch" page of the compiler too."""
    for script in on_xla(scripts, job):
        for call in script.calls:
            first = constant(call.args[0]) if call.args else None
            moves = (
                name_of(call) == "cuda" and isinstance(call.func, ast.Attribute) and whole_name(call) != "torch.cuda"
            )
            named = name_of(call) in ("to", "device") and isinstance(first, str) and first.startswith("cuda")
            if (moves or named) and not _conditional(script, call):
                yield (
                    script,
                    call.lineno,
                    f"{ast.unparse(call)} beside an XLA device: use torch_xla's device, xm.xla_device()",
                )


@_rule("save")
def _save(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: "use PyTorch/XLA's model save functionality", torch_xla.core.xla_model.save, which moves tensors first."""
    for script in on_xla(scripts, job):
        for call in script.calls:
            if (
                whole_name(call) == "torch.save"
                and "cpu" not in ast.unparse(call)
                and not _conditional(script, call, "xla")
            ):
                yield (
                    script,
                    call.lineno,
                    "torch.save writes tensors of an XLA device that load on such a device only: xm.save",
                )


@_rule("scaler")
def _scaler(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler's page "PyTorch", "with AMP": ``torch_xla.amp.GradScaler``, since CUDA's reads a value in each step."""
    for script in on_xla(scripts, job):
        for call in script.calls:
            of_cuda = "cuda" in whole_name(call) or (call.args and constant(call.args[0]) == "cuda")
            if name_of(call) == "GradScaler" and of_cuda and not _conditional(script, call):
                yield script, call.lineno, f"{whole_name(call)} is CUDA's: torch_xla.amp.GradScaler under XLA"


@_rule("mark-step")
def _mark_step(scripts: Sequence[Script], job: Job) -> Found:
    """XLA: without ``mark_step()`` the graph of all steps grows, and nothing runs; a device loader has it.

    So has ``xm.optimizer_step(optimizer, barrier=True)``, whose ``barrier`` is False otherwise.
    """
    barriers = [
        keyword(call, "barrier") for script in scripts for call in script.calls if name_of(call) == "optimizer_step"
    ]
    given = any(one is not None and constant(one) is not False for one in barriers)
    if given or any(_MARKS.search(script.text) for script in scripts):
        return
    for script in on_xla(scripts, job):
        if script.step_loops and {"torch", "torch_xla"} & script.imports:
            loop = script.step_loops[0]
            yield (
                script,
                loop.lineno,
                "no step ends for XLA: xm.mark_step(), xm.optimizer_step(..., barrier=True) or a MpDeviceLoader in this loop",
            )


@_rule("debugger")
def _debugger(scripts: Sequence[Script], job: Job) -> Found:
    """Debugger's hook reads tensors, which ends the graph; AWS's notebooks of its compiler set ``debugger_hook_config=False``."""
    for script in _compiled(scripts, job):
        for call in script.calls:
            hook = "smdebug" in script.imports and name_of(call) in (
                "create_from_json_file",
                "get_hook",
                "register_module",
            )
            if (
                name_of(call) in ("save_tensor", "register_loss")
                or hook
                or constant(keyword(call, "save_interval")) == 1
            ):
                yield (
                    script,
                    call.lineno,
                    f"{whole_name(call)} saves tensors of compiled steps, which ends the graph: leave it out",
                )


@_rule("save-each-step")
def _save_each_step(scripts: Sequence[Script], job: Job) -> Found:
    """Compiler: checkpoints of intermediate tensors in a step; a model takes longer to write than a step to run."""
    for script, call in _step_calls(scripts):
        if whole_name(call) in ("torch.save", "xm.save") or name_of(call) in ("save_pretrained", "save_weights"):
            yield script, call.lineno, f"{whole_name(call)} in each step: save every N steps, and at SIGTERM"


@_rule("history")
def _history(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's FAQ, "My model reports out of memory": "Don't accumulate history across your training loop"."""
    for script in scripts:
        sums = (node for node in script.each_step if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add))
        for node in sums:
            if not isinstance(node.target, ast.Name) or node.target.id in script.differentiated:
                continue
            if isinstance(node.value, ast.Name) and node.value.id in script.differentiated:
                why = "keeps the graph of every step in memory"
                yield script, node.lineno, f"{ast.unparse(node)} {why}: {node.target.id} += {node.value.id}.detach()"


@_rule("set-epoch")
def _set_epoch(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's DistributedSampler: without ``set_epoch`` each epoch has the same order."""
    if any("set_epoch" in script.text or "accelerate" in script.imports for script in scripts):
        return
    for script in scripts:
        for call in script.calls:
            shuffles = name_of(call) == "DistributedSampler" and constant(keyword(call, "shuffle")) is not False
            if shuffles and not script.is_within(call, _EVALUATES):
                yield (
                    script,
                    call.lineno,
                    "each epoch has the same order of samples: sampler.set_epoch(epoch) at its begin",
                )


@_rule("group")
def _group(scripts: Sequence[Script], job: Job) -> Found:
    """The toolkit's SM_CURRENT_INSTANCE_GROUP has a name of the request's InstanceGroups, and no other."""
    if not job.groups:
        return
    for script in scripts:
        for node in script.nodes:
            values: list[object] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if any(_is_group(script, side) for side in sides):
                    values = [constant(one) for side in sides for one in getattr(side, "elts", [side])]
            elif isinstance(node, ast.Subscript) and _GROUPS.search(ast.unparse(node.value)):
                values = [constant(node.slice)] if "environ" not in ast.unparse(node.value).rpartition("[")[0] else []
            for value in values:
                if (
                    isinstance(value, str)
                    and value not in job.groups
                    and not _GROUPS.search(value)
                    and not _GROUP.search(value)
                ):
                    names = " and ".join(repr(name) for name in job.groups)
                    yield script, node.lineno, f"no group of the job is named {value!r}: its groups are {names}"  # type: ignore[attr-defined]


@_rule("channel")
def _channel(scripts: Sequence[Script], job: Job) -> Found:
    """The toolkit sets SM_CHANNEL_ and the upper-case name for each channel, and for no other (environment.py, `to_env_vars`)."""
    known = {f"SM_CHANNEL_{name.upper()}" for name in job.channels or ()}
    for script in scripts if job.channels is not None else ():
        # Another file that is started itself is of other jobs.
        if job.entry_point and script.path != job.entry_point and "__main__" in script.text:
            continue
        for line, text in _channel_variables(script, ast.Subscript):
            if text not in known:
                names = " and ".join(repr(name) for name in job.channels or ()) or "none"
                why = f"{text} is of no channel of the job, whose channels are {names}: the script ends with a KeyError"
                yield script, line, why


def _channel_variables(script: Script, *readers: type[ast.AST]) -> Iterator[tuple[int, str]]:
    """The variables of channels that a script reads on no condition, by a subscript or a call that has nothing in its place."""
    for node in script.nodes:
        text, parent = constant(node), script.parents.get(node)
        if not isinstance(text, str) or not text.startswith("SM_CHANNEL_") or not isinstance(parent, readers):
            continue
        assert isinstance(node, ast.Constant)
        if isinstance(parent, ast.Subscript):
            reads = variable_read(parent) == text
        else:
            reads = isinstance(parent, ast.Call) and name_of(parent) in ("get", "getenv") and len(parent.args) == 1
        if reads and not _conditional(script, node, text):
            yield node.lineno, text


def variables_of(script: Script) -> Iterator[tuple[int, str]]:
    """Yield the variables of SageMaker's toolkit without which a script ends, with their lines.

    Args:
        script: The script.
    """
    if _ASKS.search(script.text) or "sagemaker_training" in script.imports:
        return
    for node in script.nodes:
        text, parent = constant(node), script.parents.get(node)
        if isinstance(text, str) and text.startswith("SM_") and isinstance(parent, ast.Subscript):
            reads = variable_read(parent) == text
            around = [*script.ancestors(node)] if reads else []
            tests = [ast.unparse(one.test) for one in around if isinstance(one, ast.If | ast.IfExp)]
            tried = any(isinstance(one, ast.Try) for one in around) or any("__name__" not in test for test in tests)
            functions = {one.name for one in around if isinstance(one, ast.FunctionDef)}
            if reads and not tried and functions <= script.used_names:
                yield parent.lineno, text


def channels_of(script: Script) -> list[str]:
    """Return the channels without which a script has no data: those that it reads, and has nothing in their place.

    Args:
        script: The script.
    """
    read = (text for _, text in _channel_variables(script, ast.Subscript, ast.Call))
    return list(dict.fromkeys(text.removeprefix("SM_CHANNEL_").lower() for text in read))


@_rule("import")
def _import(scripts: Sequence[Script], job: Job) -> Found:
    """The toolkit installs the folder's requirements.txt (modules.py of sagemaker-training); the container has nothing else."""
    folder = {part.removesuffix(".py") for script in scripts for part in script.path.split("/")}
    left, seen = [script for script in scripts if script.path == job.entry_point], set[str]()
    # A script may install packages itself, or find them elsewhere.
    if (
        (job.modules is None and not job.absent)
        or any(script.installs for script in scripts)
        or any("sys.path" in script.text for script in scripts)
    ):
        return
    while left:
        script = left.pop()
        for line, name in always_imported(script.tree, tried=False):
            if name in folder and name not in seen:
                seen.add(name)
                left += [one for one in scripts if one.path in (f"{name}.py", f"{name}/__init__.py")]
            elif name not in folder and job.lacks(name):
                brings = distribution_of(name) or "what has it"
                if any("tensorflow" in one.imports for one in scripts):
                    brings = brings.removesuffix("[torch]")
                yield script, line, f"no {name} is in the job's {_where_to_name(brings, job)}"
        for call in script.calls:
            for needed in dependencies_in(script, call):
                if all(map(job.lacks, needed.modules)) and not _conditional(script, call):
                    lacks = f"{needed.shown} needs {' or '.join(needed.modules)}, which is not in the job's"
                    yield script, call.lineno, f"{lacks} {_where_to_name('it', job)}"


def _where_to_name(what: str, job: Job) -> str:
    if job.built:
        return f"image: name {what} in a RUN pip install of its Dockerfile"
    return f"container: name {what} in a requirements.txt in the folder of code, which is installed before the script starts"


@_rule("download")
def _download(scripts: Sequence[Script], job: Job) -> Found:
    """Without a route to the internet hosts reach S3 alone (guide, "Give SageMaker AI Training Jobs Access to Resources")."""
    for script in scripts if job.offline else ():
        for call in script.calls:
            what = downloaded(script, call)
            if what and not _conditional(script, call):
                why = f"{what}, which hosts without a route to the internet do not reach: give it as a channel in S3"
                yield script, call.lineno, why


@_rule("training-arguments")
def _training_arguments(scripts: Sequence[Script], job: Job) -> Found:
    """The wheels of Hugging Face's libraries: each version's classes have their own arguments and values, and take no others."""
    versions = versions_of(scripts, job)
    for script in scripts if versions else ():
        for line, reason in (*unknown_arguments(script, versions), *wrong_values(script, versions, job.device)):
            yield script, line, reason


@_rule("removed")
def _removed(scripts: Sequence[Script], job: Job) -> Found:
    """The release notes of TensorFlow and PyTorch, and the wheels of Hugging Face's libraries: `removed.py` has them."""
    beside = {script.path.partition("/")[0].removesuffix(".py") for script in scripts}
    versions = versions_of(scripts, job)
    for script in scripts if versions else ():
        for line, reason in removed(script, versions, beside):
            yield script, line, reason


@_rule("host-name")
def _host_name(scripts: Sequence[Script], job: Job) -> Found:
    """AWS's "Train Using a Heterogeneous Cluster": hosts have numbers in no order of groups; read SM_HOSTS."""
    for script in scripts:
        for node in script.nodes:
            text = constant(node)
            if not isinstance(text, str) or not (host := _HOST.search(text)) or " " in text:
                continue
            assert isinstance(node, ast.Constant)
            parent = next(one for one in script.ancestors(node) if not isinstance(one, ast.Tuple | ast.List))
            # Documentation, and what holds outside SageMaker only.
            default = isinstance(parent, ast.Call) and name_of(parent) in (
                "get",
                "getenv",
                "setdefault",
                "pop",
                "add_argument",
            )
            if not default and not isinstance(parent, ast.Expr | ast.keyword | ast.arguments | ast.AnnAssign):
                why = "is dealt to any host of any group: read SM_HOSTS, SM_CURRENT_HOST or the group's hosts"
                yield script, node.lineno, f"{host[0]} {why}"


def _is_group(script: Script, node: ast.expr) -> bool:
    """Whether an expression is the name of the host's own group, directly or by a variable."""
    if _GROUP.search(ast.unparse(node)):
        return True
    return isinstance(node, ast.Name) and any(
        isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == node.id for target in one.targets)
        and _GROUP.search(ast.unparse(one.value)) is not None
        for one in script.nodes
    )


def _conditional(script: Script, node: ast.AST, text: str = "") -> bool:
    """Whether a node runs on a condition that has a text: below an ``if``, or after one that returns."""
    inner = node
    for one in script.ancestors(node):
        if isinstance(one, ast.If | ast.IfExp) and text in (test := ast.unparse(one.test)) and "__name__" not in test:
            return True
        for before in getattr(one, "body", []) if isinstance(one, ast.stmt) else []:
            if before is inner:
                break
            ends = isinstance(before, ast.If) and isinstance(before.body[-1], ast.Return | ast.Raise)
            if ends and text in ast.unparse(before.test):
                return True
        inner = one
    return False
