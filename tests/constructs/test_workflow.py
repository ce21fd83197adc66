import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from rendered import create_requests, definitions, lint, resolved

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
    TrainingNetwork,
    TrainingRole,
    TrainingWorkflow,
    WarmPool,
)
from cdk_sagemaker_training.polling import Intervals
from cdk_sagemaker_training.stopping import stopping_definition

HOMOGENEOUS = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
HETEROGENEOUS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
    train_group="dnn_group",
)
IMAGE_URI = "123456789012.dkr.ecr.us-east-1.amazonaws.com/images:1"


ENVIRONMENT = cdk.Environment(account="123456789012", region="us-east-1")


class Stack(cdk.Stack):
    """A stack with what a workflow needs, whose template is synthesized when it is first looked at."""

    def __init__(self) -> None:
        super().__init__(
            cdk.App(),
            "Stack",
            env=ENVIRONMENT,
            analytics_reporting=False,
        )
        self.bucket = s3.Bucket.from_bucket_name(self, "Bucket", "bucket")
        repository = ecr.Repository.from_repository_name(self, "Repository", "images")
        self.image = TrainingImage.from_ecr_repository(self, "Image", repository, "1")

    def workflow(self, name: str = "Training", **props: Any) -> TrainingWorkflow:
        return TrainingWorkflow(
            self,
            name,
            **{"job": HOMOGENEOUS, "image": self.image, "output": S3Prefix(self.bucket, "models/"), **props},
        )

    def template(self) -> dict[str, Any]:
        return dict(Template.from_stack(self).to_json())


class Rendered:
    """A workflow's template, with its tokens resolved."""

    def __init__(self, **props: Any) -> None:
        stack = Stack()
        self.workflow = stack.workflow(**props)
        self.template = stack.template()
        self.machines = definitions(self.template)
        [self.definition] = [value for value in self.machines.values() if "Create" in value["States"]]
        [self.stopper] = [value for value in self.machines.values() if "WaitForLateJobs" in value["States"]]
        self.states = self.definition["States"]
        [self.request] = create_requests(self.template).values()

    def statements_of(self, role: str) -> list[dict[str, Any]]:
        return [
            resolved(statement)
            for resource in self.template["Resources"].values()
            if resource["Type"] == "AWS::IAM::Policy"
            and resource["Properties"]["Roles"][0]["Ref"].rstrip("0123456789ABCDEF") == role
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        ]

    def resources_of(self, kind: str) -> list[dict[str, Any]]:
        return [value["Properties"] for value in self.template["Resources"].values() if value["Type"] == kind]


@pytest.fixture(scope="module")
def sync() -> Rendered:
    return Rendered(
        channels={"images": S3Channel(s3.Bucket.from_bucket_name(Stack(), "B", "data"), "images/")},
        hyperparameters={"epochs": 4, "text": "5"},
        tags={"team": "digits"},
        max_runtime=cdk.Duration.hours(6),
    )


@pytest.fixture(scope="module")
def poll() -> Rendered:
    stack = Stack()
    return Rendered(
        job=HETEROGENEOUS,
        channels={
            "images": S3Channel(stack.bucket, "images/", groups=["data_group"]),
            "all": S3Channel(stack.bucket, "all/"),
        },
        checkpoints=S3Prefix(stack.bucket, "checkpoints"),
        metric_definitions={"loss": "loss=([0-9.]+)"},
        attempts=3,
        volume_size=cdk.Size.gibibytes(100),
        max_runtime=cdk.Duration.hours(2),
    )


@pytest.fixture(scope="module", params=["sync", "poll"])
def either(request: pytest.FixtureRequest) -> Rendered:
    rendered: Rendered = request.getfixturevalue(request.param)
    return rendered


def message_of(**props: Any) -> str:
    with pytest.raises(ValueError) as raised:
        Stack().workflow(**props)
    return str(raised.value)


