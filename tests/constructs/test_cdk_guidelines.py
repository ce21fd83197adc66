"""What a user of CDK expects of a construct: each test is written from a sentence of AWS's guidelines for construct libraries.

The guidelines are docs/DESIGN_GUIDELINES.md of aws/aws-cdk; each test's docstring names the section, and what it says.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii
import pytest
from aws_cdk import aws_batch as batch
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Match, Template
from constructs import Construct
from stacks import UserStack, message_of

import cdk_sagemaker_training as library
from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    ITrainingQueue,
    ITrainingWorkflow,
    QuotaShare,
    TrainingFunctions,
    TrainingImage,
    TrainingNetwork,
    TrainingQueue,
    TrainingRole,
    TrainingTask,
    TrainingWorkflow,
    unlisted,
)
from cdk_sagemaker_training.resources.handler_function import handler_function
from cdk_sagemaker_training.resources.networking.network import network_of

MACHINE_ARN = "arn:aws:states:eu-west-1:210987654321:stateMachine:training"
QUEUE_ARN = "arn:aws:batch:eu-west-1:210987654321:job-queue/jobs"
ROLE_ARN = "arn:aws:iam::210987654321:role/training"


def of_type(stack: cdk.Stack, kind: str) -> list[dict[str, Any]]:
    """The resources of one type in a stack's template."""
    return list(Template.from_stack(stack).find_resources(kind).values())


@pytest.fixture
def stack() -> cdk.Stack:
    return cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="us-east-1"))


@pytest.fixture
def vpc(stack: cdk.Stack) -> ec2.Vpc:
    return ec2.Vpc(stack, "Vpc", max_azs=2)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\nCOPY train.py /opt/ml/code/\n")
    return tmp_path


def test_a_queue_and_a_role_are_resources_with_an_environment_and_a_default_child(stack: cdk.Stack) -> None:
    """Construct Class: "Classes which represent AWS resources ... must extend the cdk.Resource class"."""
    queue, role = TrainingQueue(stack, "Queue", capacity=8), TrainingRole(stack, "Role")
    assert isinstance(queue.node.default_child, batch.CfnJobQueue)
    assert isinstance(role.node.default_child, iam.CfnRole)
    for resource in (queue, role):
        assert isinstance(resource, cdk.Resource)
        assert (resource.env.account, resource.env.region) == ("123456789012", "us-east-1")


def test_a_removal_policy_is_applied_to_the_job_queue(stack: cdk.Stack) -> None:
    """State: "Removal policy is applied at the CFN resource level"."""
    TrainingQueue(stack, "Queue", capacity=8).apply_removal_policy(cdk.RemovalPolicy.RETAIN)
    [queue] = of_type(stack, "AWS::Batch::JobQueue")
    assert queue["DeletionPolicy"] == "Retain"


def test_a_queue_of_another_stack_is_referred_to_by_its_arn() -> None:
    """Imports: "If a resource has an ARN attribute, it should implement at least a fromFooArn import method"."""
    stack = UserStack()
    queue = TrainingQueue.from_queue_arn(stack, "Queue", QUEUE_ARN)
    stack.workflow(queue=queue)
    assert (queue.queue_arn, queue.env.region, queue.env.account) == (QUEUE_ARN, "eu-west-1", "210987654321")
    assert of_type(stack, "AWS::Batch::JobQueue") == []
    assert QUEUE_ARN in json.dumps(stack.template())


def test_an_arn_that_names_no_job_queue_is_refused(stack: cdk.Stack) -> None:
    """Imports: methods that "expect to be able to parse their input ... must verify that the input"."""
    assert message_of(lambda: TrainingQueue.from_queue_arn(stack, "Queue", "arn:aws:sqs:us-east-1:1:jobs")) == (
        "queue_arn must be the ARN of a job queue, like 'arn:aws:batch:us-east-1:123456789012:job-queue/jobs', got "
        "'arn:aws:sqs:us-east-1:1:jobs'"
    )
    token = cdk.Fn.import_value("QueueArn")
    assert TrainingQueue.from_queue_arn(stack, "Imported", token).queue_arn == token


def test_a_queue_with_shares_is_referred_to_by_its_attributes() -> None:
    """Imports, From-attributes: "allow users to explicitly supply values to all resource attributes"."""
    stack = UserStack()
    queue = TrainingQueue.from_queue_attributes(
        stack, "Queue", queue_arn=QUEUE_ARN, capacity=8, shares={"vision": 2, "speech": 1}
    )
    stack.workflow(queue=queue.share("vision", priority=3))
    assert (queue.capacity, queue.shares) == (8, {"vision": 2, "speech": 1})
    assert '"ShareIdentifier\\":\\"vision' in json.dumps(stack.template())
    assert message_of(lambda: queue.share("robots")) == (
        "name must be a share of Stack/Queue ('vision', 'speech'), like 'vision', got 'robots'"
    )


