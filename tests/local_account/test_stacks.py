"""What the account's CloudFormation does with templates, over boto3. The CDK CLI uses it in tests/end_to_end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import WAITING, deploy, destroy, ids, reasons
from running_account import Running

from sagemaker_local_account.aws.cloudformation.provisioner import users_of_attributes

TRUST = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
ROLE = {
    "Type": "AWS::IAM::Role",
    "Properties": {
        "RoleName": "StackRole",
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [TRUST]},
    },
}


def test_a_stack_is_made_and_says_its_outputs(running: Running) -> None:
    outputs = deploy(running, "made", {"Role": ROLE}, Outputs={"Arn": {"Value": {"Fn::GetAtt": ["Role", "Arn"]}}})
    assert outputs == {"Arn": "arn:aws:iam::123456789012:role/StackRole"}


def test_a_template_may_be_yaml_with_the_tags_of_cloudformation(running: Running) -> None:
    client = running.client("cloudformation")
    template = "Resources: {Logs: {Type: AWS::Logs::LogGroup}}\nOutputs: {Arn: {Value: !GetAtt Logs.Arn}}"
    client.create_stack(StackName="yaml", TemplateBody=template)
    client.get_waiter("stack_create_complete").wait(StackName="yaml", WaiterConfig=WAITING)
    [stack] = client.describe_stacks(StackName="yaml")["Stacks"]
    assert ids(running, "yaml")["Logs"] in stack["Outputs"][0]["OutputValue"]
    assert "LastUpdatedTime" not in stack
    client.update_stack(StackName="yaml", TemplateBody=template.replace("LogGroup", "LogGroup, DeletionPolicy: Retain"))
    client.get_waiter("stack_update_complete").wait(StackName="yaml", WaiterConfig=WAITING)
    [updated] = client.describe_stacks(StackName="yaml")["Stacks"]
    assert updated["LastUpdatedTime"] >= stack["CreationTime"]


def test_a_queue_and_a_bucket_have_awss_defaults(running: Running) -> None:
    """As LocalStack's test_sqs.py and test_s3_default_bucket_encryption recorded them on AWS."""
    deploy(running, "defaults", {"Queue": {"Type": "AWS::SQS::Queue"}, "Bucket": {"Type": "AWS::S3::Bucket"}})
    found = ids(running, "defaults")
    queue = running.client("sqs").get_queue_attributes(QueueUrl=found["Queue"], AttributeNames=["All"])["Attributes"]
    assert queue["MaximumMessageSize"] == "1048576"
    encrypted = running.client("s3").get_bucket_encryption(Bucket=found["Bucket"])
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}
    assert encrypted["ServerSideEncryptionConfiguration"] == {"Rules": [rule]}


def test_a_template_that_is_neither_json_nor_yaml_is_refused(running: Running) -> None:
    """api/test_templates.py of LocalStack: test_validate_invalid_json_template_should_fail, and that of YAML."""
    refused = {'{"Resources": [': r"JSON not well-formed. \(line 1, column 16\)", "a: b:": "YAML not well-formed."}
    for template, why in refused.items():
        with pytest.raises(ClientError, match=f"Template format error: {why}"):
            running.client("cloudformation").create_stack(StackName="neither", TemplateBody=template)


