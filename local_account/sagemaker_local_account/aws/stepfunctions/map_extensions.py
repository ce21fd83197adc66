"""The parts of Distributed Map states that the grammar of moto's parser lacks: ItemBatcher, express items, WriterConfig.

They are taken out of a definition before it is parsed, and kept in the comment of its ItemProcessor, which its Map Runs have.
Sources: Step Functions' guide, "ItemBatcher (Map)", "ResultWriter (Map)" and "Map state processing modes".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.parse import asl_parser

_MARK = "\0of the local account: "
_LIMITS = ("MaxItemsPerBatch", "MaxInputBytesPerBatch")


@dataclass(frozen=True)
class Extensions:
    """What was taken out of a Map state.

    Args:
        language: JSONPath or JSONata.
        batcher: its ItemBatcher.
        writer: the WriterConfig of its ResultWriter.
        exports: whether its ResultWriter writes to a bucket.
        express: whether its items are express executions.
    """

    language: str = "JSONPath"
    batcher: dict[str, Any] = field(default_factory=dict)
    writer: dict[str, str] = field(default_factory=dict)
    exports: bool = False
    express: bool = False


def parseable(definition: str) -> str:
    """Returns a definition as moto's parser takes it."""
    try:
        program = json.loads(definition)
    except (ValueError, RecursionError):
        return definition  # which the parser refuses
    found = [*_states(program, "JSONPath")] if isinstance(program, dict) else []
    if not any(_take_out(state, language) for state, language in found):
        return definition
    return json.dumps(program)


def extensions_of(component: Any) -> Extensions:
    """Returns what was taken out of the Map state of an iteration component of moto's."""
    text = getattr(component._comment, "comment", "") or ""
    return Extensions(**json.loads(text.partition(_MARK)[2])) if _MARK in text else Extensions()


def invalid_batcher(state: dict[str, Any]) -> str:
    """Returns why a Map state's ItemBatcher is invalid; "" where it is valid, or there is none."""
    batcher = state.get("ItemBatcher", {"MaxItemsPerBatch": 1})
    if not isinstance(batcher, dict):
        return "ItemBatcher must be an object"
    known = {*_LIMITS, *(f"{limit}Path" for limit in _LIMITS)}
    if unknown := batcher.keys() - known - {"BatchInput"}:
        return f"Field '{min(unknown)}' is not supported"
    if not known & batcher.keys():
        return "At least one of MaxItemsPerBatch and MaxInputBytesPerBatch must be specified"
    return ""


def batches(extensions: Extensions, items: list[Any], env: Environment, state_input: Any) -> list[dict[str, Any]]:
    """Divides the items of a Map Run.

    Args:
        extensions: of its state.
        items: as its ItemSelector made them.
        env: the execution's.
        state_input: of the Map state.

    Returns:
        The input of the execution of each batch: BatchInput, and its items under "Items".
    """
    template = {
        f"{name.removesuffix('Path')}.$" if name.endswith("Path") else name: value
        for name, value in extensions.batcher.items()
    }
    common = _evaluated(template, extensions.language, env, state_input)
    most, longest = (int(common.pop(limit, 0)) for limit in _LIMITS)
    empty = _bytes({**common, "Items": []})
    found: list[list[Any]] = []
    size = 0
    for item in items:
        more = _bytes(item) + 1  # and the comma before it
        if not found or (most and len(found[-1]) >= most) or (longest and size + more > longest):
            found.append([])
            size = empty - 1  # the first has no comma
        found[-1].append(item)
        size += more
    return [{**common, "Items": batch} for batch in found]


def transformed(extensions: Extensions, outputs: list[Any]) -> list[Any]:
    """Returns the outputs of items as WriterConfig's Transformation has them: COMPACT or FLATTEN."""
    if extensions.writer.get("Transformation") != "FLATTEN":
        return outputs
    return [part for output in outputs for part in (output if isinstance(output, list) else [output])]


def _states(program: dict[str, Any], language: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each state of a program and of those within it, with its query language."""
    language = program.get("QueryLanguage", language)
    states = program.get("States")
    for state in states.values() if isinstance(states, dict) else ():
        if isinstance(state, dict):
            own = state.get("QueryLanguage", language)
            yield state, own
            branches = state.get("Branches")
            inner = [
                *(branches if isinstance(branches, list) else ()),
                state.get("ItemProcessor"),
                state.get("Iterator"),
            ]
            for one in inner:
                if isinstance(one, dict):
                    yield from _states(one, own)


def _take_out(state: dict[str, Any], language: str) -> bool:
    processor = state.get("ItemProcessor")
    config = processor.get("ProcessorConfig") if isinstance(processor, dict) else None
    if not isinstance(processor, dict) or not isinstance(config, dict) or config.get("Mode") != "DISTRIBUTED":
        return False
    taken: dict[str, Any] = {}
    if config.get("ExecutionType") == "EXPRESS":
        config["ExecutionType"] = "STANDARD"
        taken["express"] = True
    if "ItemBatcher" in state and not invalid_batcher(state):
        taken["batcher"] = state.pop("ItemBatcher")
    reader, writer = state.get("ItemReader"), state.get("ResultWriter")
    if isinstance(reader, dict) and reader.get("ReaderConfig") == {}:
        del reader["ReaderConfig"]
        taken["language"] = language
    if isinstance(writer, dict) and isinstance(writer.get("WriterConfig"), dict):
        taken["writer"] = writer.pop("WriterConfig")
        taken["exports"] = bool(writer)
        if not writer:
            del state["ResultWriter"]
    if taken:
        processor["Comment"] = f"{processor.get('Comment', '')}{_MARK}{json.dumps({**taken, 'language': language})}"
    return bool(taken)


def _evaluated(template: dict[str, Any], language: str, env: Environment, state_input: Any) -> dict[str, Any]:
    """The value of a payload template, in either query language, with the input of its state."""
    end = {"StartAt": "End", "States": {"End": {"Type": "Pass", "End": True}}}
    state = {"Type": "Map", "ItemSelector": template, "ItemProcessor": end, "End": True}
    program = {"StartAt": "Map", "QueryLanguage": language, "States": {"Map": state}}
    parsed = asl_parser.AmazonStateLanguageParser.parse(json.dumps(program))[0]
    env.stack.append(state_input)
    parsed.states.states["Map"].item_selector.eval(env)
    made: dict[str, Any] = env.stack.pop()
    env.stack.pop()
    return made


def _bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