def test_the_capacity_of_a_queue_that_is_referred_to_is_not_known_unless_it_is_set() -> None:
    """Errors, Avoid Errors If Possible: "Only fail if the user has explicitly specified bad configuration"."""
    stack = UserStack()
    many = DataParallelJob(InstanceGroup("ml.g5.xlarge", 100))
    stack.workflow("Any", job=many, queue=TrainingQueue.from_queue_arn(stack, "ByArn", QUEUE_ARN))
    few = TrainingQueue.from_queue_attributes(stack, "Few", queue_arn=QUEUE_ARN, capacity=8)
    assert message_of(lambda: stack.workflow("Few workflow", job=many, queue=few)).startswith(
        "capacity of Stack/Few must be at least the machines of one job, like capacity=100, got 8"
    )


def test_quota_shares_that_are_referred_to_need_their_arns_and_the_capacity_by_type() -> None:
    """Imports, From-attributes: a resource with "more than a single attribute" is imported by all of them."""
    stack = UserStack()
    shares = {"vision": QuotaShare({"ml.g5.xlarge": 4})}
    arns = {"vision": f"{QUEUE_ARN}/quota-share/vision"}
    queue = TrainingQueue.from_queue_attributes(
        stack,
        "Queue",
        queue_arn=QUEUE_ARN,
        capacity={"ml.g5.xlarge": 8},
        shares=shares,
        quota_share_arns=arns,
    )
    stack.workflow(queue=queue.share("vision"))
    assert arns["vision"] in json.dumps(stack.template())

    def without_arns() -> ITrainingQueue:
        capacity = {"ml.g5.xlarge": 8}
        return TrainingQueue.from_queue_attributes(
            stack, "Other", queue_arn=QUEUE_ARN, capacity=capacity, shares=shares
        )

    assert message_of(without_arns) == (
        "quota_share_arns must have the ARN of each quota share, like {'vision': 'arn:aws:batch:us-east-1:123456789012:"
        "job-queue/jobs/quota-share/vision'}, got {}"
    )


def test_queues_of_the_app_and_others_have_one_interface(stack: cdk.Stack) -> None:
    """Owned vs. Unowned Constructs: "all constructs ... should always have a corresponding construct interface"."""
    owned: ITrainingQueue = TrainingQueue(stack, "Queue", capacity=8)
    other: ITrainingQueue = TrainingQueue.from_queue_arn(stack, "Other", QUEUE_ARN)
    for queue in (owned, other):
        assert isinstance(queue, ITrainingQueue)
    assert not isinstance(stack, ITrainingQueue)


def test_actions_on_a_queue_are_granted_to_a_principal(stack: cdk.Stack) -> None:
    """Grants: "All constructs that represent AWS resources must have at least one grant method called “grant”"."""
    user = iam.User(stack, "User")
    grant = TrainingQueue.from_queue_arn(stack, "Queue", QUEUE_ARN).grant(user, "batch:SubmitServiceJob")
    assert grant.success
    [policy] = of_type(stack, "AWS::IAM::Policy")
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("batch:SubmitServiceJob", QUEUE_ARN)


