"""Several workflows in one state machine, with gates, approvals and registrations between them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from rendered import lint, resolved
from stacks import UserStack, message_of

from cdk_sagemaker_training import (
    Approval,
    ArtifactOf,
    Gate,
    ParallelSteps,
    RegisterModel,
    TrainingPipeline,
    TrainingWorkflow,
)

ACCURACY = {"accuracy": "accuracy=([0-9.]+)"}
JOB = "$.Steps.Pretraining.Job"
CALL = "arn:aws:states:::aws-sdk"


class Pipeline(UserStack):
    """Two workflows, of which the second reads the first one's model, and what may stand between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.workflow("Pretraining", metric_definitions=ACCURACY)
        self.second = self.workflow("Finetuning", channels={"model": ArtifactOf(self.first)})

    def gate(self, id: str = "GoodEnough", workflow: TrainingWorkflow | None = None, **props: Any) -> Gate:
        return Gate(self, id, workflow or self.first, **{"metric": "accuracy", "at_least": 0.9, **props})

    def registration(self, id: str = "Register", **props: Any) -> RegisterModel:
        return RegisterModel(self, id, self.first, **{"group": "digits", "metrics": ["accuracy"], **props})

    def pipeline(self, *steps: Any, **props: Any) -> TrainingPipeline:
        return TrainingPipeline(self, "Pipeline", steps=steps, **props)

    def definition(self) -> dict[str, Any]:
        [found] = [one for name, one in self.machines().items() if name.startswith("Pipeline")]
        return found


@cache
def whole() -> Pipeline:
    """A pipeline of everything, once for all tests that only read it."""
    stack = Pipeline()
    topic = sns.Topic(stack, "Topic")
    third = stack.workflow("Distillation")
    stack.pipeline(
        stack.first,
        stack.gate(),
        ParallelSteps([[stack.second], [third]]),
        Approval(stack, "Release", topic=topic),
        stack.registration(),
        notify=[topic],
    )
    return stack


def states() -> dict[str, Any]:
    return dict(whole().definition()["States"])


def test_the_steps_follow_each_other() -> None:
    found = whole().definition()
    order, name = [], found["StartAt"]
    while name is not None:
        order.append(name)
        state = found["States"][name]
        name = state.get("Next") or next((rule["Next"] for rule in state.get("Choices", ())[::-1]), None)
    assert order == [
        *("Pretraining", "GoodEnoughHasMetrics", "GoodEnoughMetrics", "GoodEnoughDecision", "GoodEnoughPassed"),
        *(
            "Parallel1",
            "Release",
            "RegisterHasMetrics",
            "RegisterMetrics",
            "RegisterHasAll",
            "RegisterWrite",
            "Register",
        ),
    ]


def test_a_workflow_has_the_whole_data_as_its_input_and_its_job_is_kept() -> None:
    step = states()["Pretraining"]
    assert step["Resource"] == "arn:aws:states:::states:startExecution.sync:2"
    assert step["Parameters"]["Input.$"].startswith("States.JsonMerge($, ")
    assert (step["ResultSelector"], step["ResultPath"]) == ({"Job.$": "$.Output"}, "$.Steps.Pretraining")


def test_the_channel_of_a_later_job_is_the_model_of_the_earlier_one() -> None:
    [machine] = [one for name, one in whole().machines().items() if name.startswith("FinetuningStateMachine")]
    [channel] = machine["States"]["Create"]["Parameters"]["InputDataConfig"]
    assert channel["DataSource"]["S3DataSource"]["S3Uri.$"] == f"{JOB}.ModelArtifacts.S3ModelArtifacts"


def test_the_later_job_may_read_below_the_output_of_the_earlier_one() -> None:
    reads = [one for one in whole().statements("FinetuningRole") if one["Action"] == "s3:GetObject"]
    assert "arn:aws:s3:::bucket/models/*" in str(reads)


