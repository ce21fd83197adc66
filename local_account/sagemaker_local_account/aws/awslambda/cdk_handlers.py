"""The handlers of aws-cdk-lib that are written for Node.js, in Python: a function with one of them runs this in its place.

It runs in the function's execution environment with its role, and imports only the standard library and boto3. Sources:
aws-cdk-lib 2.275, `custom-resource-handlers/dist` (aws-custom-resource-handler, log-retention-handler, triggers) and
`custom-resources/lib/provider-framework/runtime`.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

Event = dict[str, Any]

# boto3's names of services that the SDK for JavaScript calls otherwise (after "@aws-sdk/client-").
_SERVICES = {
    "cloudwatchlogs": "logs",
    "cloudwatch-logs": "logs",
    "eventbridge": "events",
    "cloudwatchevents": "events",
    "cloudwatch-events": "events",
    "sfn": "stepfunctions",
    "secrets-manager": "secretsmanager",
}
_OWN_ID = "PHYSICAL:RESOURCEID:"  # in place of the physical id, in parameters
_FAILED_ID = "AWSCDK::CustomResourceProviderFramework::CREATE_FAILED"


class Retry(Exception):
    """The resource is not complete; the state machine that waits for it looks again."""


def aws_custom_resource(event: Event, _: Any) -> None:
    """`AwsCustomResource`: makes one call of an API for a request."""
    given = event["ResourceProperties"]
    calls = {kind: json.loads(given[kind]) for kind in ("Create", "Update", "Delete") if given.get(kind)}
    kind = event["RequestType"]
    call = calls.get(kind)
    if kind == "Create":
        named = [
            calls[it]["physicalResourceId"]["id"] for it in calls if "id" in calls[it].get("physicalResourceId", {})
        ]
        physical = named[0] if named else event["LogicalResourceId"]
    else:
        physical = ((call or {}).get("physicalResourceId") or {}).get("id", event["PhysicalResourceId"])
    try:
        data: dict[str, Any] = {}
        if call is not None:
            found = _answer(call, physical, event["RequestId"])
            paths = [call["outputPath"]] if call.get("outputPath") else call.get("outputPaths")
            data = {name: it for name, it in found.items() if paths is None or name.startswith(tuple(paths))}
            if path := (call.get("physicalResourceId") or {}).get("responsePath"):
                physical = found.get(path)
        _respond(event, "SUCCESS", "OK", physical, data)
    except Exception as error:
        print(repr(error))
        _respond(event, "FAILED", str(error), os.environ["AWS_LAMBDA_LOG_STREAM_NAME"], {})


def aws_api(event: Event, _: Any) -> None:
    """`AwsApi`, a target of rules: makes one call of an API for an event."""
    parameters = event.get("parameters") or {}
    _called(boto3.Session(), event["service"], event["action"], parameters, None, event.get("catchErrorPattern"))


def log_retention(event: Event, _: Any) -> None:
    """`LogRetention`: makes a log group, and sets for how long it keeps its events."""
    given = event["ResourceProperties"]
    group, kind = given["LogGroupName"], event["RequestType"]
    logs = boto3.client("logs", region_name=given.get("LogGroupRegion"))
    try:
        if kind != "Delete":
            _keep(logs, group, given.get("RetentionInDays"))
        if kind == "Create":
            _keep(boto3.client("logs"), f"/aws/lambda/{os.environ['AWS_LAMBDA_FUNCTION_NAME']}", 1)
        if kind == "Delete" and given.get("RemovalPolicy") == "destroy":
            try:
                logs.delete_log_group(logGroupName=group)
            except logs.exceptions.ResourceNotFoundException:
                print(f"{group} is gone")
        _respond(event, "SUCCESS", "OK", group, {"LogGroupName": group})
    except Exception as error:
        print(repr(error))
        _respond(event, "FAILED", str(error), group, {"LogGroupName": group})


def trigger(event: Event, _: Any) -> None:
    """`Trigger`: invokes a function once what it waits for is made."""
    _safely(event, _trigger)


def on_event(event: Event, _: Any) -> None:
    """`Provider`: gives a request to the user's function, and responds or starts to wait."""
    event["ResourceProperties"] = event.get("ResourceProperties") or {}
    _safely(event, _on_event)


