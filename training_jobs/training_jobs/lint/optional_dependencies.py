"""Optional dependencies of transformers and trl: packages without which their arguments end a script that imports none itself.

Sources, of transformers: ``TrainingArguments`` of training_args.py ("Using the `Trainer` with `PyTorch` requires `accelerate`");
``get_optimizer_cls_and_kwargs`` of trainer.py; the callbacks of integrations/integration_utils.py ("requires wandb to be
installed"); ``BitsAndBytesConfig`` of utils/quantization_config.py; ``from_pretrained`` of modeling_utils.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from training_jobs.lint.script import Script, constant, name_of

_REPORTS = ("wandb", "tensorboard", "mlflow")
_BITSANDBYTES = re.compile(r"(?!adamw_torch)(?:\w*bnb\w*|\w+_8bit|paged_\w+)")
_SWITCHES = {
    "load_in_4bit": ("bitsandbytes",),
    "load_in_8bit": ("bitsandbytes",),
    "use_flash_attention_2": ("flash_attn",),
    "use_liger_kernel": ("liger_kernel",),
    "use_peft": ("peft",),
    "use_vllm": ("vllm",),
}
_LIBRARIES = re.compile(r"(?:transformers|trl|peft)\b")


class Dependency(NamedTuple):
    """What an argument needs.

    Attributes:
        argument: Its name; "" for the class itself.
        modules: Modules, of which one must be there.
        shown: The argument with its value, or the class.
    """

    argument: str
    modules: tuple[str, ...]
    shown: str


def dependencies_of(values: Mapping[str, object]) -> Iterator[Dependency]:
    """Yield what arguments need.

    Args:
        values: Their values, by name; ``...`` for one that is not known.
    """
    for name, modules in _SWITCHES.items():
        if str(values.get(name)).lower() in ("true", "1"):
            yield Dependency(name, modules, f"{name}={values[name]}")
    reports = values.get("report_to")
    for one in reports if isinstance(reports, list | tuple) else (reports,):
        if one in _REPORTS:
            yield Dependency("report_to", (str(one),), f"report_to={reports!r}")
    if isinstance(optim := values.get("optim"), str) and _BITSANDBYTES.fullmatch(optim):
        yield Dependency("optim", ("bitsandbytes",), f"optim={optim!r}")
    if values.get("attn_implementation") == "flash_attention_2":
        # Since transformers 4.57 a kernel of the Hub may take its place.
        yield Dependency("attn_implementation", ("flash_attn", "kernels"), "attn_implementation='flash_attention_2'")


def dependencies_in(script: Script, call: ast.Call) -> Iterator[Dependency]:
    """Yield what a call needs beside what the script imports.

    Args:
        script: The script.
        call: A call in it.
    """
    name, whole = name_of(call), script.imported(call.func)
    if not _LIBRARIES.match(whole):
        return
    if whole in ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments", "transformers.Trainer"):
        yield Dependency("", ("accelerate",), name)
    values = {one.arg: _value(one.value) for one in call.keywords if one.arg}
    yield from dependencies_of(values)
    if name == "from_pretrained" and values.get("device_map") not in (None, ...):
        yield Dependency("device_map", ("accelerate",), f"device_map={values['device_map']!r}")


def _value(node: ast.expr) -> object:
    """A literal, or a list of such; ``...`` for others."""
    if isinstance(node, ast.List | ast.Tuple):
        return [constant(one) for one in node.elts]
    return node.value if isinstance(node, ast.Constant) else ...