def test_branches_keep_what_was_before_them_and_what_each_adds() -> None:
    assert states()["Parallel1"]["ResultSelector"] == {
        "Pretraining.$": "$[0].Steps.Pretraining",
        "GoodEnough.$": "$[0].Steps.GoodEnough",
        "Finetuning.$": "$[0].Steps.Finetuning",
        "Distillation.$": "$[1].Steps.Distillation",
    }
    assert states()["Parallel1"]["ResultPath"] == "$.Steps"


def test_a_gate_reads_the_last_value_of_its_metric() -> None:
    found = states()
    assert found["GoodEnoughMetrics"]["Parameters"] == {
        "Metric0.$": f"{JOB}.FinalMetricDataList[?(@.MetricName=='accuracy')].Value"
    }
    missing, passed = found["GoodEnoughDecision"]["Choices"]
    value = "$.Steps.GoodEnough.Metric0[0]"
    assert missing == {"Not": {"Variable": value, "IsPresent": True}, "Next": "GoodEnoughMetricMissing"}
    assert passed == {"Variable": value, "NumericGreaterThanEquals": 0.9, "Next": "GoodEnoughPassed"}
    assert found["GoodEnoughDecision"]["Default"] == "GoodEnoughNotPassed"
    assert found["GoodEnoughNotPassed"]["Error"] == "GateNotPassed"
    assert found["GoodEnoughMetricMissing"]["Error"] == "MetricMissing"


def test_a_gate_of_two_bounds_passes_between_them() -> None:
    stack = Pipeline()
    stack.pipeline(stack.first, stack.gate(at_least=0.5, at_most=0.9))
    passed = stack.definition()["States"]["GoodEnoughDecision"]["Choices"][1]
    assert [next(iter(set(one) - {"Variable"})) for one in passed["And"]] == [
        "NumericGreaterThanEquals",
        "NumericLessThanEquals",
    ]


def test_a_gate_may_end_an_execution_otherwise() -> None:
    stack = Pipeline()
    stack.pipeline(stack.first, stack.gate(otherwise=sfn.Succeed(stack, "Kept")), stack.second)
    found = stack.definition()["States"]
    assert found["GoodEnoughDecision"]["Default"] == "Kept"
    assert "GoodEnoughNotPassed" not in found


def request_of(value: Any) -> Any:
    """A state's Parameters as a request, with text in place of what is known at run time."""
    if isinstance(value, dict):
        return {
            name.removesuffix(".$"): "text" if name.endswith(".$") else request_of(one) for name, one in value.items()
        }
    return [request_of(one) for one in value] if isinstance(value, list) else value


# A versioned package of the SageMaker SDK: `get_create_model_package_request` in sagemaker/session.py of version 2, with
# `ModelMetrics._to_request_dict` and `MetadataProperties._to_request_dict`. It also sends the API's defaults of
# CertifyForMarketplace and SkipModelValidation, and no ClientToken.
OF_THE_SDK = {
    "ModelPackageGroupName": "digits",
    "ModelMetrics": {"ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": "text"}}},
    "MetadataProperties": {"GeneratedBy": "text"},
    "CustomerMetadataProperties": {"accuracy": "text"},
    "InferenceSpecification": {"Containers": [{"Image": "text", "ModelDataUrl": "text"}]},
    "ModelApprovalStatus": "PendingManualApproval",
}


def test_a_model_is_registered_with_what_the_sdk_sends() -> None:
    state = states()["Register"]
    assert state["Resource"] == f"{CALL}:sagemaker:createModelPackage"
    request = request_of(state["Parameters"])
    assert request == {**OF_THE_SDK, "ClientToken": "text"}
    model = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    shape = model.operation_model("CreateModelPackage").input_shape
    assert not ParamValidator().validate(request, shape).has_errors()


