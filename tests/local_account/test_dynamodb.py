"""DynamoDB's tables in an account that enforces permissions: who may read and write them, and templates that change them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, reasons
from running_account import Running
from test_enforced import Role, allow

TABLES = "arn:aws:dynamodb:us-east-1:123456789012:table/"
KEY = {"id": {"S": "one"}}


@pytest.fixture(scope="module")
def tables(running: Running) -> Any:
    client = running.client("dynamodb")
    for name in ("runs", "others"):
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": it, "AttributeType": "S"} for it in ("id", "state")],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by-state",
                    "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        )
        client.put_item(TableName=name, Item={**KEY, "state": {"S": "done"}})
    return client


def as_role(running: Running, name: str, actions: list[str], resource: str) -> Any:
    """DynamoDB's client of a role that may do this and no more."""
    return Role(running, name, allow([f"dynamodb:{it}" for it in actions], resource)).client("dynamodb")


def denied(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
    return str(caught.value)


def test_a_table_is_read_and_written_by_who_may(running: Running, tables: Any) -> None:
    role = as_role(running, "Items", ["GetItem", "PutItem", "Query", "BatchGetItem"], f"{TABLES}runs")
    assert role.get_item(TableName="runs", Key=KEY)["Item"]["state"] == {"S": "done"}
    assert role.get_item(TableName=f"{TABLES}runs", Key=KEY)["Item"]
    role.put_item(TableName="runs", Item={**KEY, "state": {"S": "done"}})
    assert f"dynamodb:GetItem on resource: {TABLES}others" in denied(lambda: role.get_item(TableName="others", Key=KEY))
    assert "dynamodb:UpdateItem" in denied(lambda: role.update_item(TableName="runs", Key=KEY))
    assert "dynamodb:Scan" in denied(lambda: role.scan(TableName="runs"))
    both = {name: {"Keys": [KEY]} for name in ("runs", "others")}
    assert f"BatchGetItem on resource: {TABLES}others" in denied(lambda: role.batch_get_item(RequestItems=both))
    assert role.batch_get_item(RequestItems={"runs": {"Keys": [KEY]}})["Responses"]["runs"]


def test_an_index_is_a_resource_of_its_own(running: Running, tables: Any) -> None:
    query = {
        "TableName": "runs",
        "IndexName": "by-state",
        "KeyConditionExpression": "#s = :s",
        "ExpressionAttributeNames": {"#s": "state"},
        "ExpressionAttributeValues": {":s": {"S": "done"}},
    }
    without = as_role(running, "WithoutIndex", ["Query"], f"{TABLES}runs")
    assert f"dynamodb:Query on resource: {TABLES}runs/index/by-state" in denied(lambda: without.query(**query))
    role = as_role(running, "WithIndex", ["Query"], f"{TABLES}runs/index/*")
    assert role.query(**query)["Count"] == 1


def test_a_transaction_is_authorized_by_its_parts(running: Running, tables: Any) -> None:
    """ "Using IAM with DynamoDB transactions": TransactWriteItems needs the permissions of what it does, and no other."""
    put = {"Put": {"TableName": "runs", "Item": {**KEY, "state": {"S": "done"}}}}
    delete = {"Delete": {"TableName": "runs", "Key": {"id": {"S": "two"}}}}
    role = as_role(running, "Transactions", ["PutItem", "GetItem"], f"{TABLES}runs")
    role.transact_write_items(TransactItems=[put])
    assert "dynamodb:DeleteItem" in denied(lambda: role.transact_write_items(TransactItems=[put, delete]))
    get = {"Get": {"TableName": "runs", "Key": KEY}}
    assert role.transact_get_items(TransactItems=[get])["Responses"]
    other = {"Get": {"TableName": "others", "Key": KEY}}
    assert "dynamodb:GetItem" in denied(lambda: role.transact_get_items(TransactItems=[get, other]))


def table(**properties: Any) -> dict[str, Any]:
    given = {
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        **properties,
    }
    return {"Table": {"Type": "AWS::DynamoDB::Table", "Properties": given}}


OUTPUTS = {"Name": {"Value": {"Ref": "Table"}}, "Arn": {"Value": {"Fn::GetAtt": ["Table", "Arn"]}}}
INDEX = {
    "IndexName": "by-state",
    "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "ALL"},
}
WITH_INDEX = {
    "AttributeDefinitions": [{"AttributeName": it, "AttributeType": "S"} for it in ("id", "state")],
    "GlobalSecondaryIndexes": [INDEX],
}


def test_a_table_of_a_template_keeps_its_items_when_it_changes(running: Running) -> None:
    client = running.client("dynamodb")
    found = deploy(running, "Tables", table(), Outputs=OUTPUTS)
    name = found["Name"]
    assert found["Arn"] == f"{TABLES}{name}"
    client.put_item(TableName=name, Item={**KEY, "state": {"S": "done"}})
    more = {
        **WITH_INDEX,
        "DeletionProtectionEnabled": False,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},
        "Tags": [{"Key": "a", "Value": "b"}],
        "TimeToLiveSpecification": {"AttributeName": "until", "Enabled": True},
    }
    stream = {"Stream": {"Value": {"Fn::GetAtt": ["Table", "StreamArn"]}}}
    found = deploy(running, "Tables", table(**more), Outputs=OUTPUTS | stream)
    assert found["Name"] == name
    about = client.describe_table(TableName=name)["Table"]
    assert [it["IndexName"] for it in about["GlobalSecondaryIndexes"]] == ["by-state"]
    assert about["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
    assert found["Stream"] == about["LatestStreamArn"]
    assert client.list_tags_of_resource(ResourceArn=found["Arn"])["Tags"] == more["Tags"]
    life = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (life["AttributeName"], life["TimeToLiveStatus"]) == ("until", "ENABLED")
    backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    provisioned = {
        "BillingMode": "PROVISIONED",
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 2},
    }
    deploy(running, "Tables", table(**provisioned))
    about = client.describe_table(TableName=name)["Table"]
    assert about.get("GlobalSecondaryIndexes", []) == []
    assert about["ProvisionedThroughput"]["WriteCapacityUnits"] == 2
    assert not about.get("StreamSpecification", {}).get("StreamEnabled")
    assert "LatestStreamArn" not in about
    assert client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED"
    assert client.get_item(TableName=name, Key=KEY)["Item"]["state"] == {"S": "done"}
    # Another key is another table.
    key = {
        "AttributeDefinitions": [{"AttributeName": "run", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "run", "KeyType": "HASH"}],
    }
    assert deploy(running, "Tables", table(**key), Outputs=OUTPUTS)["Name"] != name
    destroy(running, "Tables")
    assert [it for it in client.list_tables()["TableNames"] if it.startswith("Tables")] == []