def test_a_template_is_validated_without_a_stack(running: Running) -> None:
    """The members of API_ValidateTemplate; the capabilities of "Acknowledging IAM resources in CloudFormation templates"."""
    client = running.client("cloudformation")
    bucket = {"Type": "AWS::S3::Bucket"}
    parameters = {"Size": {"Type": "Number", "Default": 4}, "Token": {"Type": "String", "NoEcho": True}}
    of_role = {**ROLE, "Properties": {**ROLE["Properties"], "RoleName": {"Ref": "Token"}}}
    unnamed = {**ROLE, "Properties": {"AssumeRolePolicyDocument": ROLE["Properties"]["AssumeRolePolicyDocument"]}}

    def validated(resources: dict[str, Any], **parts: Any) -> dict[str, Any]:
        return client.validate_template(TemplateBody=json.dumps({"Resources": resources, **parts}))

    answer = validated({"Data": bucket}, Parameters=parameters, Description="data")
    assert answer["Description"] == "data"
    assert answer["Parameters"] == [
        {"ParameterKey": "Size", "DefaultValue": "4", "NoEcho": False},
        {"ParameterKey": "Token", "NoEcho": True},
    ]
    assert answer.get("Capabilities", []) == []
    assert validated({"Role": unnamed})["Capabilities"] == ["CAPABILITY_IAM"]
    assert validated({"Role": of_role, "Data": bucket}, Parameters=parameters)["Capabilities"] == [
        "CAPABILITY_NAMED_IAM"
    ]
    with pytest.raises(ClientError, match="At least one Resources member must be defined"):
        validated({})
    with pytest.raises(ClientError, match="AWS::RoboMaker::Robot"):
        validated({"Robot": {"Type": "AWS::RoboMaker::Robot"}})


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({}, "At least one Resources member must be defined"),
        ([], "At least one Resources member must be defined"),
        ({"Data": {"Properties": {}}}, r"\[/Resources/Data\] Every Resources object must contain a Type member"),
        ({"Data": None}, r"\[/Resources/Data\] Every Resources object must contain a Type member"),
        ({"Data": {"Type": "AWS::S3::Bucket", "Properties": []}}, r"\[/Resources/Data/Properties\] must be an object"),
    ],
)
def test_what_is_no_template_is_refused_where_a_stack_is_created(running: Running, resources: Any, said: str) -> None:
    with pytest.raises(ClientError, match=f"Template format error: {said}"):
        running.client("cloudformation").create_stack(StackName="no", TemplateBody=json.dumps({"Resources": resources}))


def test_a_type_that_nobody_knows_fails_the_deployment_with_type_and_logical_id(running: Running) -> None:
    with pytest.raises((ClientError, WaiterError)) as raised:
        deploy(running, "unknown", {"Robot": {"Type": "AWS::RoboMaker::Robot"}})
    said = str(raised.value) + (reasons(running, "unknown") if isinstance(raised.value, WaiterError) else "")
    assert "AWS::RoboMaker::Robot" in said
    assert "Robot" in said.replace("AWS::RoboMaker::Robot", "")


def test_a_property_that_nothing_is_made_of_is_refused_with_type_and_logical_id(running: Running) -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"ObjectLockEnabled": True}}
    with pytest.raises(ClientError, match=r"ObjectLockEnabled of AWS::S3::Bucket \(Locked\)"):
        deploy(running, "unheard", {"Locked": bucket})


@pytest.mark.parametrize(
    ("kind", "missing"), [("AWS::Events::EventBus", "Name"), ("AWS::StepFunctions::StateMachine", "RoleArn")]
)
def test_a_resource_without_a_property_that_it_needs_is_named_as_by_cloudformation(
    running: Running, kind: str, missing: str
) -> None:
    name = f"without-{missing}"
    with pytest.raises(WaiterError):
        deploy(running, name, {"Empty": {"Type": kind, "Properties": {}}})
    said = f"Properties validation failed for resource Empty with message: [#: required key [{missing}] not found]"
    assert said in reasons(running, name)


def test_a_stack_is_updated_in_place(running: Running) -> None:
    deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "mine"}}})
    changed = {"LogGroupName": "mine", "RetentionInDays": 7}
    deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": changed}})
    [group] = running.client("logs").describe_log_groups(logGroupNamePrefix="mine")["logGroups"]
    assert group["retentionInDays"] == 7