def test_the_lineage_is_the_job_and_the_metrics_are_a_file_beside_its_model() -> None:
    found = states()
    parameters = found["Register"]["Parameters"]
    assert parameters["MetadataProperties"] == {"GeneratedBy.$": f"{JOB}.TrainingJobArn"}
    assert parameters["InferenceSpecification"]["Containers"] == [
        {
            "Image.$": f"{JOB}.AlgorithmSpecification.TrainingImage",
            "ModelDataUrl.$": f"{JOB}.ModelArtifacts.S3ModelArtifacts",
        }
    ]
    key = f"States.Format('{{}}{{}}/output/metrics.json', 'models/', {JOB}.TrainingJobName)"
    assert found["RegisterWrite"]["Parameters"] == {
        "Bucket": "bucket",
        "Key.$": key,
        "Body": {"training_metrics": {"accuracy": {"value.$": "$.Steps.Register.Metric0[0]"}}},
        "ContentType": "application/json",
    }


def test_a_model_without_metrics_is_registered_in_one_state() -> None:
    stack = Pipeline()
    stack.pipeline(stack.first, stack.registration(metrics=()))
    found = stack.definition()["States"]
    assert [name for name in found if ":" not in name] == ["Pretraining", "Register"]
    assert not {"ModelMetrics", "CustomerMetadataProperties"} & set(found["Register"]["Parameters"])


def statements_of_the_pipeline() -> dict[str, Any]:
    """The resource, or resources, of each action that the pipeline's state machine may do."""
    [policy] = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in whole().template()["Resources"].items()
        if resource["Type"] == "AWS::IAM::Policy" and name.startswith("PipelineStateMachineRole")
    ]
    found: dict[str, list[Any]] = {}
    for statement in policy:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            found.setdefault(action, []).append(resolved(statement["Resource"]))
    return {action: resources[0] if len(resources) == 1 else resources for action, resources in found.items()}


def test_the_machine_may_register_in_the_group_and_write_below_the_output() -> None:
    found = statements_of_the_pipeline()
    arn = "arn:aws:sagemaker:us-east-1:123456789012"
    assert found["sagemaker:CreateModelPackage"] == [
        f"{arn}:model-package-group/digits",
        f"{arn}:model-package/digits/*",
    ]
    assert found["s3:PutObject"] == "arn:aws:s3:::bucket/models/*"


def test_the_machine_may_stop_the_executions_of_its_workflows_and_no_others() -> None:
    found = statements_of_the_pipeline()
    machines = [re.sub(r"[{}]", "", arn) for arn in found["states:StartExecution"]]
    assert [re.sub("StateMachine.*", "", machine) for machine in machines] == [
        "Pretraining",
        "Finetuning",
        "Distillation",
    ]
    executions = [f"arn:aws:states:us-east-1:123456789012:execution:{{{machine}.Name}}:*" for machine in machines]
    assert found["states:DescribeExecution"] == found["states:StopExecution"] == executions
    rule = "arn:aws:events:us-east-1:123456789012:rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    assert {found[f"events:{action}"] for action in ("DescribeRule", "PutRule", "PutTargets")} == {rule}


