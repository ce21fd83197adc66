"""What each role of a workflow may do, and whom it lets start it."""

import json

from aws_cdk import aws_iam as iam
from stacks import RenderedWorkflow, UserStack, statements_of

from cdk_sagemaker_training import Grid, NumberField, TrainingPipeline, TrainingRole, TrainingSweep


def test_the_machine_may_touch_its_own_jobs_only(sync: RenderedWorkflow) -> None:
    statements = sync.statements("TrainingStateMachineRole")
    [jobs] = [statement for statement in statements if "sagemaker:CreateTrainingJob" in statement["Action"]]
    assert jobs["Action"] == [
        "sagemaker:CreateTrainingJob",
        "sagemaker:DescribeTrainingJob",
        "sagemaker:StopTrainingJob",
        "sagemaker:AddTags",
        "sagemaker:ListTags",
    ]
    assert jobs["Resource"] == "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-training-04d490aa-*"


def test_the_machine_may_pass_the_jobs_role_only_and_to_sagemaker_only(either: RenderedWorkflow) -> None:
    statements = either.statements("TrainingStateMachineRole")
    [passing] = [statement for statement in statements if statement["Action"] == "iam:PassRole"]
    assert passing["Resource"] == either.request["RoleArn"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def test_the_machine_may_use_the_rule_that_sync_waits_with_where_it_does(
    sync: RenderedWorkflow, poll: RenderedWorkflow
) -> None:
    [rule] = [s for s in sync.statements("TrainingStateMachineRole") if "events:PutRule" in s["Action"]]
    assert rule["Resource"] == (
        "arn:aws:events:us-east-1:123456789012:rule/StepFunctionsGetEventsForSageMakerTrainingJobsRule"
    )
    assert not [s for s in poll.statements("TrainingStateMachineRole") if "events:PutRule" in s["Action"]]


def test_jobs_read_their_channels_and_write_their_output_and_checkpoints(poll: RenderedWorkflow) -> None:
    allowed = {
        (action, resource)
        for statement in poll.statements("TrainingRole")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        for resource in ([statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"])
    }
    assert {resource for action, resource in allowed if action == "s3:GetObject"} == {
        "arn:aws:s3:::bucket/images/*",
        "arn:aws:s3:::bucket/all/*",
        "arn:aws:s3:::bucket/checkpoints/stack-training-04d490aa/*",
    }
    assert {resource for action, resource in allowed if action == "s3:PutObject"} == {
        "arn:aws:s3:::bucket/models/*",
        "arn:aws:s3:::bucket/checkpoints/stack-training-04d490aa/*",
    }
    assert ("ecr:BatchGetImage", "arn:aws:ecr:us-east-1:123456789012:repository/images") in allowed


def test_no_statement_is_for_every_resource_where_aws_has_a_narrower_one(either: RenderedWorkflow) -> None:
    actions = [statement["Action"] for statement in either.stack.statements(None) if statement["Resource"] == "*"]
    deliveries = [action for action in actions if "logs:CreateLogDelivery" in action]
    assert sorted(map(str, (action for action in actions if action not in deliveries))) == [
        "['batch:DescribeServiceJob', 'batch:ListServiceJobs', 'sagemaker:ListTrainingJobs']",
        "cloudwatch:PutMetricData",
        "ecr:GetAuthorizationToken",
        "sagemaker:ListTrainingJobs",
    ]
    assert "ManagedPolicyArns" not in json.dumps(either.template)


def test_a_prefix_with_capitals_is_allowed_as_it_is_and_as_sagemaker_writes_it_in_arns() -> None:
    statements = RenderedWorkflow(job_name_prefix="Digits").statements("TrainingStateMachineRole")
    [stopping] = [statement for statement in statements if "sagemaker:StopTrainingJob" in statement["Action"]]
    assert stopping["Resource"] == [
        "arn:aws:sagemaker:us-east-1:123456789012:training-job/Digits-*",
        "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits-*",
    ]


def test_a_role_that_there_is_already_runs_the_jobs() -> None:
    stack = UserStack()
    role = TrainingRole(stack, "Own")
    assert stack.workflow(role=role).role is role
    request = stack.request()
    assert request["RoleArn"].startswith("{Own")


def test_a_grant_to_the_workflow_is_one_to_its_jobs() -> None:
    stack = UserStack()
    workflow = stack.workflow()
    assert workflow.grant_principal == workflow.role.grant_principal
    stack.bucket.grant_read(workflow, "labels/*")
    [policy] = [
        value for key, value in stack.template()["Resources"].items() if key.startswith("TrainingRoleDefaultPolicy")
    ]
    assert "bucket/labels/*" in json.dumps(policy)


def test_a_grant_to_what_runs_workflows_is_one_to_the_jobs() -> None:
    stack = UserStack()
    workflow = stack.workflow(input_fields={"rate": NumberField(0, 1)})
    rates, results = Grid({"rate": [0.1]}), stack.place("sweeps/")
    grantees = {
        "pipeline": TrainingPipeline(stack, "Pipeline", steps=[workflow]),
        "sweep": TrainingSweep(stack, "Sweep", workflow=workflow, over=rates, results=results, concurrency=1),
    }
    for name, grantee in grantees.items():
        stack.bucket.grant_read(grantee, f"{name}/*")
    allowed = json.dumps(statements_of(stack.template(), "TrainingRole"))
    assert "bucket/pipeline/*" in allowed
    assert "bucket/sweep/*" in allowed


def test_who_may_start_the_workflow_may_start_it() -> None:
    stack = UserStack()
    user = iam.User(stack, "User")
    stack.workflow().grant_start_execution(user)
    [policy] = [value for key, value in stack.template()["Resources"].items() if key.startswith("UserDefaultPolicy")]
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "states:StartExecution"