def without_role(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the one member that holds a logical id."""
    return {**request, "RoleArn": "role"}


def test_the_request_of_a_job_on_one_type_of_machines(sync: Rendered) -> None:
    assert without_role(sync.request) == {
        "AlgorithmSpecification": {"TrainingImage": IMAGE_URI, "TrainingInputMode": "File"},
        "HyperParameters": {"epochs": "4", "text": '"5"'},
        "InputDataConfig": [
            {
                "ChannelName": "images",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://data/images/",
                    }
                },
                "InputMode": "File",
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
        "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "RoleArn": "role",
        "StoppingCondition": {"MaxRuntimeInSeconds": 21_600},
        "Tags": [
            {"Key": "team", "Value": "digits"},
            {"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"},
        ],
        "TrainingJobName.$": "$.Training.JobName",
    }


def test_the_request_of_a_heterogeneous_job(poll: Rendered) -> None:
    assert without_role(poll.request) == {
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE_URI,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "CheckpointConfig": {"S3Uri.$": "States.Format('{}{}/', 's3://bucket/checkpoints/', $$.Execution.Name)"},
        "HyperParameters": {
            "sagemaker_distribution_instance_groups": '["dnn_group"]',
            "sagemaker_torch_distributed_enabled": "true",
        },
        "InputDataConfig": [
            {
                "ChannelName": "images",
                "DataSource": {
                    "S3DataSource": {
                        "InstanceGroupNames": ["data_group"],
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://bucket/images/",
                    }
                },
                "InputMode": "File",
            },
            {
                "ChannelName": "all",
                "DataSource": {
                    "S3DataSource": {
                        "InstanceGroupNames": ["data_group", "dnn_group"],
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://bucket/all/",
                    }
                },
                "InputMode": "File",
            },
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
        "ResourceConfig": {
            "InstanceGroups": [
                {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "InstanceGroupName": "data_group"},
                {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "dnn_group"},
            ],
            "VolumeSizeInGB": 100,
        },
        "RoleArn": "role",
        "StoppingCondition": {"MaxRuntimeInSeconds": 7_200},
        "Tags": [{"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"}],
        "TrainingJobName.$": "$.Training.JobName",
    }


def test_the_machines_pass_the_check_of_amazon_states_language(either: Rendered) -> None:
    assert len(either.machines) == 2
    assert lint(either.machines) == []


def test_a_job_that_sync_takes_is_waited_for_by_sync(sync: Rendered) -> None:
    assert sync.states["Create"]["Resource"] == "arn:aws:states:::sagemaker:createTrainingJob.sync"


def test_a_job_that_sync_is_not_known_to_take_is_looked_at(poll: Rendered) -> None:
    assert poll.states["Create"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"


def test_a_job_that_sync_takes_is_looked_at_where_that_is_asked_for() -> None:
    states = Rendered(integration="poll").states
    assert states["Create"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"


@pytest.mark.parametrize(
    ("props", "prop"),
    [
        ({"job": HETEROGENEOUS}, "job"),
        ({"warm_pool": WarmPool(cdk.Duration.minutes(30))}, "warm_pool"),
        ({"max_pending": cdk.Duration.hours(1)}, "max_pending"),
    ],
)
def test_sync_is_refused_what_it_is_not_known_to_take(props: dict[str, Any], prop: str) -> None:
    message = message_of(integration="sync", **props)
    assert message.startswith(f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take, like ")
    assert "use integration='poll', or " in message


def test_the_name_is_a_function_of_execution_and_attempt_computed_before_the_job_is_created(either: Rendered) -> None:
    first = either.states["FirstAttempt"]
    assert first["Parameters"]["JobName.$"] == (
        "States.Format('stack-training-{}-{}', States.Hash($$.Execution.Id, 'MD5'), 1)"
    )
    assert first["Next"] == "Create"


def test_another_attempt_has_another_name(poll: Rendered) -> None:
    assert poll.states["NextAttempt"]["Parameters"] == {
        "Attempt.$": "States.MathAdd($.Training.Attempt, 1)",
        "JobName.$": (
            "States.Format('stack-training-{}-{}', States.Hash($$.Execution.Id, 'MD5'), "
            "States.MathAdd($.Training.Attempt, 1))"
        ),
        "Seconds": 2,
    }


def test_a_failed_job_is_run_again_only_while_attempts_are_left(poll: Rendered) -> None:
    [again] = [choice for choice in poll.states["IsOver"]["Choices"] if choice["Next"] == "NextAttempt"]
    assert again["And"] == [
        {"Variable": "$.Training.Job.TrainingJobStatus", "StringEquals": "Failed"},
        {"Variable": "$.Training.Attempt", "NumericLessThan": 3},
    ]


def test_a_failed_job_is_not_run_again_unless_asked_for(sync: Rendered) -> None:
    assert "NextAttempt" not in sync.states


def test_whatever_becomes_of_create_the_job_is_looked_for(either: Rendered) -> None:
    assert either.states["Create"]["Catch"] == [
        {"ErrorEquals": ["States.ALL"], "ResultPath": "$.Training.Error", "Next": "Find"}
    ]
    assert either.states["Find"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob"
    assert either.states["Find"]["Next"] == "IsOver"


def test_a_job_that_cannot_be_described_is_stopped_before_the_error_is_passed_on(either: Rendered) -> None:
    for state in ("Find", "Describe"):
        assert [catch["Next"] for catch in either.states[state]["Catch"]] == ["Stop"]
    assert either.states["Stop"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:stopTrainingJob"
    assert either.states["Stop"]["Next"] == "Error"
    assert either.states["Error"]["ErrorPath"] == "$.Training.Error.Error"


def test_every_call_is_repeated_when_aws_throttles_or_fails(either: Rendered) -> None:
    states = [*either.states.values(), either.stopper["States"]["DescribeExecution"]]
    tasks = [state for state in states if state["Type"] == "Task"]
    assert len(tasks) == 6
    assert all(task["Retry"][0]["JitterStrategy"] == "FULL" for task in tasks)


def test_the_output_is_the_description_of_the_job(either: Rendered) -> None:
    assert either.states["Completed"] == {"Type": "Pass", "InputPath": "$.Training.Job", "End": True}


def test_a_prefix_may_hold_what_intrinsic_functions_escape() -> None:
    rendered = Rendered(checkpoints=S3Prefix(Stack().bucket, "it's {here}/"))
    assert rendered.request["CheckpointConfig"]["S3Uri.$"] == (
        r"States.Format('{}{}/', 's3://bucket/it\'s \{here\}/', $$.Execution.Name)"
    )


def test_a_bucket_that_the_app_makes_keeps_checkpoints_too() -> None:
    stack = Stack()
    stack.workflow(checkpoints=S3Prefix(s3.Bucket(stack, "Own"), "checkpoints/"))
    [request] = create_requests(stack.template()).values()
    uri = request["CheckpointConfig"]["S3Uri.$"]
    assert uri.startswith("States.Format('{}{}/', 's3://{Own")
    assert uri.endswith("}/checkpoints/', $$.Execution.Name)")


def test_an_older_executions_checkpoints_are_used_by_its_name() -> None:
    rendered = Rendered(checkpoints=S3Prefix(Stack().bucket), resume_from="monday")
    assert rendered.request["CheckpointConfig"]["S3Uri.$"] == "States.Format('{}{}/', 's3://bucket/', 'monday')"


def test_an_older_execution_may_be_named_in_the_input() -> None:
    rendered = Rendered(checkpoints=S3Prefix(Stack().bucket), resume_from=sfn.JsonPath.string_at("$.resume_from"))
    assert rendered.request["CheckpointConfig"]["S3Uri.$"] == "States.Format('{}{}/', 's3://bucket/', $.resume_from)"


def test_spot_says_where_checkpoints_are_kept() -> None:
    spot = Spot(S3Prefix(Stack().bucket, "spot/"), max_wait=cdk.Duration.hours(30))
    rendered = Rendered(spot=spot)
    assert rendered.request["CheckpointConfig"] == {
        "LocalPath": "/opt/ml/checkpoints",
        "S3Uri.$": "States.Format('{}{}/', 's3://bucket/spot/', $$.Execution.Name)",
    }
    assert rendered.request["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400, "MaxWaitTimeInSeconds": 108_000}
    assert rendered.workflow.integration == "sync"


def test_a_hyperparameter_may_be_in_the_input() -> None:
    rendered = Rendered(hyperparameters={"steps": sfn.JsonPath.string_at("$.steps")})
    assert rendered.request["HyperParameters"] == {"steps.$": "$.steps"}


def test_a_network_is_where_the_hosts_are() -> None:
    stack = Stack()
    network = TrainingNetwork(stack, "Network")
    assert stack.workflow(network=network).network is network
    [request] = create_requests(stack.template()).values()
    assert sorted(request["VpcConfig"]) == ["SecurityGroupIds", "Subnets"]


def test_the_execution_ends_when_all_its_attempts_at_their_longest_have(poll: Rendered, sync: Rendered) -> None:
    pending, upload = 86_400, 3_600
    assert poll.definition["TimeoutSeconds"] == 3 * (pending + 7_200 + upload)
    assert sync.definition["TimeoutSeconds"] == pending + 21_600 + upload


def test_the_time_of_an_execution_may_be_said() -> None:
    assert Rendered(timeout=cdk.Duration.hours(2)).definition["TimeoutSeconds"] == 7_200


def test_a_job_is_polled_soon_and_then_less_often() -> None:
    intervals = Intervals.over((6 + 24) * 3_600, jobs=1)
    assert (intervals.first, intervals.step) == (2, 3)
    assert intervals.last >= 9 * (6 + 24) * 3_600 / 24_000


def test_executions_that_end_before_their_jobs_start_the_stopper(either: Rendered) -> None:
    [rule] = either.resources_of("AWS::Events::Rule")
    assert resolved(rule["EventPattern"]["detail"])["status"] == ["ABORTED", "FAILED", "TIMED_OUT"]
    [machine] = [name for name, value in either.machines.items() if value is either.definition]
    [stopper] = [name for name, value in either.machines.items() if value is either.stopper]
    assert rule["EventPattern"]["detail"]["stateMachineArn"] == [{"Ref": machine}]
    [target] = rule["Targets"]
    assert (target["Arn"], target["InputPath"]) == ({"Ref": stopper}, "$.detail")


def test_the_stopper_stops_jobs_by_the_names_that_their_execution_gave_them(either: Rendered) -> None:
    name = either.states["FirstAttempt"]["Parameters"]["JobName.$"]
    assert either.stopper["States"]["Stop"]["Parameters"] == {
        "TrainingJobName.$": name.replace("$$.Execution.Id", "$.executionArn").replace(", 1)", ", $.Walk.Attempt)")
    }


def test_the_stopper_looks_again_a_minute_later_and_then_ends(either: Rendered) -> None:
    states = either.stopper["States"]
    assert states["Missing"]["Next"] == "HasLookedTwice"
    assert states["HasLookedTwice"]["Default"] == "WaitForLateJobs"
    assert states["WaitForLateJobs"] == {"Type": "Wait", "Seconds": 60, "Next": "DescribeExecution"}


def test_the_stopper_goes_from_the_jobs_of_one_suffix_to_those_of_the_next() -> None:
    definition = stopping_definition("digits", ["compile", ""], "aws")
    assert lint({"Stopper": definition}) == []
    states = definition["States"]
    assert (states["CompileMissing"]["Next"], states["Missing"]["Next"]) == ("First", "HasLookedTwice")
    assert states["WasRedriven"]["Default"] == "CompileFirst"


def test_an_alarm_goes_off_where_a_job_could_not_be_stopped(either: Rendered) -> None:
    [stopper] = [name for name, value in either.machines.items() if value is either.stopper]
    alarms = [alarm for alarm in either.resources_of("AWS::CloudWatch::Alarm") if alarm["Namespace"] == "AWS/States"]
    assert [(alarm["MetricName"], alarm["Dimensions"][0]["Value"]) for alarm in alarms] == [
        ("ExecutionsFailed", {"Ref": stopper})
    ]


def test_an_alarm_goes_off_where_an_executions_end_was_not_delivered(either: Rendered) -> None:
    [queue] = [name for name, one in either.template["Resources"].items() if one["Type"] == "AWS::SQS::Queue"]
    [rule] = either.resources_of("AWS::Events::Rule")
    assert rule["Targets"][0]["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    alarms = [alarm for alarm in either.resources_of("AWS::CloudWatch::Alarm") if alarm["Namespace"] == "AWS/SQS"]
    assert [alarm["Dimensions"][0]["Value"] for alarm in alarms] == [{"Fn::GetAtt": [queue, "QueueName"]}]


def test_the_alarms_of_a_workflow_take_actions() -> None:
    stack = Stack()
    topic = sns.Topic(stack, "Topic")
    for alarm in stack.workflow().alarms:
        alarm.add_alarm_action(cloudwatch_actions.SnsAction(topic))
    alarms = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    assert [alarm["Properties"]["AlarmActions"] for alarm in alarms] == [[stack.resolve(topic.topic_arn)]] * 2


def deletion_of(template: dict[str, Any], name: str = "Training") -> dict[str, Any]:
    """The custom resource that stops a workflow's jobs when it is deleted."""
    [found] = [
        one
        for logical_id, one in template["Resources"].items()
        if one["Type"] == "Custom::SageMakerTrainingJobs" and logical_id.startswith(name)
    ]
    return dict(found)


def test_what_stops_jobs_on_deletion_goes_before_all_that_the_workflow_makes(either: Rendered) -> None:
    needed = {name for name in either.template["Resources"] if name.startswith("Training")}
    depends_on = set(deletion_of(either.template)["DependsOn"])
    assert {name.rstrip("0123456789ABCDEF") for name in needed - depends_on} == {"TrainingDeletion"}


def test_what_stops_jobs_on_deletion_goes_before_what_the_jobs_are_given_of_its_stack() -> None:
    stack = Stack()
    bucket, network = s3.Bucket(stack, "Own"), TrainingNetwork(stack, "Network", max_azs=1)
    elsewhere = s3.Bucket(cdk.Stack(cdk.App.of(stack), "Elsewhere", env=ENVIRONMENT), "Other")  # type: ignore[arg-type]
    channels = {"own": S3Channel(bucket, "own/"), "other": S3Channel(elsewhere, "other/")}
    stack.workflow(network=network, channels=channels)
    template = stack.template()
    depends_on = set(deletion_of(template)["DependsOn"])
    needed = {name for name in template["Resources"] if name.startswith(("Own", "Network"))}
    assert len(needed) > 10
    assert needed <= depends_on


def test_the_workflows_of_a_stack_share_the_function_that_stops_jobs_and_not_what_it_may_do() -> None:
    stack = Stack()
    for name in ("First", "Second"):
        stack.workflow(name)
    template = stack.template()
    assert [one["Type"] for one in template["Resources"].values()].count("AWS::Lambda::Function") == 1
    for name in ("First", "Second"):
        [policy] = [one for one in template["Resources"] if one.startswith(f"{name}DeletionPolicy")]
        assert policy in deletion_of(template, name)["DependsOn"]


def test_jobs_that_are_retained_are_stopped_by_nothing_when_their_workflow_is_deleted() -> None:
    types = {one["Type"] for one in Rendered(retain_jobs=True).template["Resources"].values()}
    assert not types & {"AWS::Lambda::Function", "Custom::SageMakerTrainingJobs"}


def test_the_machine_may_touch_its_own_jobs_only(sync: Rendered) -> None:
    statements = sync.statements_of("TrainingStateMachineRole")
    [jobs] = [statement for statement in statements if "sagemaker:CreateTrainingJob" in statement["Action"]]
    assert jobs["Action"] == [
        "sagemaker:CreateTrainingJob",
        "sagemaker:DescribeTrainingJob",
        "sagemaker:StopTrainingJob",
        "sagemaker:AddTags",
        "sagemaker:ListTags",
    ]
    assert jobs["Resource"] == "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-training-*"


def test_the_machine_may_pass_the_jobs_role_only_and_to_sagemaker_only(either: Rendered) -> None:
    statements = either.statements_of("TrainingStateMachineRole")
    [passing] = [statement for statement in statements if statement["Action"] == "iam:PassRole"]
    assert passing["Resource"] == either.request["RoleArn"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def test_the_machine_may_use_the_rule_that_sync_waits_with_where_it_does(sync: Rendered, poll: Rendered) -> None:
    [rule] = [s for s in sync.statements_of("TrainingStateMachineRole") if "events:PutRule" in s["Action"]]
    assert rule["Resource"] == (
        "arn:aws:events:us-east-1:123456789012:rule/StepFunctionsGetEventsForSageMakerTrainingJobsRule"
    )
    assert not [s for s in poll.statements_of("TrainingStateMachineRole") if "events:PutRule" in s["Action"]]


def test_the_stopper_may_stop_the_workflows_own_jobs_and_describe_its_executions(either: Rendered) -> None:
    [machine] = [name for name, value in either.machines.items() if value is either.definition]
    assert [
        (statement["Action"], statement["Resource"])
        for statement in either.statements_of("TrainingStopperStateMachineRole")
        if "logs:CreateLogDelivery" not in statement["Action"]
    ] == [
        ("sagemaker:StopTrainingJob", "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-training-*"),
        ("states:DescribeExecution", f"arn:aws:states:us-east-1:123456789012:execution:{{{machine}.Name}}:*"),
    ]


def test_jobs_read_their_channels_and_write_their_output_and_checkpoints(poll: Rendered) -> None:
    allowed = {
        (action, resource)
        for statement in poll.statements_of("TrainingRole")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        for resource in ([statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"])
    }
    assert {resource for action, resource in allowed if action == "s3:GetObject"} == {
        "arn:aws:s3:::bucket/images/*",
        "arn:aws:s3:::bucket/all/*",
        "arn:aws:s3:::bucket/checkpoints/*",
    }
    assert {resource for action, resource in allowed if action == "s3:PutObject"} == {
        "arn:aws:s3:::bucket/models/*",
        "arn:aws:s3:::bucket/checkpoints/*",
    }
    assert ("ecr:BatchGetImage", "arn:aws:ecr:us-east-1:123456789012:repository/images") in allowed


def test_no_statement_is_for_every_resource_where_aws_has_a_narrower_one(either: Rendered) -> None:
    actions = [
        statement["Action"]
        for policy in either.resources_of("AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Resource"] == "*"
    ]
    deliveries = [action for action in actions if "logs:CreateLogDelivery" in action]
    assert sorted(action for action in actions if action not in deliveries) == [
        "cloudwatch:PutMetricData",
        "ecr:GetAuthorizationToken",
        "sagemaker:ListTrainingJobs",
    ]
    assert "ManagedPolicyArns" not in json.dumps(either.template)


def test_a_prefix_with_capitals_is_allowed_as_it_is_and_as_sagemaker_writes_it_in_arns() -> None:
    statements = Rendered(job_name_prefix="Digits").statements_of("TrainingStopperStateMachineRole")
    [stopping] = [statement for statement in statements if statement["Action"] == "sagemaker:StopTrainingJob"]
    assert stopping["Resource"] == [
        "arn:aws:sagemaker:us-east-1:123456789012:training-job/Digits-*",
        "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits-*",
    ]


def test_a_long_path_makes_a_prefix_that_is_short_enough_and_no_other_constructs() -> None:
    stack = Stack()
    names = [f"AWorkflowWithALongNameAndNumber{number}" for number in (1, 2)]
    for name in names:
        stack.workflow(name)
    prefixes = {
        definition["States"]["FirstAttempt"]["Parameters"]["JobName.$"].split("'")[1].removesuffix("-{}-{}")
        for definition in definitions(stack.template()).values()
        if "FirstAttempt" in definition["States"]
    }
    assert len(prefixes) == 2
    assert all(len(prefix) <= 26 and prefix.startswith("stack-aworkflowwi") for prefix in prefixes)


def test_a_role_that_there_is_already_runs_the_jobs() -> None:
    stack = Stack()
    role = TrainingRole(stack, "Own")
    assert stack.workflow(role=role).role is role
    [request] = create_requests(stack.template()).values()
    assert request["RoleArn"].startswith("{Own")


def test_a_grant_to_the_workflow_is_one_to_its_jobs() -> None:
    stack = Stack()
    workflow = stack.workflow()
    assert workflow.grant_principal == workflow.role.grant_principal
    stack.bucket.grant_read(workflow, "labels/*")
    [policy] = [
        value for key, value in stack.template()["Resources"].items() if key.startswith("TrainingRoleDefaultPolicy")
    ]
    assert "bucket/labels/*" in json.dumps(policy)


def test_who_may_start_the_workflow_may_start_it() -> None:
    stack = Stack()
    user = iam.User(stack, "User")
    stack.workflow().grant_start_execution(user)
    [policy] = [value for key, value in stack.template()["Resources"].items() if key.startswith("UserDefaultPolicy")]
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "states:StartExecution"


def test_a_metric_is_of_the_workflows_own_machine() -> None:
    stack = Stack()
    workflow = stack.workflow()
    metric = stack.resolve(workflow.metric_failed().dimensions)
    assert metric == {"StateMachineArn": stack.resolve(workflow.state_machine.state_machine_arn)}


def test_the_workflow_is_a_state_of_another_machine_that_waits_for_it() -> None:
    stack = Stack()
    task = stack.workflow().as_task(stack, "Train", result_path="$.trained")
    sfn.StateMachine(stack, "Other", definition_body=sfn.DefinitionBody.from_chainable(task))
    machines = definitions(stack.template())
    [state] = [definition["States"]["Train"] for definition in machines.values() if "Train" in definition["States"]]
    assert state["Resource"] == "arn:aws:states:::states:startExecution.sync:2"
    assert state["ResultPath"] == "$.trained"


@pytest.mark.parametrize("attempts", [0, 31])
def test_attempts_that_are_no_number_from_1_to_30_are_refused(attempts: Any) -> None:
    assert message_of(attempts=attempts) == (f"attempts must be a whole number from 1 to 30, like 3, got {attempts!r}")


def test_an_integration_that_there_is_not_is_refused() -> None:
    assert message_of(integration="lambda") == ("integration must be one of 'sync', 'poll', like 'poll', got 'lambda'")


@pytest.mark.parametrize("prefix", ["", "-digits", "digits_1", "a" * 27])
def test_a_job_name_prefix_that_names_cannot_begin_with_is_refused(prefix: str) -> None:
    message = message_of(job_name_prefix=prefix)
    assert message.startswith("job_name_prefix must be 1 to 26 letters, digits and hyphens")
    assert message.endswith(f"got {prefix!r}")


def test_a_job_name_prefix_that_is_known_only_later_is_refused() -> None:
    assert message_of(job_name_prefix=cdk.Aws.STACK_NAME) == (
        "job_name_prefix must be known when the app is synthesized, since permissions and names are made of it, "
        "like 'digits', got a token"
    )


def test_checkpoints_beside_those_of_spot_are_refused() -> None:
    bucket = Stack().bucket
    spot = Spot(S3Prefix(bucket, "spot/"), max_wait=cdk.Duration.days(2))
    assert message_of(spot=spot, checkpoints=S3Prefix(bucket, "other/")) == (
        "checkpoints must be left out where spot says where they are kept, like checkpoints=None, "
        "got 'other/' beside 'spot/'"
    )


def test_resuming_without_checkpoints_is_refused() -> None:
    assert message_of(resume_from="monday") == (
        "resume_from must come with checkpoints, like checkpoints=S3Prefix(bucket, 'checkpoints/'), got 'monday' without"
    )


@pytest.mark.parametrize("name", ["", "a/b", "x" * 81])
def test_resuming_from_what_is_no_executions_name_is_refused(name: str) -> None:
    message = message_of(resume_from=name, checkpoints=S3Prefix(Stack().bucket))
    assert message.startswith("resume_from must be the name of an execution, like 'monday'")
    assert message.endswith(f"got {name!r}")


def test_max_runtime_over_28_days_is_refused() -> None:
    assert message_of(max_runtime=cdk.Duration.days(29)).startswith("max_runtime must be between 1 second and 28 days")


def test_a_runtime_that_is_known_only_at_deployment_is_taken_for_the_longest() -> None:
    stack = Stack()
    seconds = cdk.CfnParameter(stack, "Seconds", type="Number")
    stack.workflow(max_runtime=cdk.Duration.seconds(seconds.value_as_number))
    [text] = [
        resource["Properties"]["DefinitionString"]
        for name, resource in stack.template()["Resources"].items()
        if name.startswith("TrainingStateMachine") and resource["Type"] == "AWS::StepFunctions::StateMachine"
    ]
    assert {"Ref": "Seconds"} in text["Fn::Join"][1]
    assert f'"TimeoutSeconds":{(1 + 28) * 86_400 + 3_600}' in "".join(
        part for part in text["Fn::Join"][1] if isinstance(part, str)
    )
