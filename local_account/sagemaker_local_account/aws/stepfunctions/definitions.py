"""What ValidateStateMachineDefinition says of a definition, and CreateStateMachine refuses.

The texts are AWS's as LocalStack recorded them (`test_sfn_api_validation.py`, `test_sfn_api.py::test_create_delete_invalid_sm`,
`test_sfn_api_express.py::test_illegal_callbacks`); where AWS's own is not recorded, it is that of moto's parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from moto.stepfunctions.parser.api import InvalidDefinition
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp
from moto.stepfunctions.parser.models import StepFunctionsParserBackend

from sagemaker_local_account.aws.stepfunctions import map_extensions, transitions

Diagnostic = dict[str, str]


def diagnostics(definition: str, kind: str = "STANDARD", *, whole: bool = True) -> list[Diagnostic]:
    """Returns the errors of a definition.

    Args:
        definition: its text.
        kind: STANDARD or EXPRESS.
        whole: it has every state that its transitions lead to.
    """
    try:
        parsed = json.loads(definition) if definition.strip() else None
    except (ValueError, RecursionError) as error:
        return [_not_json(definition, error)]
    if not isinstance(parsed, dict):
        return [_failed("Definition must be a valid JSON object")]
    if missing := [name for name in ("States", "StartAt") if name not in parsed]:
        return [_failed(f"These fields are required: [{', '.join(missing)}]", "/")]
    found = [*_of_states(parsed, "", kind, parsed.get("QueryLanguage"))]
    if found:
        return found
    try:
        StepFunctionsParserBackend._validate_definition(definition)
    except InvalidDefinition as error:
        return [_failed(str(error.message))]
    return [
        {"severity": "ERROR", "code": code, "message": message, **({} if place is None else {"location": place})}
        for code, message, place in (transitions.findings(parsed) if whole else ())
    ]


def check(definition: str, kind: str, *, whole: bool = True) -> None:
    """Raises InvalidDefinition for what moto's parser accepts, or refuses with another text than AWS.

    Args:
        definition: its text.
        kind: STANDARD or EXPRESS.
        whole: it has every state that its transitions lead to.
    """
    found = diagnostics(definition, kind, whole=whole)
    if found and found[0]["code"].startswith("MISSING_"):
        texts = [f"{one['code']}: {one['message']} at {one.get('location', 'null')}" for one in found]
        raise InvalidDefinition(f"Invalid State Machine Definition: '{', '.join(texts)}'")
    for one in found:
        if one["message"].startswith(("Error=", "ASLParserException")):
            raise InvalidDefinition(one["message"])
        where = f" at {one['location']}" if one["code"] == "SCHEMA_VALIDATION_FAILED" and "location" in one else ""
        raise InvalidDefinition(f"Invalid State Machine Definition: '{one['code']}: {one['message']}{where}'")


def _failed(message: str, location: str | None = None) -> Diagnostic:
    one = {"severity": "ERROR", "code": "SCHEMA_VALIDATION_FAILED", "message": message}
    return one if location is None else {**one, "location": location}


def jackson(document: str, error: json.JSONDecodeError) -> tuple[str, int]:
    """What Jackson says of a document that is no JSON, where it is recorded, and how many characters later."""
    rest = document[error.pos :]
    if word := re.match(r"\w+", rest):
        expected = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
        return f"Unrecognized token '{word.group()}': was expecting {expected}", len(word.group())
    if error.msg.startswith("Expecting property name") and rest:
        return (
            f"Unexpected character ('{rest[0]}' (code {ord(rest[0])})): was expecting double-quote to start field name",
            0,
        )
    return error.msg, 0


def _not_json(definition: str, error: ValueError | RecursionError) -> Diagnostic:
    """An error of JSON in the words of Jackson, where it is a word that JSON does not have."""
    line, column, text = 1, 1, "Document nesting depth exceeds the maximum allowed"
    if isinstance(error, json.JSONDecodeError):
        line, column = error.lineno, error.colno
        text, more = jackson(definition, error)
        column += more
    source = definition if len(definition) <= 500 else f"{definition[:500]}[truncated {len(definition) - 500} chars]"
    location = f'[Source: (String)"{source}"; line: {line}, column: {column}]'
    return {
        "severity": "ERROR",
        "code": "INVALID_JSON_DESCRIPTION",
        "message": f"{text}\n at {location}",
        "location": location,
    }


def _of_states(program: dict[str, Any], path: str, kind: str, language: Any) -> Iterator[Diagnostic]:
    states = program.get("States")
    for name, state in states.items() if isinstance(states, dict) else ():
        here = f"{path}/States/{name}"
        if not isinstance(state, dict):
            continue
        if language == "JSONata" and state.get("QueryLanguage") == "JSONPath":
            yield _failed(
                "'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine",
                here,
            )
        credentials = state.get("Credentials")
        if isinstance(credentials, dict) and not {"RoleArn", "RoleArn.$"} & credentials.keys():
            # credentials/test_credentials_base.py::test_invalid_credentials_field
            yield _failed("The field 'RoleArn' is required but was missing", f"{here}/Credentials")
        timestamp = state.get("Timestamp") if state.get("Type") == "Wait" else None
        in_jsonata = state.get("QueryLanguage", language) == "JSONata" and str(timestamp).startswith("{%")
        if isinstance(timestamp, str) and not in_jsonata and Timestamp._from_timestamp_string(timestamp) is None:
            # scenarios/test_base_scenarios.py::test_wait_timestamp_invalid
            yield _failed("String does not match RFC3339 timestamp", f"{here}/Timestamp")
        resource = state.get("Resource")
        if kind == "EXPRESS" and isinstance(resource, str) and (refused := _not_express(resource)):
            yield _failed(f"Express state machine does not support {refused}", f"{here}/Resource")
        branches = state.get("Branches")
        for index, branch in enumerate(branches if isinstance(branches, list) else ()):
            if isinstance(branch, dict):
                yield from _of_states(branch, f"{here}/Branches/{index}", kind, language)
        if why := map_extensions.invalid_batcher(state):
            yield _failed(why, f"{here}/ItemBatcher")
        for member in ("ItemProcessor", "Iterator"):
            if isinstance(state.get(member), dict):
                config = state[member].get("ProcessorConfig")
                own = config.get("ExecutionType", kind) if isinstance(config, dict) else kind
                yield from _of_states(state[member], f"{here}/{member}", own, language)


def _not_express(resource: str) -> str:
    if ":activity:" in resource:
        return "Activity ARN"
    if resource.endswith(".waitForTaskToken"):
        return "'.waitForTaskToken' service integration "
    if resource.endswith((".sync", ".sync:2")):
        return "'.sync' service integration"
    return ""
