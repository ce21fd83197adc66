"""The weights that a model of transformers begins with, whole tensors by their names: a folder's, or its own initial ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.initialization import no_tie_weights
from transformers.utils import logging

logging.disable_progress_bar()  # each rank would have one in the job's log
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
FORMATS = {".bin", ".ckpt", ".gguf", ".h5", ".pt", ".pth", ".safetensors"}  # of weights
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}


def whole_model(config: PreTrainedConfig) -> PreTrainedModel:
    """The model on the meta device, where it takes no memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


class InitialWeights(TorchDispatchMode):
    """A model's own initial values, each a function of its name and the seed, so that each rank can compute its shard.

    ``_init_weights`` runs on the meta device. What it does to a parameter is recorded, and repeated in the host's memory.
    """

    def __init__(self, config: PreTrainedConfig, seed: int) -> None:
        super().__init__()
        self._config, self._seed, self._names = config, seed, dict[int, str]()

    def __call__(self, name: str, shape: torch.Size) -> Tensor:
        random = torch.Generator().manual_seed(zlib.crc32(f"{self._seed}/{name}".encode()))
        value, operations = torch.empty(shape), self._operations.get(name, [])
        others = [one for _, _, rest, _ in operations for one in rest]
        if not operations or any(isinstance(one, Tensor) and one.is_meta for one in others):
            why = f"since {name} has no initial value without them"
            raise ValueError(f"the channel model must have weights, {why}, got none")
        for function, view, rest, named in operations:
            if any(argument.name == "generator" for argument in function._schema.arguments):
                named = {**named, "generator": random}
            function(value.as_strided(*view), *rest, **named)
        return value

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        target = arguments[0] if arguments and function._schema.is_mutable else None
        if isinstance(target, Tensor) and (name := self._names.get(target.untyped_storage()._cdata)):
            view = target.size(), target.stride(), target.storage_offset()
            self._recorded.setdefault(name, []).append((function, view, arguments[1:], named or {}))
        return function(*arguments, **(named or {}))

    @cached_property
    def _operations(self) -> dict[str, list[tuple[Any, ...]]]:
        with no_tie_weights():
            model = whole_model(self._config)
        self._names = {value.untyped_storage()._cdata: name for name, value in model.named_parameters()}
        self._recorded: dict[str, list[tuple[Any, ...]]] = {}
        with self:
            model.initialize_weights()
        return self._recorded


def stored_weights(folder: Path, config: PreTrainedConfig) -> dict[str, Tensor]:
    """A folder's weights as transformers reads them; none where it has no files of weights.

    They are memory-mapped, so that a rank reads its shards alone, but for what transformers merges or splits, such as a
    layer's experts, and for files of several types. Raises ValueError for a folder whose tensors are not exactly the model's.
    """
    stored = headers(folder)
    if not stored:
        return {}
    types = {dtype for _, dtype, _ in stored.values()}
    dtype = DTYPES.get(types.pop(), torch.float32) if len(types) == 1 else torch.float32
    options = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True}
    try:
        model, found = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=dtype, **options)
    except RuntimeError:  # of tensors that cannot be merged
        check(stored, config, None)
        raise
    check(stored, config, found)
    if tied := whole_model(config).all_tied_weights_keys.items() - model.all_tied_weights_keys.items():
        raise ValueError(
            f"tie_word_embeddings must be false in config.json where {' and '.join(*tied)} have different values, got true"
        )
    return dict(model.state_dict())


def headers(folder: Path) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """Of each tensor in a folder the file, the type and the shape. Raises ValueError unless each file is there, and whole."""
    others = sorted(file.name for file in folder.iterdir() if file.suffix in FORMATS)
    if ONE not in others and not (folder / INDEX).exists():
        if not others:
            return {}
        raise ValueError(f"the channel model must have weights as {ONE} or files with {INDEX}, got {', '.join(others)}")
    index = {} if ONE in others else json.loads((folder / INDEX).read_text())["weight_map"]
    found = {}
    for file in sorted(set(index.values())) or [ONE]:
        names = [name for name in index if index[name] == file]
        try:
            with safe_open(folder / file, "pt") as opened:
                slices = {name: opened.get_slice(name) for name in {*names, *opened.keys()}}
        except (OSError, SafetensorError) as error:
            tensors = f" with {names[0]}" if names else ""
            raise ValueError(f"the channel model must have the whole file {file}{tensors}, got {error}") from error
        found |= {name: (file, one.get_dtype(), (*one.get_shape(),)) for name, one in slices.items()}
    return found


def check(stored: Mapping[str, Any], config: PreTrainedConfig, found: Mapping[str, Any] | None) -> None:
    """Raises ValueError for tensors that are missing, misshapen or not the model's: those that transformers ``found``.

    Without that: by the names with which it would write them, such as each expert's.
    """
    model = whole_model(config)
    written = revert_weight_conversion(model, model.state_dict())
    shapes = {name: (*value.shape,) for name, value in (model.state_dict() | written).items()}
    if found is None:
        both = [(name, stored[name][2], shapes[name]) for name in written if name in stored]
        wrong = [(name, got, shape) for name, got, shape in both if got != shape]
        found = {"missing_keys": written.keys() - stored.keys(), "mismatched_keys": wrong, "unexpected_keys": ()}
    problems = [(name, f"{name} of shape {shapes[name]}, got none") for name in found["missing_keys"]]
    for name, got, shape in found["mismatched_keys"]:
        problems.append((name, f"{name} of shape {(*shape,)}, got {(*got,)}"))
    extra = [name for name in found["unexpected_keys"] if not name.endswith("masked_bias")]  # of old folders
    for name, problem in sorted(problems) or [(name, f"no {name}, got it") for name in sorted(extra)]:
        files = {file for file, _, _ in stored.values()}
        where = next((stored[key][0] for key in stored if name.endswith(key)), INDEX if len(files) > 1 else ONE)
        raise ValueError(f"the channel model must have, as config.json says, {problem} in {where}")