def test_each_grant_method_returns_a_grant(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """Grants: "Returns an iam.Grant object"."""
    role = TrainingRole(stack, "Role")
    bucket = s3.Bucket(stack, "Bucket", encryption_key=kms.Key(stack, "Key"))
    function = lambda_.Function.from_function_arn(
        stack, "Function", "arn:aws:lambda:us-east-1:123456789012:function:credentials"
    )
    image = TrainingImage.from_dlc(stack, "Image", "pytorch-training", "2.6.0-gpu-py312")
    elsewhere = TrainingImage.from_uri(stack, "Elsewhere", "registry.example.com/team/training:1")
    grants = {
        "grant": role.grant(iam.AccountRootPrincipal(), "iam:GetRole"),
        "grant_checkpoints": role.grant_checkpoints(bucket, "checkpoints/"),
        "grant_invoke": role.grant_invoke(function),
        "grant_key": role.grant_key(kms.Key(stack, "Other")),
        "grant_network": role.grant_network(TrainingNetwork(stack, "Network", vpc=vpc)),
        "grant_pass_role": role.grant_pass_role(iam.User(stack, "User")),
        "grant_read": role.grant_read(bucket, "images/"),
        "grant_read_write": role.grant_read_write(bucket, "both/"),
        "grant_write": role.grant_write(bucket, "models/"),
    }
    assert grants.keys() == {name for name in vars(TrainingRole) if name == "grant" or name.startswith("grant_")} - {
        "grant_principal"
    }
    for name, grant in {**grants, "grant_pull": image.grant_pull(role), "none": elsewhere.grant_pull(role)}.items():
        assert isinstance(grant, iam.Grant), name
    assert all(grants[name].success for name in grants.keys() - {"grant"})
    assert not elsewhere.grant_pull(role).success


def test_every_grant_method_of_the_resources_declares_a_grant() -> None:
    """Grants: the signature is "grantXxx(grantee: iam.IGrantable): iam.Grant"."""
    constructs = [
        TrainingImage,
        TrainingNetwork,
        TrainingQueue,
        TrainingRole,
        TrainingWorkflow,
        library.LustreFileSystem,
    ]
    found = {
        f"{one.__name__}.{name}": inspect.signature(method).return_annotation
        for one in constructs
        for name, method in inspect.getmembers(one, inspect.isfunction)
        if name == "grant" or name.startswith("grant_")
    }
    assert found
    assert set(found.values()) <= {"iam.Grant", iam.Grant}, found


def test_a_grant_on_a_key_that_is_known_by_its_alias_alone_is_no_success(stack: cdk.Stack) -> None:
    """Grants: "The iam.Grant class has a rich API for implementing grants"."""
    role = TrainingRole(stack, "Role")
    assert not role.grant_key(kms.Alias.from_alias_name(stack, "Key", "alias/training")).success
    assert role.grant_key(kms.Key(stack, "Owned")).success


def test_a_role_is_its_own_principal_and_so_is_one_that_is_referred_to(stack: cdk.Stack) -> None:
    """Roles: grantPrincipal "must be set to the role if available"."""
    key = kms.Key(stack, "Key")
    for role in (TrainingRole(stack, "Role"), TrainingRole.from_role_arn(stack, "Other", ROLE_ARN)):
        assert role.grant_principal.policy_fragment.principal_json == {
            "AWS": [role.role_arn],
        }
        assert key.grant_decrypt(role).success


def test_what_is_granted_to_a_workflow_or_to_a_pipeline_is_granted_to_its_jobs() -> None:
    """Roles: IGrantable's principal is "the IAM role that will be used by the resource to perform operations"."""
    stack = UserStack()
    bucket, key = s3.Bucket(stack, "Data"), kms.Key(stack, "Key")
    first, second, alone = (stack.workflow(id) for id in ("First", "Second", "Alone"))
    pipeline = library.TrainingPipeline(stack, "Pipeline", steps=[first, second])
    assert bucket.grant_read(alone).success
    assert bucket.grant_put(pipeline).success
    assert key.grant_decrypt(pipeline).success
    policies = {
        policy["Properties"]["Roles"][0]["Ref"].rstrip("0123456789ABCDEF"): json.dumps(policy)
        for policy in of_type(stack, "AWS::IAM::Policy")
    }
    assert {role for role, text in policies.items() if "s3:GetBucket*" in text} == {"AloneRole"}
    for action in ("s3:PutObjectTagging", "kms:Decrypt"):
        assert {role for role, text in policies.items() if action in text} == {"FirstRole", "SecondRole"}
    assert not of_type(stack, "AWS::S3::BucketPolicy")


def test_a_role_is_referred_to_by_its_arn_or_its_name(stack: cdk.Stack) -> None:
    """Imports, "from" Methods: "given one or more of its physical attributes such as ARN, name"."""
    by_arn = TrainingRole.from_role_arn(stack, "ByArn", ROLE_ARN)
    assert (by_arn.role_arn, by_arn.role_name, by_arn.env.account) == (ROLE_ARN, "training", "210987654321")
    assert TrainingRole.from_role_name(stack, "ByName", "training").role_name == "training"


def test_an_image_is_made_by_static_methods_one_for_each_way(stack: cdk.Stack, context: Path) -> None:
    """Unions: "use a class with static methods" such as lambda.Code.asset; ecs.ContainerImage has these names."""
    built = TrainingImage.from_asset(stack, "Built", str(context), file="Dockerfile")
    in_codebuild = TrainingImage.from_codebuild(stack, "InCodeBuild", str(context))
    repository = ecr.Repository.from_repository_name(stack, "Repository", "jobs")
    existing = TrainingImage.from_ecr_repository(stack, "Existing", repository, "1")
    aws = TrainingImage.from_dlc(stack, "Aws", "pytorch-training", "2.6.0-gpu-py312")
    assert built.asset is not None
    assert in_codebuild.build is not None
    assert existing.repository is repository
    assert aws.base == "pytorch-training:2.6.0-gpu-py312"
    for image in (built, in_codebuild, existing, aws):
        assert isinstance(image, TrainingImage)


def test_an_image_is_made_in_no_other_way(stack: cdk.Stack, context: Path) -> None:
    """Unions: as of lambda.Code, whose constructor is not for users; the message names the methods."""
    make: Any = TrainingImage
    with pytest.raises(TypeError, match=r"^TrainingImage is made by TrainingImage\.from_asset, from_codebuild, "):
        make(stack, "Image", directory=str(context))


def test_the_methods_of_an_image_begin_with_scope_and_id() -> None:
    """Imports: "First argument must be scope of type Construct. Second argument is a string"."""
    for construct in (TrainingImage, TrainingNetwork, TrainingQueue, TrainingRole, TrainingWorkflow):
        methods = [name for name in vars(construct) if name.startswith("from_")]
        assert methods
        for name in methods:
            assert list(inspect.signature(getattr(construct, name)).parameters)[:2] == ["scope", "id"], name


def test_an_instance_type_is_that_of_ec2(stack: cdk.Stack) -> None:
    """Props, Types: "Use strong types ... instead of physical attributes"."""
    by_class = ec2.InstanceType.of(ec2.InstanceClass.G5, ec2.InstanceSize.XLARGE)
    assert InstanceGroup(by_class, 2) == InstanceGroup("ml.g5.xlarge", 2)
    assert InstanceGroup(ec2.InstanceType("g5.xlarge")) == InstanceGroup("ml.g5.xlarge")
    several = InstanceGroup([ec2.InstanceType("p5.48xlarge"), "ml.p4d.24xlarge"])
    assert several == InstanceGroup(["ml.p5.48xlarge", "ml.p4d.24xlarge"])


@pytest.mark.parametrize("name", ["m1.small", "nonsense"])
def test_an_instance_type_of_ec2_that_sagemaker_does_not_train_on_is_refused_as_its_text_is(name: str) -> None:
    """Errors, Error messages: "phrase the message in terms of the API the user interacted with"."""
    refused = message_of(lambda: InstanceGroup(ec2.InstanceType(name)))
    assert refused == message_of(lambda: InstanceGroup(f"ml.{name}"))
    assert refused.startswith("instance_type must be")


def test_a_network_takes_vpc_and_vpc_subnets_and_security_groups(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """VPC: "Props of such constructs should include ... vpc: ec2.IVpc", and subnets that are selected in it."""
    groups = [ec2.SecurityGroup(stack, name, vpc=vpc) for name in ("One", "Two")]
    public = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
    network = TrainingNetwork(stack, "Network", vpc=vpc, vpc_subnets=public, security_groups=groups)
    assert network.subnets.subnet_ids == vpc.select_subnets(subnet_type=ec2.SubnetType.PUBLIC).subnet_ids
    assert network.security_groups == tuple(groups)


def test_the_hosts_are_in_all_private_subnets_unless_others_are_selected(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """VPC: "the preferred default behavior is to place the resource in all private subnets"."""
    private = [subnet.subnet_id for subnet in vpc.private_subnets]
    assert TrainingNetwork(stack, "Network", vpc=vpc).subnets.subnet_ids == private


def test_the_three_props_of_a_vpc_make_a_network(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """Props, Flat: "Do not introduce artificial nesting for props"."""
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc)
    workflow = Construct(stack, "Training")
    network = network_of(workflow, vpc=vpc, vpc_subnets=None, security_groups=[group])
    assert network is not None
    assert network.node.path == "Stack/Training/Network"
    assert network.security_groups == (group,)
    assert network_of(workflow, network=network) is network
    assert network_of(workflow) is None


@pytest.mark.parametrize("prop", ["vpc_subnets", "security_groups"])
def test_subnets_and_security_groups_without_their_vpc_are_refused(stack: cdk.Stack, vpc: ec2.Vpc, prop: str) -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    values: dict[str, Any] = {
        "vpc_subnets": ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
        "security_groups": [ec2.SecurityGroup(stack, "Group", vpc=vpc)],
    }
    network = TrainingNetwork(stack, "Own", vpc=vpc)
    alone = message_of(lambda: network_of(stack, **{prop: values[prop]}))
    assert alone.startswith(f"{prop} must be left out without vpc, like {prop}=None, got ")
    beside = message_of(lambda: network_of(stack, network=network, **{prop: values[prop]}))
    assert beside.startswith(f"{prop} must be left out with network, like {prop}=None, got ")


def test_a_vpc_beside_a_network_is_refused(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    network = TrainingNetwork(stack, "Own", vpc=vpc)
    assert message_of(lambda: network_of(stack, network=network, vpc=vpc)) == (
        "vpc must be left out with network, like vpc=None, got 'Stack/Vpc'"
    )


def test_what_opens_a_port_to_a_network_opens_it_to_its_hosts(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """Connections: resources with security groups "should implement the connections API interface"."""
    files = ec2.SecurityGroup(stack, "Files", vpc=vpc)
    files.connections.allow_from(TrainingNetwork(stack, "Network", vpc=vpc), ec2.Port.tcp(2049))
    rules = [rule["Properties"].get("FromPort") for rule in of_type(stack, "AWS::EC2::SecurityGroupIngress")]
    assert 2049 in rules


def test_codebuild_builds_in_a_vpc(stack: cdk.Stack, vpc: ec2.Vpc, context: Path) -> None:
    """VPC: "Compute resources such as ... AWS CodeBuild projects normally allow users to specify the VPC configuration"."""
    for name in ("One", "Two"):
        TrainingImage.from_codebuild(stack, name, str(context), vpc=vpc)
    [project] = of_type(stack, "AWS::CodeBuild::Project")
    placed = project["Properties"]["VpcConfig"]
    assert placed["Subnets"] == stack.resolve([subnet.subnet_id for subnet in vpc.private_subnets])
    [found] = [one for one in stack.node.find_all() if isinstance(one, codebuild.CfnProject)]
    assert found.vpc_config is not None
    [starter] = of_type(stack, "AWS::Lambda::Function")  # which starts the project's builds
    assert starter["Properties"]["VpcConfig"]["SubnetIds"] == placed["Subnets"]


def test_a_handler_runs_in_a_vpc(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """VPC: "Compute resources such as AWS Lambda functions ... normally allow users to specify the VPC configuration"."""
    groups = [ec2.SecurityGroup(stack, "Group", vpc=vpc)]
    public = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
    own, other = Construct(stack, "Own"), Construct(stack, "Other")
    TrainingFunctions.of(stack).in_vpc(vpc)
    TrainingFunctions.of(own).in_vpc(vpc, vpc_subnets=public, security_groups=groups)
    for scope in (own, other):
        handler_function(Construct(scope, "Handler"), "sweep", "Reads rows")
    template = Template.from_stack(stack)
    functions = template.find_resources("AWS::Lambda::Function")
    [nearest] = [one["Properties"] for name, one in functions.items() if name.startswith("Own")]
    [stacks] = [one["Properties"] for name, one in functions.items() if name.startswith("Other")]
    assert nearest["VpcConfig"] == {
        "SubnetIds": stack.resolve([subnet.subnet_id for subnet in vpc.public_subnets]),
        "SecurityGroupIds": [stack.resolve(groups[0].security_group_id)],
    }
    assert stacks["VpcConfig"]["SubnetIds"] == stack.resolve([subnet.subnet_id for subnet in vpc.private_subnets])
    assert len(stacks["VpcConfig"]["SecurityGroupIds"]) == 1
    template.resource_properties_count_is(
        "AWS::IAM::Policy",
        {
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [Match.object_like({"Action": Match.array_with(["ec2:CreateNetworkInterface"])})]
                )
            }
        },
        2,
    )


def test_a_handler_in_a_vpc_is_no_other_than_without_but_for_its_place(stack: cdk.Stack, vpc: ec2.Vpc) -> None:
    """Construct IDs: logical ids "must be stable across updates"."""
    other = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="us-east-1"))
    TrainingFunctions.of(stack).in_vpc(vpc)
    handler_function(Construct(stack, "Handler"), "sweep", "Reads rows")
    handler_function(Construct(other, "Handler"), "sweep", "Reads rows")
    inside, outside = (Template.from_stack(one).find_resources("AWS::Lambda::Function") for one in (stack, other))
    assert inside.keys() == outside.keys()


def test_a_place_for_functions_that_there_are_already_is_refused(vpc: ec2.Vpc) -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    stack = UserStack()
    stack.workflow()
    said = message_of(lambda: TrainingFunctions.of(stack).in_vpc(vpc))
    assert said.startswith("in_vpc must go before what has functions, like the first workflow, got 'Stack/")


def test_each_function_of_a_workflow_is_one_that_aspects_and_cdk_nag_see() -> None:
    """What's Included: constructs "directly represent" each resource by its Cfn class, which is what tools look for."""
    stack = UserStack()
    stack.workflow()
    assert raw_functions(stack) == []
    assert len(of_type(stack, "AWS::Lambda::Function")) == 1


def test_a_function_that_aspects_do_not_see_is_found(stack: cdk.Stack) -> None:
    """What's Included: "CFN Resources ... directly represent all resources available in AWS CloudFormation"."""
    cdk.CfnResource(stack, "Raw", type="AWS::Lambda::Function")
    assert raw_functions(stack) == ["Stack/Raw"]


def raw_functions(stack: cdk.Stack) -> list[str]:
    """The constructs of functions that are no ``CfnFunction``, by which aspects and rules would know them."""
    return [
        child.node.path
        for child in stack.node.find_all()
        if isinstance(child, cdk.CfnResource)
        and child.cfn_resource_type == "AWS::Lambda::Function"
        and not isinstance(child, lambda_.CfnFunction)
    ]


def test_an_aspect_changes_the_runtime_of_a_workflows_function() -> None:
    """Tags: an aspect reaches "all resources within a subtree"."""
    stack = UserStack()
    stack.workflow()

    @jsii.implements(cdk.IAspect)
    class Runtime:
        def visit(self, node: Construct) -> None:
            if isinstance(node, lambda_.CfnFunction):
                node.runtime = "python3.14"

    cdk.Aspects.of(stack).add(Runtime())
    [function] = of_type(stack, "AWS::Lambda::Function")
    assert function["Properties"]["Runtime"] == "python3.14"


def test_a_tag_of_the_stack_is_on_the_workflows_function() -> None:
    """Tags: "seamlessly tag all resources within a subtree"."""
    stack = UserStack()
    stack.workflow()
    cdk.Tags.of(stack).add("team", "vision")
    [function] = of_type(stack, "AWS::Lambda::Function")
    assert {"Key": "team", "Value": "vision"} in function["Properties"]["Tags"]


def test_a_workflow_is_a_resource_with_an_environment_and_the_state_machine_as_its_default_child() -> None:
    """Construct Class: "Classes which represent AWS resources ... must extend the cdk.Resource class"."""
    stack = UserStack()
    workflow = stack.workflow()
    assert isinstance(workflow, cdk.Resource)
    assert isinstance(workflow.node.default_child, sfn.CfnStateMachine)
    assert workflow.stack is stack
    assert (workflow.env.account, workflow.env.region) == ("123456789012", "us-east-1")


def test_a_removal_policy_is_applied_to_the_state_machine() -> None:
    """State: "Removal policy is applied at the CFN resource level"."""
    stack = UserStack()
    stack.workflow().apply_removal_policy(cdk.RemovalPolicy.RETAIN)
    machines = Template.from_stack(stack).find_resources("AWS::StepFunctions::StateMachine")
    policies = {name.rstrip("0123456789ABCDEF"): one.get("DeletionPolicy") for name, one in machines.items()}
    assert policies["TrainingStateMachine"] == "Retain"


def test_a_workflow_of_another_stack_is_referred_to_by_its_arn(stack: cdk.Stack) -> None:
    """Imports: "If a resource has an ARN attribute, it should implement at least a fromFooArn import method"."""
    workflow = TrainingWorkflow.from_state_machine_arn(stack, "Training", MACHINE_ARN)
    assert workflow.state_machine.state_machine_arn == MACHINE_ARN
    assert (workflow.env.account, workflow.env.region) == ("210987654321", "eu-west-1")
    assert not Template.from_stack(stack).to_json().get("Resources")


def test_an_arn_that_names_no_state_machine_is_refused(stack: cdk.Stack) -> None:
    """Imports: methods that "expect to be able to parse their input ... must verify that the input"."""
    activity = "arn:aws:states:us-east-1:123456789012:activity:training"
    assert message_of(lambda: TrainingWorkflow.from_state_machine_arn(stack, "Training", activity)) == (
        "state_machine_arn must be the ARN of a state machine, like "
        f"'arn:aws:states:us-east-1:123456789012:stateMachine:training', got {activity!r}"
    )
    token = cdk.Fn.import_value("TrainingArn")
    assert TrainingWorkflow.from_state_machine_arn(stack, "Imported", token).state_machine.state_machine_arn == token


def test_workflows_of_the_app_and_others_have_one_interface() -> None:
    """Owned vs. Unowned Constructs: "all constructs ... should always have a corresponding construct interface"."""
    stack = UserStack()
    owned: ITrainingWorkflow = stack.workflow()
    other: ITrainingWorkflow = TrainingWorkflow.from_state_machine_arn(stack, "Other", MACHINE_ARN)
    for workflow in (owned, other):
        assert isinstance(workflow, ITrainingWorkflow)
    assert not isinstance(owned.state_machine, ITrainingWorkflow)


@pytest.mark.parametrize(
    ("method", "actions", "allowed"),
    [
        ("grant", ("states:ListExecutions",), "states:ListExecutions"),
        ("grant_execution", ("states:StopExecution",), "states:StopExecution"),
        ("grant_read", (), "states:DescribeExecution"),
        ("grant_redrive_execution", (), "states:RedriveExecution"),
        ("grant_start_execution", (), "states:StartExecution"),
    ],
)
def test_actions_on_a_workflow_are_granted_to_a_principal(method: str, actions: tuple[str, ...], allowed: str) -> None:
    """Grants: "All constructs that represent AWS resources must have at least one grant method called “grant”"."""
    stack = UserStack()
    workflows = [stack.workflow(), TrainingWorkflow.from_state_machine_arn(stack, "Other", MACHINE_ARN)]
    for number, workflow in enumerate(workflows):
        user = iam.User(stack, f"User{number}")
        grant = getattr(workflow, method)(user, *actions)
        assert isinstance(grant, iam.Grant)
        assert grant.success
    policies = [json.dumps(one) for one in of_type(stack, "AWS::IAM::Policy") if "Users" in one["Properties"]]
    assert [allowed in policy for policy in policies] == [True, True]


def test_what_is_granted_to_a_workflow_of_another_stack_is_granted_to_its_jobs_if_their_role_is_known(
    stack: cdk.Stack,
) -> None:
    """Roles: grantPrincipal "must be set to the role if available"."""
    bucket = s3.Bucket(stack, "Data")
    role = iam.Role.from_role_arn(stack, "JobsRole", "arn:aws:iam::123456789012:role/training")
    known = TrainingWorkflow.from_training_workflow_attributes(stack, "Known", state_machine_arn=MACHINE_ARN, role=role)
    unknown = TrainingWorkflow.from_state_machine_arn(stack, "Unknown", MACHINE_ARN)
    assert bucket.grant_read(known).success
    [policy] = of_type(stack, "AWS::IAM::Policy")
    assert policy["Properties"]["Roles"] == ["training"]
    with pytest.raises(RuntimeError, match="policy fragment of Stack/Unknown, resource imported without a role"):
        bucket.grant_read(unknown)


def test_a_workflow_of_another_stack_has_the_metrics_of_its_executions_and_of_its_jobs(stack: cdk.Stack) -> None:
    """Metrics: "Almost all AWS resources emit CloudWatch metrics", each by a method with the prefix metric."""
    counted = TrainingWorkflow.from_training_workflow_attributes(
        stack, "Counted", state_machine_arn=MACHINE_ARN, job_metrics=True
    )
    for metric in (counted.metric("ExecutionsFailed"), counted.metric_failed(), counted.metric_training_time()):
        assert metric.dimensions == {"StateMachineArn": MACHINE_ARN}
    uncounted = TrainingWorkflow.from_state_machine_arn(stack, "Uncounted", MACHINE_ARN)
    assert message_of(uncounted.metric_training_time).startswith("job_metrics must be True for the metric TrainingTime")


def test_a_workflow_of_another_stack_is_a_state_of_a_machine(stack: cdk.Stack) -> None:
    """Owned vs. Unowned Constructs: an unowned one has what its interface has."""
    task = TrainingWorkflow.from_state_machine_arn(stack, "Training", MACHINE_ARN).as_task(stack, "Train")
    sfn.StateMachine(stack, "Machine", definition_body=sfn.DefinitionBody.from_chainable(task))
    [machine] = of_type(stack, "AWS::StepFunctions::StateMachine")
    assert MACHINE_ARN in json.dumps(machine)
    assert "startExecution.sync:2" in json.dumps(machine)


def made_by(kind: str, stack: UserStack, **props: Any) -> TrainingWorkflow | TrainingTask:
    """A workflow or a task of a user's stack, the task in a machine of its own."""
    if kind == "workflow":
        return stack.workflow("Training", **props)
    task = stack.task("Training", **props)
    stack.machine_of(task)
    return task


BOTH = pytest.mark.parametrize("kind", ["workflow", "task"])


@BOTH
def test_the_jobs_of_a_workflow_and_of_a_task_run_in_a_vpc(kind: str) -> None:
    """VPC: "Props of such constructs should include ... vpc: ec2.IVpc", and subnets that are selected in it."""
    stack = UserStack()
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc)
    public = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
    made = made_by(kind, stack, vpc=vpc, vpc_subnets=public, security_groups=[group])
    network = made.network
    assert network is not None
    assert network.node.path == "Stack/Training/Network"
    assert network.subnets.subnet_ids == [subnet.subnet_id for subnet in vpc.public_subnets]
    config = stack.request()["VpcConfig"]
    assert len(config["Subnets"]) == 2
    assert len(config["SecurityGroupIds"]) == 1
    assert "ec2:CreateNetworkInterface" in json.dumps(stack.statements("TrainingRole"))


@BOTH
def test_the_jobs_of_a_workflow_and_of_a_task_are_in_the_private_subnets_by_default(kind: str) -> None:
    """VPC: "the preferred default behavior is to place the resource in all private subnets"."""
    stack = UserStack()
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    network = made_by(kind, stack, vpc=vpc).network
    assert network is not None
    assert network.subnets.subnet_ids == [subnet.subnet_id for subnet in vpc.private_subnets]


@BOTH
def test_a_network_beside_a_vpc_of_a_workflow_or_a_task_is_refused(kind: str) -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    stack = UserStack()
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    network = TrainingNetwork(stack, "Network", vpc=vpc)
    assert message_of(lambda: made_by(kind, stack, network=network, vpc=vpc)) == (
        "vpc must be left out with network, like vpc=None, got 'Stack/Vpc'"
    )
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc)
    alone = message_of(lambda: stack.workflow("Other", security_groups=[group]))
    assert alone.startswith("security_groups must be left out without vpc, like security_groups=None, got ")


