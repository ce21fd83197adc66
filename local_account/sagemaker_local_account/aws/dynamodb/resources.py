"""DynamoDB's tables in CloudFormation, of which moto has no updates and no global tables, as the CDK's `TableV2` is one."""

from __future__ import annotations

from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.dynamodb.models import dynamodb_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real

_CHANGEABLE = {
    *("AttributeDefinitions", "BillingMode", "DeletionProtectionEnabled", "GlobalSecondaryIndexes"),
    *("PointInTimeRecoverySpecification", "ProvisionedThroughput", "SSESpecification", "StreamSpecification"),
    *("TableClass", "Tags", "TimeToLiveSpecification"),
}
_ON_DEMAND = "PAY_PER_REQUEST"


class Table(ResourceBase):
    """AWS::DynamoDB::Table."""

    @staticmethod
    @override
    def cloudformation_name_type() -> str:
        return "TableName"

    @override
    def attributes(self) -> dict[str, str]:
        table = self._tables.get_table(self.physical_resource_id)
        found = {"Arn": str(table.table_arn)}
        if table.latest_stream_label:
            found["StreamArn"] = f"{table.table_arn}/stream/{table.latest_stream_label}"
        return found

    @property
    def table_properties(self) -> Properties:
        """The properties as those of a table that is not global."""
        return self.properties

    @override
    def create(self) -> None:
        given = self.table_properties
        name = given.get("TableName", self.physical_resource_id)
        _check(given)
        self._tables.create_table(
            name,
            schema=given.get("KeySchema"),
            throughput=given.get("ProvisionedThroughput"),
            attr=given.get("AttributeDefinitions", []),
            global_indexes=given.get("GlobalSecondaryIndexes", []),
            indexes=given.get("LocalSecondaryIndexes", []),
            streams=_stream(given),
            billing_mode=given.get("BillingMode", "PROVISIONED"),
            sse_specification=_encryption(given),
            tags=given.get("Tags", []),
            deletion_protection_enabled=is_true(given.get("DeletionProtectionEnabled", False)),
            warm_throughput=None,
        )
        self.physical_resource_id = name
        self._set_what_creation_does_not(given, {})

    @override
    def update(self, former: Properties) -> None:
        before = type(self)(self.physical_resource_id, former, self.account_id, self.region_name).table_properties
        given = self.table_properties
        replace_unless(given, before, _CHANGEABLE)
        _check(given)
        table = self._tables.get_table(self.physical_resource_id)
        indexes = [
            {one["IndexName"]: one for one in properties.get("GlobalSecondaryIndexes", [])}
            for properties in (before, given)
        ]
        changes = [{"Delete": {"IndexName": name}} for name in indexes[0].keys() - indexes[1].keys()]
        changes += [{"Create": one} for name, one in indexes[1].items() if name not in indexes[0]]
        changes += [
            {"Update": one} for name, one in indexes[1].items() if name in indexes[0] and one != indexes[0][name]
        ]
        if _stream(given) != _stream(before):
            table.latest_stream_label = None
            table.set_stream_specification(_stream(given))
        self._tables.update_table(
            self.physical_resource_id,
            attr_definitions=given.get("AttributeDefinitions", []),
            global_index=changes,
            throughput=given.get("ProvisionedThroughput", {}),
            billing_mode=given.get("BillingMode", "PROVISIONED"),
            stream_spec={},
            deletion_protection_enabled=is_true(given.get("DeletionProtectionEnabled", False)),
            warm_throughput=None,
        )
        table.sse_specification = _encryption(given) or {}
        table.tags = list(given.get("Tags", []))
        self._set_what_creation_does_not(given, before)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._tables.delete_table(self.physical_resource_id)

    def _set_what_creation_does_not(self, given: Properties, before: Properties) -> None:
        name = self.physical_resource_id
        life = given.get("TimeToLiveSpecification")
        if life != before.get("TimeToLiveSpecification"):
            off = {
                "Enabled": False,
                "AttributeName": (before.get("TimeToLiveSpecification") or {}).get("AttributeName"),
            }
            self._tables.update_time_to_live(name, {**(life or off), "Enabled": is_true((life or off)["Enabled"])})
        recovery = [
            is_true((it.get("PointInTimeRecoverySpecification") or {}).get("PointInTimeRecoveryEnabled", False))
            for it in (before, given)
        ]
        if recovery[0] != recovery[1]:
            self._tables.update_continuous_backups(name, {"PointInTimeRecoveryEnabled": recovery[1]})

    @property
    def _tables(self) -> Any:
        return dynamodb_backends[self.account_id][self.region_name]