def test_a_table_with_deletion_protection_is_not_deleted(running: Running) -> None:
    name = deploy(running, "Protected", table(DeletionProtectionEnabled=True), Outputs=OUTPUTS)["Name"]
    running.client("cloudformation").delete_stack(StackName="Protected")
    with pytest.raises(WaiterError):
        running.client("cloudformation").get_waiter("stack_delete_complete").wait(StackName="Protected")
    assert "can't be deleted while DeletionProtectionEnabled" in reasons(running, "Protected")
    running.client("dynamodb").update_table(TableName=name, DeletionProtectionEnabled=False)
    destroy(running, "Protected")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"AttributeDefinitions": WITH_INDEX["AttributeDefinitions"]}, "Some AttributeDefinitions are not used"),
        ({"GlobalSecondaryIndexes": [INDEX]}, "some keys are not defined"),
        ({"BillingMode": "PROVISIONED"}, "must both be specified when BillingMode is PROVISIONED"),
        (
            {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}},
            "BillingMode is PAY_PER_REQUEST",
        ),
    ],
)
def test_a_table_that_dynamodb_refuses_fails_its_stack(running: Running, properties: dict[str, Any], why: str) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "Refused", table(**properties))
    assert why in reasons(running, "Refused")
    destroy(running, "Refused")


def of_the_cdk(*, regions: list[str]) -> dict[str, Any]:
    """A `TableV2` that a state machine writes to, by what its role is granted."""
    stack = cdk.Stack(
        cdk.App(analytics_reporting=False), "Stack", env=cdk.Environment(account="123456789012", region="us-east-1")
    )
    made = dynamodb.TableV2(
        stack,
        "Runs",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        removal_policy=cdk.RemovalPolicy.DESTROY,
        replicas=[dynamodb.ReplicaTableProps(region=region) for region in regions],
        time_to_live_attribute="until",
    )
    put = tasks.DynamoPutItem(
        stack,
        "Put",
        table=made,
        item={
            "id": tasks.DynamoAttributeValue.from_string(sfn.JsonPath.string_at("$.run")),
            "loss": tasks.DynamoAttributeValue.number_from_string(sfn.JsonPath.string_at("$.loss")),
        },
        result_path=sfn.JsonPath.DISCARD,
    )
    get = tasks.DynamoGetItem(
        stack,
        "Get",
        table=made,
        key={"id": tasks.DynamoAttributeValue.from_string(sfn.JsonPath.string_at("$.run"))},
    )
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
    machine = sfn.StateMachine(
        stack, "Machine", definition_body=sfn.DefinitionBody.from_chainable(put.next(get)), role=role
    )
    cdk.CfnOutput(stack, "Arn", value=machine.state_machine_arn)
    template: dict[str, Any] = cdk.App.of(stack).synth().get_stack_by_name("Stack").template  # type: ignore[union-attr]
    return template


def test_a_state_machine_of_the_cdk_writes_to_a_global_table(running: Running) -> None:
    template = of_the_cdk(regions=[])
    arn = deploy(running, "Global", template["Resources"], Outputs={"Arn": template["Outputs"]["Arn"]})["Arn"]
    client = running.client("stepfunctions")
    execution = client.start_execution(stateMachineArn=arn, input='{"run": "r1", "loss": "0.5"}')["executionArn"]
    while (found := client.describe_execution(executionArn=execution))["status"] == "RUNNING":
        pass
    assert found["status"] == "SUCCEEDED", found
    assert json.loads(found["output"])["Item"] == {"id": {"S": "r1"}, "loss": {"N": "0.5"}}
    destroy(running, "Global")


def test_a_replica_in_another_region_is_refused(running: Running) -> None:
    template = of_the_cdk(regions=["eu-west-1"])
    with pytest.raises(WaiterError):
        deploy(running, "Replicas", template["Resources"])
    assert "Replicas must be one, in us-east-1, in the local account" in reasons(running, "Replicas")
    destroy(running, "Replicas")