GROUP_ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/digits"
OVERRIDES: dict[str, dict[str, Any]] = {
    "path": {"ModelPackageConfig.ModelPackageGroupArn": GROUP_ARN},
    "structure": {"ModelPackageConfig": {"ModelPackageGroupArn": GROUP_ARN}},
}


@pytest.mark.parametrize("form", OVERRIDES)
def test_a_member_of_the_api_that_is_no_prop_is_in_the_request(form: str) -> None:
    """Raw Overrides: "use the raw override methods" for what an L2 does not have, by the path in the API's own words."""
    stack = UserStack()
    stack.workflow(request_overrides=OVERRIDES[form])
    assert stack.request()["ModelPackageConfig"] == {"ModelPackageGroupArn": GROUP_ARN}


def test_an_override_is_beside_what_props_set_in_its_structure() -> None:
    """Raw Overrides: as ``addPropertyOverride``, which leaves the other properties."""
    stack = UserStack()
    stack.workflow(request_overrides={unlisted("StoppingCondition.MaxIdleTimeInSeconds"): 60})
    assert stack.request()["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400, "MaxIdleTimeInSeconds": 60}
    assert stack.warned() == ["unlisted"]


def test_an_override_may_come_from_an_executions_input() -> None:
    """Props, Types: tokens are values as any other."""
    stack = UserStack()
    overrides = {"ModelPackageConfig.ModelPackageGroupArn": sfn.JsonPath.string_at("$.group")}
    stack.workflow(request_overrides=overrides)
    assert stack.request()["ModelPackageConfig"] == {"ModelPackageGroupArn.$": "$.group"}


@pytest.mark.parametrize(
    ("path", "value", "prop"),
    [
        ("Environment.LOG", "debug", "environment"),
        ("RoleArn", "arn", "role"),
        ("StoppingCondition.MaxRuntimeInSeconds", 5, "max_runtime"),
        ("StoppingCondition", 5, "max_pending"),
        ("InputDataConfig.Other", 5, "channels"),
        ("ExperimentConfig.RunName", "a", "experiment"),
    ],
)
def test_an_override_of_what_a_prop_sets_is_refused_and_the_prop_named(path: str, value: Any, prop: str) -> None:
    """Errors, Error messages: "phrase the message in terms of the API the user interacted with"."""
    assert message_of(lambda: UserStack().workflow(request_overrides={path: value})) == (
        "request_overrides must have members that no prop sets, like {'ModelPackageConfig.ModelPackageGroupArn': "
        f"'arn:aws:sagemaker:...'}}, got {path!r}, which the prop {prop} sets"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"ModelPackageConfig.ModelPackageGroupArn": None}, "] must have a value, like"),
        ({"ModelPackageConfig.ModelPackageGroupArn": 5}, "(ModelPackageConfig.ModelPackageGroupArn) must be a string, got 5"),
        ({"ModelPackageConfig": {"SourceModelPackageArn": GROUP_ARN}}, " (ModelPackageConfig.ModelPackageGroupArn) must be set"),
        ({"StoppingCondition.MaxIdleTimeInSeconds": 5}, "(StoppingCondition.MaxIdleTimeInSeconds) must be one of MaxRuntime"),
        ({"Debug Level": 5}, " must be by the paths of members, like {'ModelPackageConfig.ModelPackageGroupArn': 'arn:"),
        ({**OVERRIDES["path"], **OVERRIDES["structure"]}, " must set each member once, like {'ModelPackageConfig."),
    ],
)  # fmt: skip
def test_an_override_that_the_service_does_not_take_is_refused(overrides: dict[str, Any], message: str) -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    refused = message_of(lambda: UserStack().workflow(request_overrides=overrides))
    assert refused.startswith("request_overrides")
    assert message in refused


