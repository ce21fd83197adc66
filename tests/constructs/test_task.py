from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from rendered import definitions, lint, resolved

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Spot,
    Torchrun,
    TrainingImage,
    TrainingTask,
    WarmPool,
)

HOMOGENEOUS = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun())
HETEROGENEOUS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
    train_group="dnn_group",
)
JOB_NAME = (
    "States.Format('stack-train-{}', States.Hash("
    "States.Format('{}-{}-{}-{}', $$.Execution.Id, $$.State.Name, $$.Execution.RedriveCount, $$.State.RetryCount), 'MD5'))"
)


class Machine:
    """A user's own state machine with one training task, in a stack of its own."""

    def __init__(self, machine_props: dict[str, Any] | None = None, **props: Any) -> None:
        self.stack = cdk.Stack(cdk.App(), "Stack", env=cdk.Environment(account="123456789012", region="us-east-1"))
        self.bucket = s3.Bucket.from_bucket_name(self.stack, "Bucket", "bucket")
        repository = ecr.Repository.from_repository_name(self.stack, "Repository", "images")
        self.task = TrainingTask(
            self.stack,
            "Train",
            **{
                "job": HOMOGENEOUS,
                "image": TrainingImage.from_ecr_repository(self.stack, "Image", repository, "1"),
                "output": S3Prefix(self.bucket, "models/"),
                **props,
            },
        )
        self.machine_props = machine_props or {}

    def definition(self) -> dict[str, Any]:
        [definition] = definitions(self.template()).values()
        return definition

    def state(self) -> dict[str, Any]:
        return dict(self.definition()["States"]["Train"])

    def template(self) -> dict[str, Any]:
        body = sfn.DefinitionBody.from_chainable(self.task)
        sfn.StateMachine(self.stack, "Machine", definition_body=body, **self.machine_props)
        return dict(Template.from_stack(self.stack).to_json())


def bucket() -> s3.IBucket:
    return s3.Bucket.from_bucket_name(cdk.Stack(), "Bucket", "bucket")


def message_of(**props: Any) -> str:
    with pytest.raises(ValueError) as raised:
        Machine(**props)
    return str(raised.value)


def test_the_state_holds_the_whole_request() -> None:
    state = Machine(
        channels={"images": S3Channel(bucket(), "images/")},
        checkpoints=S3Prefix(bucket(), "checkpoints"),
        hyperparameters={"epochs": 4},
        environment={"LOG": "debug"},
        max_runtime=cdk.Duration.hours(6),
    ).state()
    role = state["Parameters"].pop("RoleArn")
    assert role.startswith("{TrainRole")
    assert state == {
        "Type": "Task",
        "End": True,
        "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync",
        "Parameters": {
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/images:1",
                "TrainingInputMode": "File",
            },
            "CheckpointConfig": {
                "S3Uri.$": (
                    "States.Format('{}{}/', 's3://bucket/checkpoints/', "
                    "States.Format('{}/{}', $$.Execution.Name, $$.State.Name))"
                )
            },
            "Environment": {"LOG": "debug"},
            "HyperParameters": {"epochs": "4", "sagemaker_torch_distributed_enabled": "true"},
            "InputDataConfig": [
                {
                    "ChannelName": "images",
                    "DataSource": {
                        "S3DataSource": {
                            "S3DataDistributionType": "FullyReplicated",
                            "S3DataType": "S3Prefix",
                            "S3Uri": "s3://bucket/images/",
                        }
                    },
                    "InputMode": "File",
                }
            ],
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
            "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 21_600},
            "Tags": [{"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"}],
            "TrainingJobName.$": JOB_NAME,
        },
    }


def test_the_state_has_the_props_of_every_task_state() -> None:
    state = Machine(
        comment="trains",
        result_path="$.trained",
        input_path="$.in",
        task_timeout=sfn.Timeout.duration(cdk.Duration.hours(7)),
    ).state()
    assert (state["Comment"], state["ResultPath"], state["InputPath"]) == ("trains", "$.trained", "$.in")
    assert state["TimeoutSeconds"] == 25_200


def test_the_state_goes_on_retries_and_catches_as_cdks_own_tasks_do() -> None:
    machine = Machine()
    machine.task.add_retry(errors=["States.TaskFailed"], max_attempts=2)
    machine.task.add_catch(sfn.Fail(machine.stack, "Sorry"), errors=["States.ALL"])
    machine.task.next(sfn.Succeed(machine.stack, "Good"))
    definition = machine.definition()
    state = definition["States"]["Train"]
    assert state["Retry"] == [{"ErrorEquals": ["States.TaskFailed"], "MaxAttempts": 2}]
    assert [catch["Next"] for catch in state["Catch"]] == ["Sorry"]
    assert state["Next"] == "Good"
    assert lint({"Machine": definition}) == []