def is_complete(event: Event, _: Any) -> None:
    """`Provider`: asks the user's second function whether the resource is complete.

    Raises:
        Retry: it is not.
    """
    _safely(event, _is_complete)


def on_timeout(event: Event, _: Any) -> None:
    """`Provider`: the resource was not complete in time."""
    request = json.loads(json.loads(event["Cause"])["errorMessage"])
    _respond(request, "FAILED", "Operation timed out", request.get("PhysicalResourceId"), {})


def _trigger(event: Event) -> None:
    given = event["ResourceProperties"]
    unchanged = event["RequestType"] == "Update" and given.get("ExecuteOnHandlerChange") == "false"
    if event["RequestType"] != "Delete" and not unchanged:
        _invoke(given["HandlerArn"], None, float(given["Timeout"]) / 1000, given["InvocationType"])
    _respond(event, "SUCCESS", "SUCCESS", event.get("PhysicalResourceId") or event["RequestId"], None)


def _on_event(event: Event) -> None:
    result = _invoke(os.environ["USER_ON_EVENT_FUNCTION_ARN"], event) or {}
    before = event["RequestId"] if event["RequestType"] == "Create" else event["PhysicalResourceId"]
    physical = result.get("PhysicalResourceId") or before
    if event["RequestType"] == "Delete" and physical != before:
        raise ValueError(
            f'DELETE: cannot change the physical resource ID from "{before}" to "{physical}" during deletion'
        )
    answer = {**event, **result, "PhysicalResourceId": physical}
    if "USER_IS_COMPLETE_FUNCTION_ARN" not in os.environ:
        _respond(answer, "SUCCESS", "SUCCESS", physical, answer.get("Data"))
        return
    machine = os.environ["WAITER_STATE_MACHINE_ARN"]
    boto3.client("stepfunctions").start_execution(stateMachineArn=machine, input=json.dumps(answer))


def _is_complete(event: Event) -> None:
    result = _invoke(os.environ["USER_IS_COMPLETE_FUNCTION_ARN"], event)
    if not result.get("IsComplete"):
        if result.get("Data"):
            raise ValueError('"Data" is not allowed if "IsComplete" is "False"')
        raise Retry(json.dumps(event))
    answer = {**event, **result, "Data": {**(event.get("Data") or {}), **(result.get("Data") or {})}}
    _respond(answer, "SUCCESS", "SUCCESS", answer["PhysicalResourceId"], answer["Data"])


def _safely(event: Event, block: Callable[[Event], None]) -> None:
    """Responds for an error; what was never made needs no deletion."""
    physical = event.get("PhysicalResourceId")
    if event["RequestType"] == "Delete" and physical == _FAILED_ID:
        _respond(event, "SUCCESS", "SUCCESS", physical, {})
        return
    try:
        block(event)
    except Retry:
        raise
    except Exception as error:
        print(repr(error))
        _respond(event, "FAILED", str(error), physical or _FAILED_ID, {})


def _answer(call: dict[str, Any], physical: str, request: str) -> dict[str, Any]:
    """The members of an API's answer by their paths, such as "Parameter.Value"; none for an error that is ignored."""
    session = boto3.Session()
    if role := call.get("assumedRoleArn"):
        name = re.sub(r"[^\w+=,.@-]", "", f"{request}-{physical}")[:64]
        more = {"ExternalId": call["externalId"]} if call.get("externalId") else {}
        keys = boto3.client("sts").assume_role(RoleArn=role, RoleSessionName=name, **more)["Credentials"]
        session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    parameters = _with_id(call.get("parameters") or {}, physical)
    ignored = call.get("ignoreErrorCodesMatching")
    region, answer = _called(session, call["service"], call["action"], parameters, call.get("region"), ignored)
    return {} if answer is None else {"region": region, **dict(_flat(answer, ""))}