def test_an_activity_keeps_its_arn_with_other_tags_and_is_replaced_with_another_name(running: Running) -> None:
    def stack(name: str, tag: str) -> dict[str, Any]:
        return {
            "Workers": {
                "Type": "AWS::StepFunctions::Activity",
                "Properties": {"Name": name, "Tags": [{"Key": "of", "Value": tag}]},
            }
        }

    def names() -> set[str]:
        return {it["name"] for it in client.list_activities()["activities"]}

    client = running.client("stepfunctions")
    outputs = {name: {"Value": {"Fn::GetAtt": ["Workers", name]}} for name in ("Arn", "Name")}
    first = deploy(running, "activity", stack("cut", "a"), Outputs=outputs)
    assert first == {"Arn": ids(running, "activity")["Workers"], "Name": "cut"}
    assert deploy(running, "activity", stack("cut", "b"), Outputs=outputs) == first
    assert client.list_tags_for_resource(resourceArn=first["Arn"])["tags"] == [{"key": "of", "value": "b"}]
    with pytest.raises(WaiterError):
        deploy(running, "second-activity", stack("cut", "c"))
    assert "cut" in names()
    assert client.list_tags_for_resource(resourceArn=first["Arn"])["tags"] == [{"key": "of", "value": "b"}]
    assert deploy(running, "activity", stack("sewn", "b"), Outputs=outputs)["Name"] == "sewn"
    assert "sewn" in names()
    assert "cut" not in names()
    destroy(running, "activity")
    assert "sewn" not in names()


def test_a_name_that_is_made_of_a_long_stack_name_fits_its_type(running: Running) -> None:
    unnamed = {
        "Type": "AWS::IAM::Role",
        "Properties": {"AssumeRolePolicyDocument": ROLE["Properties"]["AssumeRolePolicyDocument"]},
    }
    logical_id = "RoleOfAWorkflowWhoseConstructsHaveLongIds"
    deploy(running, "a-stack-whose-name-is-as-long-as-some-are", {logical_id: unnamed})
    name = ids(running, "a-stack-whose-name-is-as-long-as-some-are")[logical_id]
    assert name.startswith("a-stack-whose-name-is-as-long-as-some-are-Role")
    assert len(name) <= 64


def test_of_change_sets_of_one_name_the_last_is_executed(running: Running) -> None:
    for days in (1, 3, 7):  # the first creates the stack, the others are called alike
        logs = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "again", "RetentionInDays": days}}
        deploy(running, "again", {"Logs": logs})
    [group] = running.client("logs").describe_log_groups(logGroupNamePrefix="again")["logGroups"]
    assert group["retentionInDays"] == 7


def test_a_bucket_that_holds_something_is_not_deleted(running: Running) -> None:
    deploy(running, "full", {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full-bucket"}}})
    running.client("s3").put_object(Bucket="full-bucket", Key="a", Body=b"a")
    with pytest.raises(WaiterError, match="DELETE_FAILED"):
        destroy(running, "full")


def test_a_vpc_with_its_subnets_and_security_groups_is_deleted(running: Running) -> None:
    vpcs = running.client("ec2")
    before = [vpc["VpcId"] for vpc in vpcs.describe_vpcs()["Vpcs"]]
    deploy(
        running,
        "network",
        {
            "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
            "Subnet": {
                "Type": "AWS::EC2::Subnet",
                "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.1.0.0/24", "AvailabilityZone": "us-east-1a"},
            },
            "Group": {
                "Type": "AWS::EC2::SecurityGroup",
                "Properties": {"VpcId": {"Ref": "Vpc"}, "GroupDescription": "hosts"},
            },
            "Out": {
                "Type": "AWS::EC2::SecurityGroupEgress",
                "Properties": {
                    "GroupId": {"Fn::GetAtt": ["Group", "GroupId"]},
                    "DestinationSecurityGroupId": {"Fn::GetAtt": ["Group", "GroupId"]},
                    "IpProtocol": "-1",
                },
            },
        },
    )
    destroy(running, "network")
    assert [vpc["VpcId"] for vpc in vpcs.describe_vpcs()["Vpcs"]] == before


def test_a_changed_managed_policy_keeps_its_arn_and_says_the_new(running: Running) -> None:
    def policy(action: str) -> dict[str, Any]:
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        document = {"Version": "2012-10-17", "Statement": [statement]}
        properties = {"ManagedPolicyName": "changing", "PolicyDocument": document}
        return {"Policy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}}

    deploy(running, "policy", policy("s3:GetObject"))
    arn = ids(running, "policy")["Policy"]
    deploy(running, "policy", policy("s3:PutObject"))
    assert ids(running, "policy")["Policy"] == arn
    iam = running.client("iam")
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    assert document["Statement"][0]["Action"] == "s3:PutObject"


def test_a_changed_topic_keeps_its_subscriptions(running: Running) -> None:
    def stack(display_name: str) -> dict[str, Any]:
        email = {"TopicArn": {"Ref": "Topic"}, "Protocol": "email", "Endpoint": "me@example.com"}
        return {
            "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": display_name}},
            "Subscription": {"Type": "AWS::SNS::Subscription", "Properties": email},
        }

    deploy(running, "topic", stack("before"))
    topic = ids(running, "topic")["Topic"]
    deploy(running, "topic", stack("after"))
    topics = running.client("sns")
    assert topics.get_topic_attributes(TopicArn=topic)["Attributes"]["DisplayName"] == "after"
    assert len(topics.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]) == 1