def test_a_task_has_overrides_that_its_integration_is_known_to_take() -> None:
    """Errors, Throwing exceptions: "Validate input as early as it is passed into your code"."""
    refused = message_of(lambda: UserStack().task(request_overrides=OVERRIDES["path"]))
    assert refused.startswith("ModelPackageConfig must be what `sagemaker:createTrainingJob.sync` is known to take")


@BOTH
def test_a_tag_of_the_stack_is_on_the_training_jobs_of_a_workflow_and_of_a_task(kind: str) -> None:
    """Tags: "seamlessly tag all resources within a subtree"."""
    stack = UserStack()
    made = made_by(kind, stack, tags={"team": "vision"})
    cdk.Tags.of(stack).add("cost-centre", "42")
    cdk.Tags.of(stack).add("team", "of the stack")
    cdk.Tags.of(made).add("stage", "test")
    assert stack.request()["Tags"] == [
        {"Key": "team", "Value": "vision"},
        {"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"},
        {"Key": "cost-centre", "Value": "42"},
        {"Key": "stage", "Value": "test"},
    ]


def test_the_resources_of_a_workflow_have_the_tags_of_the_stack_too() -> None:
    """Tags: "seamlessly tag all resources within a subtree"."""
    stack = UserStack()
    stack.workflow()
    cdk.Tags.of(stack).add("cost-centre", "42")
    for kind in ("AWS::StepFunctions::StateMachine", "AWS::IAM::Role", "AWS::Logs::LogGroup", "AWS::Lambda::Function"):
        resources = of_type(stack, kind)
        assert resources
        for resource in resources:
            assert {"Key": "cost-centre", "Value": "42"} in resource["Properties"]["Tags"]