def test_the_state_passes_the_check_of_amazon_states_language() -> None:
    assert lint({"Machine": Machine(checkpoints=S3Prefix(bucket(), "c/")).definition()}) == []


def test_a_machine_in_jsonata_where_jsonpath_is_not_allowed_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'queryLanguage' can not be 'JSONPath' if set to 'JSONata'"):
        Machine(machine_props={"query_language": sfn.QueryLanguage.JSONATA}).template()


def test_a_value_may_come_from_the_states_input() -> None:
    state = Machine(hyperparameters={"steps": sfn.JsonPath.string_at("$.steps")}).state()
    assert state["Parameters"]["HyperParameters"]["steps.$"] == "$.steps"


def test_jobs_of_a_map_are_told_apart_by_what_the_user_says() -> None:
    parameters = Machine(unique_by=sfn.JsonPath.string_at("$.index"), checkpoints=S3Prefix(bucket())).state()[
        "Parameters"
    ]
    assert parameters["TrainingJobName.$"] == (
        "States.Format('stack-train-{}', States.Hash("
        "States.Format('{}-{}-{}-{}-{}', $$.Execution.Id, $$.State.Name, "
        "$$.Execution.RedriveCount, $$.State.RetryCount, $.index), 'MD5'))"
    )
    assert parameters["CheckpointConfig"]["S3Uri.$"] == (
        "States.Format('{}{}/', 's3://bucket/', States.Format('{}/{}/{}', $$.Execution.Name, $$.State.Name, $.index))"
    )


def test_spot_is_what_sync_takes() -> None:
    parameters = Machine(spot=Spot(S3Prefix(bucket(), "c/"), max_wait=cdk.Duration.days(2))).state()["Parameters"]
    assert parameters["EnableManagedSpotTraining"] is True
    assert parameters["StoppingCondition"]["MaxWaitTimeInSeconds"] == 172_800


def test_the_machines_role_may_run_the_tasks_own_jobs_and_nothing_else() -> None:
    template = Machine().template()
    [policy] = [
        resolved(value["Properties"]["PolicyDocument"]["Statement"])
        for name, value in template["Resources"].items()
        if name.startswith("MachineRoleDefaultPolicy")
    ]
    [role] = [name for name in template["Resources"] if name.startswith("TrainRole") and "Policy" not in name]
    assert policy == [
        {
            "Action": [
                "sagemaker:CreateTrainingJob",
                "sagemaker:DescribeTrainingJob",
                "sagemaker:StopTrainingJob",
                "sagemaker:AddTags",
                "sagemaker:ListTags",
            ],
            "Effect": "Allow",
            "Resource": "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-train-*",
        },
        {
            "Action": "iam:PassRole",
            "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
            "Effect": "Allow",
            "Resource": f"{{{role}.Arn}}",
        },
        {
            "Action": ["events:DescribeRule", "events:PutRule", "events:PutTargets"],
            "Effect": "Allow",
            "Resource": (
                "arn:aws:events:us-east-1:123456789012:rule/StepFunctionsGetEventsForSageMakerTrainingJobsRule"
            ),
        },
    ]


def test_a_role_that_there_is_already_runs_the_job() -> None:
    stack = cdk.Stack()
    own = iam.Role.from_role_arn(stack, "Own", "arn:aws:iam::123456789012:role/own")
    assert Machine(role=own).state()["Parameters"]["RoleArn"] == "arn:aws:iam::123456789012:role/own"


@pytest.mark.parametrize(
    ("props", "prop", "member"),
    [
        ({"job": HETEROGENEOUS}, "job", "InstanceGroups"),
        ({"warm_pool": WarmPool(cdk.Duration.minutes(30))}, "warm_pool", "KeepAlivePeriodInSeconds"),
        ({"max_pending": cdk.Duration.hours(1)}, "max_pending", "MaxPendingTimeInSeconds"),
    ],
)
def test_what_sync_is_not_known_to_take_is_refused_and_as_task_named(
    props: dict[str, Any], prop: str, member: str
) -> None:
    assert message_of(**props) == (
        f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take, like one instance type and count, "
        f"got {member}: use TrainingWorkflow(...).as_task(...), "
        "or TrainingWorkflow(..., integration=unlisted('sync')) where AWS differs by now"
    )


def test_a_job_name_prefix_that_names_cannot_begin_with_is_refused() -> None:
    assert message_of(job_name_prefix="digits_").endswith("like 'digits', got 'digits_'")


def test_a_job_of_several_requests_is_refused() -> None:
    class Twice:
        def requests(self) -> Any:
            [request] = HOMOGENEOUS.requests()
            return [replace(request, name_suffix="first"), request]

    assert message_of(job=Twice()) == (
        "job must be one that makes one request, like DataParallelJob(InstanceGroup('ml.g5.xlarge')), got Twice with 2: "
        "use TrainingWorkflow(...).as_task(...)"
    )
