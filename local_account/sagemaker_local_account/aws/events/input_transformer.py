"""The input transformer of a target: a template whose ``<names>`` stand for parts of the event.

What fills a placeholder is what LocalStack recorded on AWS, ``tests/aws/services/events/test_events_inputs.py``; the predefined
variables are those of EventBridge's guide, "Input transformation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError, extract_json

_PLACEHOLDERS = re.compile(r"<([^<>]+)>")
_QUOTES = re.compile(r'(?<!\\)"')


class InvalidInput(LookupError):
    """A filled template is no JSON, so that EventBridge does not deliver the event."""


def names_of(template: str) -> list[str]:
    """The names of a template, without the predefined ones."""
    return [name for name in _PLACEHOLDERS.findall(template) if not name.startswith("aws.events.")]


def filled(template: str, paths: Mapping[str, str], event: Mapping[str, Any], rule_arn: str) -> str:
    """Fills a template.

    In a template that is JSON, a name outside of quotes is replaced by JSON, and within quotes by its text. In one that is text,
    which is in quotes itself, objects and lists lose theirs. A name whose path finds nothing is empty.

    Args:
        template: InputTemplate.
        paths: InputPathsMap.
        event: the event as rules match it.
        rule_arn: of the rule.

    Raises:
        InvalidInput: a template that begins as an object is none once it is filled.
    """
    values = {**_predefined(event, rule_arn), **{name: _at(path, event) for name, path in paths.items()}}
    is_json = template.lstrip().startswith("{")
    parts = _PLACEHOLDERS.split(template)
    text = parts[0]
    for name, following in zip(parts[1::2], parts[2::2], strict=True):
        is_quoted = len(_QUOTES.findall(text)) % 2 == 1
        text += _filling(values.get(name, ""), is_json, is_quoted) + following
    if is_json:
        try:
            json.loads(text)
        except ValueError:
            raise InvalidInput(f"its InputTemplate is no JSON once it is filled: {text}") from None
    return text


def _filling(value: Any, is_json: bool, is_quoted: bool) -> str:
    if isinstance(value, str):
        return json.dumps(value)[1:-1] if is_quoted else json.dumps(value)
    if is_json or not is_quoted:
        return json.dumps(value)
    return json.dumps(value, separators=(",", ":")).replace('"', "")


def _at(path: str, event: Mapping[str, Any]) -> Any:
    try:
        return extract_json(path, event)
    except NoSuchJsonPathError:
        return ""


def _predefined(event: Mapping[str, Any], rule_arn: str) -> dict[str, Any]:
    """The variables that need no path; the event without its detail has ``detailType``."""
    short = {"detailType" if name == "detail-type" else name: value for name, value in event.items()}
    short.pop("detail", None)
    return {
        "aws.events.rule-arn": rule_arn,
        "aws.events.rule-name": rule_arn.rpartition("/")[2],
        "aws.events.event.ingestion-time": event["time"],
        "aws.events.event": short,
        "aws.events.event.json": event,
    }
