"""What requests to DynamoDB are authorized by: tables and indexes, and of a transaction each of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ON_TABLES = """
BatchGetItem BatchWriteItem CreateBackup CreateTable DeleteItem DeleteTable DescribeContinuousBackups DescribeTable
DescribeTimeToLive GetItem PutItem Query Scan UpdateContinuousBackups UpdateItem UpdateTable UpdateTimeToLive
"""
_ON_ARNS = (
    "DeleteResourcePolicy",
    "GetResourcePolicy",
    "ListTagsOfResource",
    "PutResourcePolicy",
    "TagResource",
    "UntagResource",
)
_ON_INDEXES = ("Query", "Scan")
_WITHOUT = (
    "DescribeEndpoints",
    "DescribeLimits",
    "ListBackups",
    "ListExports",
    "ListGlobalTables",
    "ListImports",
    "ListTables",
)
# What a part of a transaction is authorized by, by its name in the request.
_PARTS = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Get": "GetItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}


def _table(name: str, location: Location) -> str:
    return name if name.startswith("arn:") else f"arn:aws:dynamodb:{location.region}:{location.account}:table/{name}"


def _resources_of(operation: str, request: Mapping[str, Any], location: Location) -> list[str] | None:
    if operation in _ON_ARNS:
        arn = str(request.get("ResourceArn"))
        return [arn] if ":dynamodb:" in arn else None
    if operation not in _ON_TABLES.split():
        return None
    if operation in ("BatchGetItem", "BatchWriteItem"):
        return [_table(name, location) for name in request.get("RequestItems") or {}] or None
    if not request.get("TableName"):
        return None
    table = _table(str(request["TableName"]), location)
    index = request.get("IndexName") if operation in _ON_INDEXES else None
    return [f"{table}/index/{index}" if index else table]


def _parts(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    for item in request.get("TransactItems") or []:
        for kind, part in item.items():
            yield Call(f"dynamodb:{_PARTS[kind]}", _table(str(part.get("TableName")), location), call.context)


def _policy_of(arn: str, location: Location) -> Any:
    from moto.dynamodb.models import dynamodb_backends

    backend = dynamodb_backends[location.account][location.region]
    name = arn.partition(":table/")[2].partition("/")[0]
    table = backend.tables.get(name)
    return None if table is None else getattr(table, "policy", None)


AUTHORIZATION = ServiceAuthorization(
    "dynamodb",
    resources=dict.fromkeys(_ON_TABLES.split(), "table/{TableName.after_slash}"),
    resources_of=_resources_of,
    without_resource=_WITHOUT,
    by_parts=("TransactGetItems", "TransactWriteItems"),
    further=_parts,
    policy_of=_policy_of,
)