def _called(
    session: Any, service: str, action: str, parameters: dict[str, Any], region: str | None, ignored: str | None
) -> tuple[str, dict[str, Any] | None]:
    """The region and the answer of a call; None for an error whose code has the pattern `ignored`."""
    service = service.lower().removeprefix("@aws-sdk/client-")
    client = session.client(_SERVICES.get(service, service), region_name=region)
    wanted = {action.lower(), action.lower().removesuffix("command")}
    names = [name for name in client.meta.service_model.operation_names if name.lower() in wanted]
    if not names:
        raise ValueError(f"Unable to find command named: {action}Command for action: {action}")
    shape = client.meta.service_model.operation_model(names[0]).input_shape
    try:
        answer: dict[str, Any] = client._make_api_call(names[0], _coerced(parameters, shape))
    except ClientError as error:
        if not ignored or not re.search(ignored, error.response["Error"]["Code"]):
            raise
        return client.meta.region_name, None
    answer.pop("ResponseMetadata", None)
    return client.meta.region_name, answer


def _with_id(value: Any, physical: str) -> Any:
    if isinstance(value, dict):
        return {name: _with_id(it, physical) for name, it in value.items()}
    if isinstance(value, list):
        return [_with_id(it, physical) for it in value]
    return physical if value == _OWN_ID else value


def _coerced(value: Any, shape: Any) -> Any:
    """A text in place of a number or of bytes, as attributes of other resources are."""
    kind = getattr(shape, "type_name", None)
    if kind == "structure" and isinstance(value, dict):
        return {name: _coerced(it, shape.members.get(name)) for name, it in value.items()}
    if kind == "list" and isinstance(value, list):
        return [_coerced(it, shape.member) for it in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _coerced(it, shape.value) for name, it in value.items()}
    if isinstance(value, str) and kind in ("integer", "long"):
        return int(value)
    if isinstance(value, str) and kind in ("float", "double"):
        return float(value)
    return value.encode() if isinstance(value, str) and kind == "blob" else value


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each value that is no object by its path; a time is an object without members, and left out."""
    if hasattr(value, "read"):
        value = value.read()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, dict | list):
        for name, it in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(it, f"{path}.{name}" if path else str(name))
    elif not isinstance(value, datetime):
        yield path, value


def _keep(logs: Any, group: str, days: Any) -> None:
    try:
        logs.create_log_group(logGroupName=group)
    except logs.exceptions.ResourceAlreadyExistsException:
        print(f"{group} exists")
    if days:
        logs.put_retention_policy(logGroupName=group, retentionInDays=int(days))
    else:
        logs.delete_retention_policy(logGroupName=group)


def _invoke(function: str, event: Event | None, seconds: float = 900.0, kind: str = "RequestResponse") -> Any:
    """What a function returned.

    Raises:
        RuntimeError: it failed.
    """
    config = Config(read_timeout=seconds, retries={"max_attempts": 0})
    payload = {} if event is None else {"Payload": json.dumps(event)}
    called = boto3.client("lambda", config=config).invoke(FunctionName=function, InvocationType=kind, **payload)
    returned = called["Payload"].read()
    result = json.loads(returned) if returned else None
    if "FunctionError" in called:
        message = (result or {}).get("errorMessage") or "error"
        raise RuntimeError(f"{message}\n\nLogs: /aws/lambda/{function.split(':function:')[-1].split(':')[0]}\n")
    return result


def _respond(event: Event, status: str, reason: str, physical: Any, data: Any) -> None:
    response = {
        "Status": status,
        "Reason": reason,
        "PhysicalResourceId": physical or "AWSCDK::CustomResourceProviderFramework::MISSING_PHYSICAL_ID",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "NoEcho": bool(event.get("NoEcho")),
        "Data": data,
    }
    body = json.dumps(response).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(request).close()