def test_a_bucket_that_is_emptied_on_deletion_goes_with_all_versions_of_its_objects(running: Running) -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"VersioningConfiguration": {"Status": "Enabled"}}}
    emptied = {
        "Type": "Custom::S3AutoDeleteObjects",
        "Properties": {"ServiceToken": "none", "BucketName": {"Ref": "It"}},
    }
    name = deploy(running, "emptied", {"It": bucket, "Emptied": emptied}, Outputs={"It": {"Value": {"Ref": "It"}}})[
        "It"
    ]
    s3 = running.client("s3")
    for body in (b"first", b"second"):
        s3.put_object(Bucket=name, Key="object", Body=body)
    s3.delete_object(Bucket=name, Key="object")
    destroy(running, "emptied")
    assert name not in [found["Name"] for found in s3.list_buckets()["Buckets"]]


def test_a_change_keeps_the_previous_value_of_a_parameter_that_ssm_holds(running: Running) -> None:
    running.client("ssm").put_parameter(Name="/version", Value="31", Type="String")
    parameters = {"Version": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/version"}}
    outputs = {"Version": {"Value": {"Ref": "Version"}}}
    deploy(running, "versioned", {"It": {"Type": "AWS::SNS::Topic"}}, Parameters=parameters, Outputs=outputs)
    client = running.client("cloudformation")
    changed = {"Resources": {"Other": {"Type": "AWS::SNS::Topic"}}, "Parameters": parameters, "Outputs": outputs}
    client.create_change_set(
        StackName="versioned",
        ChangeSetName="next",
        ChangeSetType="UPDATE",
        TemplateBody=json.dumps(changed),
        Parameters=[{"ParameterKey": "Version", "UsePreviousValue": True}],
    )
    client.execute_change_set(StackName="versioned", ChangeSetName="next")
    client.get_waiter("stack_update_complete").wait(StackName="versioned", WaiterConfig=WAITING)
    [stack] = client.describe_stacks(StackName="versioned")["Stacks"]
    assert stack["Outputs"] == [{"OutputKey": "Version", "OutputValue": "31"}]
    destroy(running, "versioned")


def test_a_change_set_that_is_gone_is_deleted_again_and_not_described(running: Running) -> None:
    client = running.client("cloudformation")
    deploy(running, "plain", {"It": {"Type": "AWS::SNS::Topic"}})
    for _ in range(2):
        client.delete_change_set(StackName="plain", ChangeSetName="CREATE")
    with pytest.raises(client.exceptions.ChangeSetNotFoundException):
        client.describe_change_set(StackName="plain", ChangeSetName="CREATE")
    destroy(running, "plain")


def test_an_operation_that_is_not_there_is_refused_once_by_its_name(running: Running) -> None:
    with pytest.raises(ClientError, match=r"does not support this operation.*lookup_events") as refused:
        running.client("cloudtrail").lookup_events()
    assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == 0


def a_policy(characters: int) -> dict[str, Any]:
    """A policy of so many characters without white space."""
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": ""}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    left = characters - len(json.dumps(document, separators=(",", ":")))
    statement["Resource"] = "arn:aws:s3:::".ljust(left, "x")
    return document


def test_inline_policies_of_a_role_or_user_beyond_iams_limit_are_refused(running: Running) -> None:
    trusted = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    trust = {"Version": "2012-10-17", "Statement": [trusted]}
    role = {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "large", "AssumeRolePolicyDocument": trust}}

    def inline(document: dict[str, Any], name: str) -> dict[str, Any]:
        members = {"PolicyName": name, "PolicyDocument": document, "Roles": [{"Ref": "ItsRole"}]}
        return {"Type": "AWS::IAM::Policy", "Properties": members}

    half = a_policy(10_240 // 2)
    deploy(running, "large", {"ItsRole": role, "One": inline(half, "one"), "Two": inline(half, "two")})
    iam = running.client("iam")
    iam.put_role_policy(RoleName="large", PolicyName="two", PolicyDocument=json.dumps(half, indent=1))
    message = "Maximum policy size of 10240 bytes exceeded for role large"
    with pytest.raises(ClientError, match=message) as refused:
        iam.put_role_policy(RoleName="large", PolicyName="two", PolicyDocument=json.dumps(a_policy(10_240 // 2 + 1)))
    assert refused.value.response["Error"]["Code"] == "LimitExceeded"
    with pytest.raises(WaiterError):
        deploy(running, "larger", {"ItsRole": {**role, "Properties": {**role["Properties"], "RoleName": "larger"}},
                                   "One": inline(a_policy(10_241), "one")})  # fmt: skip
    assert "exceeded for role larger" in reasons(running, "larger")
    iam.create_user(UserName="large")
    with pytest.raises(ClientError, match="Maximum policy size of 2048 bytes exceeded for user large"):
        iam.put_user_policy(UserName="large", PolicyName="one", PolicyDocument=json.dumps(a_policy(2_049)))
    for name in ("large", "larger"):
        destroy(running, name)


def test_an_update_modifies_a_resource_after_those_that_it_refers_to_and_before_what_is_new_refers_to_it(
    running: Running,
) -> None:
    """ "Resource B is updated before resource A" (template reference, DependsOn attribute)."""

    def template(seconds: int, **more: Any) -> dict[str, Any]:
        queue = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": seconds}}
        redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Last", "Arn"]}, "maxReceiveCount": seconds}
        first = {"Type": "AWS::SQS::Queue", "Properties": {"RedrivePolicy": redrive}}
        return {"First": first, "Middle": {**queue, "DependsOn": "First"}, "Last": queue, **more}

    deploy(running, "ordered", template(10))
    deploy(running, "ordered", template(20, Added={"Type": "AWS::SNS::Topic", "DependsOn": "Middle"}))
    events = running.client("cloudformation").describe_stack_events(StackName="ordered")["StackEvents"]
    told = [(one["LogicalResourceId"], one["ResourceStatus"]) for one in reversed(events)]
    of_update = told[told.index(("ordered", "UPDATE_IN_PROGRESS")) :]
    done = [name for name, status in of_update if status in ("UPDATE_COMPLETE", "CREATE_COMPLETE")]
    assert done == ["Last", "First", "Middle", "Added", "ordered"]


def test_references_to_attributes_are_found_in_each_of_their_forms() -> None:
    definitions = {
        "List": {"Properties": {"Names": [{"Fn::GetAtt": ["Base", "Arn"]}]}},
        "Text": {"Properties": {"Name": {"Fn::GetAtt": "Base.Outputs.Name"}}},
        "Within": {"Properties": {"Name": {"Fn::Sub": "a-${Base.Arn}-${Other}-${AWS::Region}"}}},
        "Mapped": {"Properties": {"Name": {"Fn::Sub": ["${Base.Arn}", {"X": {"Fn::GetAtt": ["Other", "Arn"]}}]}}},
        "None": {"Properties": {"Name": {"Ref": "Base"}}},
    }
    assert users_of_attributes(definitions) == {
        "Base": {"Arn": {"List", "Within", "Mapped"}, "Outputs.Name": {"Text"}},
        "Other": {"Arn": {"Mapped"}},
    }


def test_what_is_new_comes_after_what_is_modified_though_only_what_stays_refers_to_that(running: Running) -> None:
    """As a call of a function with the new permissions of its role."""

    def template(seconds: int, **more: Any) -> dict[str, Any]:
        still = {"Type": "AWS::SQS::Queue", "DependsOn": "Base"}
        return {**more, "Still": still, "Base": {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": seconds}}}

    deploy(running, "through", template(1))
    deploy(running, "through", template(2, Added={"Type": "AWS::SNS::Topic", "DependsOn": "Still"}))
    events = running.client("cloudformation").describe_stack_events(StackName="through")["StackEvents"]
    done = [one["LogicalResourceId"] for one in reversed(events) if one["ResourceStatus"].endswith("_COMPLETE")]
    assert done[-3:] == ["Base", "Added", "through"]


def test_a_parameter_that_changes_a_condition_modifies_what_the_condition_chooses(running: Running) -> None:
    client = running.client("cloudformation")
    template = {
        "Parameters": {"Speed": {"Type": "String", "Default": "slow"}},
        "Conditions": {"IsSlow": {"Fn::Equals": [{"Ref": "Speed"}, "slow"]}},
        "Resources": {
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": {"Fn::If": ["IsSlow", 60, 5]}}},
            "Slow": {"Type": "AWS::SQS::Queue", "Condition": "IsSlow"},
        },
    }

    def deployed(kind: str, speed: str) -> tuple[str, set[str]]:
        parameters = [{"ParameterKey": "Speed", "ParameterValue": speed}]
        names = {"StackName": "chosen", "ChangeSetName": f"{kind}-{speed}"}
        client.create_change_set(**names, ChangeSetType=kind, TemplateBody=json.dumps(template), Parameters=parameters)
        client.execute_change_set(**names)
        client.get_waiter(f"stack_{kind.lower()}_complete").wait(StackName="chosen", WaiterConfig=WAITING)
        made = ids(running, "chosen")
        asked = {"QueueUrl": made["Queue"], "AttributeNames": ["DelaySeconds"]}
        return running.client("sqs").get_queue_attributes(**asked)["Attributes"]["DelaySeconds"], {*made}

    assert deployed("CREATE", "slow") == ("60", {"Queue", "Slow"})
    assert deployed("UPDATE", "fast") == ("5", {"Queue"})
    assert deployed("UPDATE", "slow") == ("60", {"Queue", "Slow"})
    destroy(running, "chosen")


@pytest.mark.parametrize("transform", ["PyPlate", ["AWS::LanguageExtensions", "Mine"], "AWS::Serverless-2016-10-31"])
def test_a_template_with_a_macro_or_a_transform_that_there_is_not_is_refused(running: Running, transform: Any) -> None:
    """Its resources would be made as they are before the transform."""
    template = {"Transform": transform, "Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}}}
    name = transform if isinstance(transform, str) else transform[-1]
    with pytest.raises(ClientError, match=f"does not support these transforms and macros: {name}"):
        running.client("cloudformation").create_stack(
            StackName="transformed", TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_AUTO_EXPAND"]
        )