class GlobalTable(Table):
    """AWS::DynamoDB::GlobalTable with one replica, in its stack's region."""

    @property
    @override
    def table_properties(self) -> Properties:
        given = self.properties
        replicas = given.get("Replicas", [])
        if [it.get("Region") for it in replicas] != [self.region_name]:
            raise ValidationError(
                message=f"Replicas must be one, in {self.region_name}, in the local account, got "
                f"{[it.get('Region') for it in replicas]}"
            )
        [replica] = replicas
        of_table = {
            name: it
            for name, it in given.items()
            if name not in ("Replicas", "WriteProvisionedThroughputSettings", "SSESpecification")
        }
        of_replica = ("DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "TableClass", "Tags")
        if unknown := sorted(replica.keys() - {"Region", "SSESpecification", *of_replica}):
            raise ValidationError(message=f"Replicas.{unknown[0]} is not supported in the local account")
        of_table |= {name: replica[name] for name in of_replica if name in replica}
        if encryption := given.get("SSESpecification"):
            key = (replica.get("SSESpecification") or {}).get("KMSMasterKeyId")
            of_table["SSESpecification"] = {**encryption, **({"KMSMasterKeyId": key} if key else {})}
        if of_table.get("BillingMode") != _ON_DEMAND:
            raise ValidationError(
                message=f"BillingMode of AWS::DynamoDB::GlobalTable must be {_ON_DEMAND} in the local account"
            )
        return of_table


def _stream(given: Properties) -> dict[str, Any] | None:
    stream = given.get("StreamSpecification")
    return None if stream is None else {"StreamEnabled": True, "StreamViewType": stream["StreamViewType"]}


def _encryption(given: Properties) -> dict[str, Any] | None:
    """SSESpecification as the API has it."""
    found = given.get("SSESpecification")
    if found is None:
        return None
    return {
        "Enabled": is_true(found.get("SSEEnabled")),
        **{name: it for name, it in found.items() if name != "SSEEnabled"},
    }


def _check(given: Properties) -> None:
    """Raises ValidationError for what DynamoDB refuses when a table is made, and moto does not."""
    keys = [*given.get("KeySchema", [])]
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        keys += [key for index in given.get(kind, []) for key in index["KeySchema"]]
    used = {key["AttributeName"] for key in keys}
    defined = {it["AttributeName"] for it in given.get("AttributeDefinitions", [])}
    if used != defined:
        raise ValidationError(
            message="One or more parameter values were invalid: Some AttributeDefinitions are not used or some keys are not "
            f"defined. AttributeDefinitions: {sorted(defined)}, keys used: {sorted(used)}"
        )
    throughput = given.get("ProvisionedThroughput")
    if given.get("BillingMode") == _ON_DEMAND and throughput:
        raise ValidationError(
            message="One or more parameter values were invalid: Neither ReadCapacityUnits nor WriteCapacityUnits can be "
            "specified when BillingMode is PAY_PER_REQUEST"
        )
    if given.get("BillingMode", "PROVISIONED") == "PROVISIONED" and not throughput:
        raise ValidationError(
            message="One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both be specified "
            "when BillingMode is PROVISIONED"
        )


RESOURCES = ServiceResources(
    types={
        "AWS::DynamoDB::GlobalTable": real(
            "a table with one replica, in the stack's region",
            "AttributeDefinitions BillingMode GlobalSecondaryIndexes KeySchema LocalSecondaryIndexes Replicas SSESpecification "
            "StreamSpecification TableName TimeToLiveSpecification",
            made_by=GlobalTable,
            longest_name=255,
        ),
        "AWS::DynamoDB::Table": real(
            "stores items; those whose time to live is over stay, and nothing reads its stream",
            "AttributeDefinitions BillingMode DeletionProtectionEnabled GlobalSecondaryIndexes KeySchema LocalSecondaryIndexes "
            "PointInTimeRecoverySpecification ProvisionedThroughput SSESpecification StreamSpecification TableClass TableName "
            "Tags TimeToLiveSpecification",
            made_by=Table,
            longest_name=255,
        ),
    },
)
