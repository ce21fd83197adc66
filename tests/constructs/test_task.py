"""A task state that runs one training job in a state machine of the user's own."""

from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from rendered import lint
from stacks import UserStack, message_of, reads

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    Spot,
    Torchrun,
    TrainingTask,
    WarmPool,
)

ON_TWO_GPUS = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Torchrun())
HETEROGENEOUS = HeterogeneousJob(
    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
    train=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
    train_group="dnn_group",
)
JOB_NAME = (
    "States.Format('stack-train-201228b0-{}', States.Hash("
    "States.Format('{}-{}-{}-{}', $$.Execution.Id, $$.State.Name, $$.Execution.RedriveCount, $$.State.RetryCount), 'MD5'))"
)


def state_of(stack: UserStack, task: TrainingTask) -> dict[str, Any]:
    """The state of a task in a machine of the user's own."""
    stack.machine_of(task)
    [definition] = stack.machines().values()
    return dict(definition["States"]["Train"])


def state(**props: Any) -> dict[str, Any]:
    stack = UserStack()
    return state_of(stack, stack.task(**{"job": ON_TWO_GPUS, **props}))


def refusal_of(**props: Any) -> str:
    return message_of(lambda: UserStack().task(**props))


def test_the_state_holds_the_whole_request() -> None:
    stack = UserStack()
    task = stack.task(
        job=ON_TWO_GPUS,
        channels={"images": S3Channel(stack.bucket, "images/")},
        checkpoints=stack.place("checkpoints"),
        hyperparameters={"epochs": 4},
        environment={"LOG": "debug"},
        max_runtime=cdk.Duration.hours(6),
    )
    found = state_of(stack, task)
    role = found["Parameters"].pop("RoleArn")
    assert role.startswith("{TrainRole")
    assert found == {
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
                    "States.Format('{}{}/', 's3://bucket/checkpoints/stack-train-201228b0/', "
                    "States.Format('{}/{}', $$.Execution.Name, $$.State.Name))"
                )
            },
            "Environment": {"GLOO_SOCKET_IFNAME": "eth0", "LOG": "debug", "NCCL_SOCKET_IFNAME": "eth0"},
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
    found = state(
        comment="trains",
        result_path="$.trained",
        input_path="$.in",
        task_timeout=sfn.Timeout.duration(cdk.Duration.hours(7)),
    )
    assert (found["Comment"], found["ResultPath"], found["InputPath"]) == ("trains", "$.trained", "$.in")
    assert found["TimeoutSeconds"] == 25_200


def test_the_state_goes_on_retries_and_catches_as_cdks_own_tasks_do() -> None:
    stack = UserStack()
    task = stack.task(checkpoints=stack.place("c/"))
    task.add_retry(errors=["States.TaskFailed"], max_attempts=2)
    task.add_catch(sfn.Fail(stack, "Sorry"), errors=["States.ALL"])
    task.next(sfn.Succeed(stack, "Good"))
    found = state_of(stack, task)
    assert found["Retry"] == [{"ErrorEquals": ["States.TaskFailed"], "MaxAttempts": 2}]
    assert [catch["Next"] for catch in found["Catch"]] == ["Sorry"]
    assert found["Next"] == "Good"
    assert lint(stack.machines()) == []


def test_a_machine_in_jsonata_where_jsonpath_is_not_allowed_is_refused() -> None:
    stack = UserStack()
    task = stack.task()
    with pytest.raises(RuntimeError, match="'queryLanguage' can not be 'JSONPath' if set to 'JSONata'"):
        stack.machine_of(task, query_language=sfn.QueryLanguage.JSONATA)


def test_a_value_may_come_from_the_states_input() -> None:
    hyperparameters = state(hyperparameters={"steps": sfn.JsonPath.string_at("$.steps")})["Parameters"][
        "HyperParameters"
    ]
    assert hyperparameters["steps.$"] == "$.steps"


def test_jobs_of_a_map_are_told_apart_by_what_the_user_says() -> None:
    stack = UserStack()
    task = stack.task(unique_by=sfn.JsonPath.string_at("$.index"), checkpoints=stack.place())
    parameters = state_of(stack, task)["Parameters"]
    assert parameters["TrainingJobName.$"] == (
        "States.Format('stack-train-201228b0-{}', States.Hash("
        "States.Format('{}-{}-{}-{}-{}', $$.Execution.Id, $$.State.Name, "
        "$$.Execution.RedriveCount, $$.State.RetryCount, $.index), 'MD5'))"
    )
    assert parameters["CheckpointConfig"]["S3Uri.$"] == (
        "States.Format('{}{}/', 's3://bucket/stack-train-201228b0/', "
        "States.Format('{}/{}/{}', $$.Execution.Name, $$.State.Name, $.index))"
    )


def test_spot_is_what_sync_takes() -> None:
    stack = UserStack()
    task = stack.task(spot=Spot(stack.place("c/"), max_wait=cdk.Duration.days(2)))
    parameters = state_of(stack, task)["Parameters"]
    assert parameters["EnableManagedSpotTraining"] is True
    assert parameters["StoppingCondition"]["MaxWaitTimeInSeconds"] == 172_800


def test_the_machines_role_may_run_the_tasks_own_jobs_and_nothing_else() -> None:
    stack = UserStack()
    stack.machine_of(stack.task())
    [role] = [name for name in stack.template()["Resources"] if name.startswith("TrainRole") and "Policy" not in name]
    assert stack.statements("MachineRole") == [
        {
            "Action": [
                "sagemaker:CreateTrainingJob",
                "sagemaker:DescribeTrainingJob",
                "sagemaker:StopTrainingJob",
                "sagemaker:AddTags",
                "sagemaker:ListTags",
            ],
            "Effect": "Allow",
            "Resource": "arn:aws:sagemaker:us-east-1:123456789012:training-job/stack-train-201228b0-*",
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
    own = iam.Role.from_role_arn(UserStack(), "Own", "arn:aws:iam::123456789012:role/own")
    assert state(role=own)["Parameters"]["RoleArn"] == "arn:aws:iam::123456789012:role/own"


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
    assert reads(
        refusal_of(**props),
        f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take ... got {member}: use "
        "TrainingWorkflow(...).as_task(...), or TrainingWorkflow(..., integration=unlisted('sync')) where AWS differs by now",
    )


def test_a_job_name_prefix_that_names_cannot_begin_with_is_refused() -> None:
    assert reads(refusal_of(job_name_prefix="digits_"), "job_name_prefix must be ... got 'digits_'")


def test_a_job_of_several_requests_is_refused() -> None:
    class Twice:
        def requests(self) -> Any:
            [request] = ON_TWO_GPUS.requests()
            return [replace(request, name_suffix="first"), request]

    assert reads(
        refusal_of(job=Twice()),
        "job must be one that makes one request ... got Twice with 2: use TrainingWorkflow(...).as_task(...)",
    )