def test_a_tag_of_the_stack_is_on_jobs_that_wait_in_a_queue() -> None:
    """Tags: "seamlessly tag all resources within a subtree"."""
    stack = UserStack()
    stack.workflow(queue=TrainingQueue(stack, "Queue", capacity=8), tags={"team": "vision"})
    cdk.Tags.of(stack).add("cost-centre", "42")
    [submit] = [
        machine["States"]["Create"]["Parameters"]
        for machine in stack.machines().values()
        if "Create" in machine["States"]
    ]
    assert submit["Tags"] == {
        "team": "vision",
        "StepFunctionsExecution.$": "$$.Execution.Id",
        "cost-centre": "42",
    }


@BOTH
def test_a_tag_that_sagemaker_would_refuse_is_an_error_at_synthesis(kind: str) -> None:
    """Errors, Throwing exceptions: what is known after construction alone is checked by validations at synthesis."""
    stack = UserStack()
    made_by(kind, stack)
    cdk.Tags.of(stack).add("cost*centre", "42")
    with pytest.raises(RuntimeError, match=r"tags of a scope must have names of .*, got 'cost\*centre'"):
        stack.template()


def test_alternatives_and_the_jobs_of_a_kind_with_several_have_the_tags_of_the_stack() -> None:
    """Tags: "seamlessly tag all resources within a subtree"."""
    stack = UserStack()
    stack.workflow(alternatives=[DataParallelJob(InstanceGroup("ml.g5.2xlarge"))])
    cdk.Tags.of(stack).add("cost-centre", "42")
    requests = [
        state["Parameters"]
        for machine in stack.machines().values()
        for state in machine["States"].values()
        if state.get("Resource", "").endswith("createTrainingJob.sync")
    ]
    assert [{"Key": "cost-centre", "Value": "42"} in request["Tags"] for request in requests] == [True, True]