def test_an_approval_may_use_the_key_of_its_topic() -> None:
    stack = Pipeline()
    topic = sns.Topic(stack, "Topic", master_key=kms.Key(stack, "Key"))
    stack.pipeline(Approval(stack, "Release", topic=topic))
    statements = [
        statement
        for one in stack.template()["Resources"].values()
        if one["Type"] == "AWS::IAM::Policy"
        for statement in one["Properties"]["PolicyDocument"]["Statement"]
    ]
    [of_key] = [one["Resource"] for one in statements if one["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]]
    assert of_key["Fn::GetAtt"][0].startswith("Key")
    assert "sns:Publish" in [one["Action"] for one in statements]


def test_an_approval_waits_for_its_token_and_says_how_to_answer() -> None:
    state = states()["Release"]
    assert state["Resource"] == "arn:aws:states:::sns:publish.waitForTaskToken"
    message = state["Parameters"]["Message"]
    assert (message["Execution.$"], message["TaskToken.$"]) == ("$$.Execution.Id", "$$.Task.Token")
    answers = {
        "ToApprove.$": "success --task-output true",
        "ToRefuse.$": "failure --error ApprovalRefused --cause REASON",
    }
    for name, command in answers.items():
        expected = f"States.Format('aws stepfunctions send-task-{command} --task-token {{}}', $$.Task.Token)"
        assert message[name] == expected
    assert state["TimeoutSeconds"] == 604_800


def test_the_definitions_pass_the_check_of_amazon_states_language() -> None:
    assert lint(whole().machines()) == []


def test_the_steps_drop_into_a_state_machine_of_ones_own() -> None:
    stack = Pipeline()
    own = sfn.Pass(stack, "Mine")
    chain = stack.first.as_task(stack, "Train", keeps_job=True).next(stack.gate()).next(stack.registration())
    approval = Approval(stack, "Release", topic=sns.Topic(stack, "Topic"))
    stack.machine_of(chain.next(approval).next(own))
    [found] = [one for name, one in stack.machines().items() if name.startswith("Machine")]
    assert found["StartAt"] == "Train"
    train = found["States"]["Train"]
    assert (train["ResultSelector"], train["ResultPath"]) == ({"Job.$": "$.Output"}, "$.Steps.Pretraining")
    assert found["States"]["GoodEnoughPassed"]["Next"] == "RegisterHasMetrics"
    assert found["States"]["Register"]["Next"] == "Release"
    assert found["States"]["Release"]["Next"] == "Mine"


def test_states_of_ones_own_are_steps() -> None:
    stack = Pipeline()
    stack.pipeline(stack.first, sfn.Pass(stack, "Mine"), stack.second)
    found = stack.definition()["States"]
    assert (found["Pretraining"]["Next"], found["Mine"]["Next"]) == ("Mine", "Finetuning")


def refused(make: Any) -> str:
    return message_of(lambda: make(Pipeline()))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda s: s.gate(at_most=0.5), "at_least must be at most at_most, like 0.9 and 1, got 0.9 and 0.5"),
        (lambda s: s.gate(metric="loss"), "metric of a Gate must be a name in metric_definitions of its workflow"),
        (lambda s: s.gate(at_least=None), "at_least must be set unless at_most is, like 0.9, got None and None"),
        (lambda s: s.gate("not-a-path"), "id of a step must be letters, digits and underscores"),
        (lambda s: s.pipeline(), "steps must be at least one, like "),
        (lambda s: s.pipeline(s.gate(), s.first), "steps must have the workflow of Gate before it, like "),
        (lambda s: s.pipeline(s.second, s.first), "steps must have the workflow of ArtifactOf in Finetuning before it"),
        (lambda s: s.pipeline(s.first, s.first), "steps must have ids that are unique, like 'Pretraining', got "),
        (lambda s: s.pipeline(s.first, "Finetuning"), "steps must be workflows, gates, approvals, registrations"),
        (lambda s: s.pipeline(ParallelSteps([[s.first]])), "branches must be at least two lists of steps, like "),
        (lambda s: s.registration(group="my group"), "group must be the name of a model package group, like 'digits'"),
        (lambda s: s.registration(metrics=["loss"]), "metrics of RegisterModel must be a name in metric_definitions"),
        (
            lambda s: Approval(s, "Release", topic=sns.Topic(s, "Topic"), timeout=400 * 86_400),
            "timeout must be from 1 second to 365 days, like Duration.days(7), got ",
        ),
    ],
)
def test_what_a_pipeline_cannot_run_is_refused_at_synth(make: Any, said: str) -> None:
    assert refused(make).startswith(said)


def test_the_message_of_a_gate_that_is_not_passed_names_job_bound_and_value() -> None:
    assert json.dumps(states()["GoodEnoughNotPassed"]["CausePath"]).strip('"') == (
        f"States.Format('{{}}: {{}} must be at least 0.9, and is {{}}', {JOB}.TrainingJobName, 'accuracy', "
        "$.Steps.GoodEnough.Metric0[0])"
    )
