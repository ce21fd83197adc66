"""The state machine of a TrainingWorkflow: its request and its states."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from rendered import lint
from stacks import IMAGE_URI, RenderedWorkflow, UserStack

from cdk_sagemaker_training import (
    Approval,
    Gate,
    RegisterModel,
    S3Prefix,
    Spot,
    TrainingNetwork,
    TrainingPipeline,
)
from cdk_sagemaker_training.lifecycle.polling import Intervals


def without_role(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the one member that holds a logical id."""
    return {**request, "RoleArn": "role"}


def test_the_request_of_a_job_on_one_type_of_machines(sync: RenderedWorkflow) -> None:
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


def test_the_request_of_a_heterogeneous_job(poll: RenderedWorkflow) -> None:
    assert without_role(poll.request) == {
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE_URI,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "CheckpointConfig": {
            "S3Uri.$": "States.Format('{}{}/', 's3://bucket/checkpoints/stack-training-04d490aa/', $$.Execution.Name)"
        },
        "Environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
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


def test_the_machines_pass_the_check_of_amazon_states_language(either: RenderedWorkflow) -> None:
    assert len(either.machines) == 3  # its own, the stopper and the stack's guard
    assert lint(either.machines) == []


def test_a_job_that_sync_takes_is_waited_for_by_sync(sync: RenderedWorkflow) -> None:
    assert sync.states["Create"]["Resource"] == "arn:aws:states:::sagemaker:createTrainingJob.sync"


def test_a_job_that_sync_is_not_known_to_take_is_looked_at(poll: RenderedWorkflow) -> None:
    assert poll.states["Create"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"


def test_a_job_that_sync_takes_is_looked_at_where_that_is_asked_for() -> None:
    states = RenderedWorkflow(integration="poll").states
    assert states["Create"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"


def test_the_name_is_a_function_of_execution_and_attempt_computed_before_the_job_is_created(
    either: RenderedWorkflow,
) -> None:
    first = either.states["FirstAttempt"]
    assert first["Parameters"]["JobName.$"] == (
        "States.Format('stack-training-04d490aa-{}-{}', States.Hash($$.Execution.Id, 'MD5'), 1)"
    )
    assert first["Next"] == "Create"


def test_another_attempt_has_another_name(poll: RenderedWorkflow) -> None:
    assert poll.states["NextAttempt"]["Parameters"] == {
        "Attempt.$": "States.MathAdd($.Training.Attempt, 1)",
        "JobName.$": (
            "States.Format('stack-training-04d490aa-{}-{}', States.Hash($$.Execution.Id, 'MD5'), "
            "States.MathAdd($.Training.Attempt, 1))"
        ),
        "Seconds": 2,
        "Repeated": {"Wait": 2, "Seconds": 0, "Calls": 1},
    }


def test_a_failed_job_is_run_again_only_while_attempts_are_left(poll: RenderedWorkflow) -> None:
    [again] = [choice for choice in poll.states["IsOver"]["Choices"] if choice["Next"] == "NextAttempt"]
    assert again["And"] == [
        {"Variable": "$.Training.Job.TrainingJobStatus", "StringEquals": "Failed"},
        {"Variable": "$.Training.Attempt", "NumericLessThan": 3},
    ]


def test_a_failed_job_is_not_run_again_unless_asked_for(sync: RenderedWorkflow) -> None:
    assert "NextAttempt" not in sync.states


def test_whatever_becomes_of_create_the_job_is_looked_for(either: RenderedWorkflow) -> None:
    assert either.states["Create"]["Catch"] == [
        {"ErrorEquals": ["States.ALL"], "ResultPath": "$.Training.Error", "Next": "IsRefused"}
    ]
    assert either.states["IsRefused"]["Default"] == "Find"
    assert either.states["Find"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob"
    assert either.states["Find"]["Next"] == "IsOver"


def test_a_job_that_cannot_be_described_is_looked_for_again_until_it_is_known_not_to_be_there(
    either: RenderedWorkflow,
) -> None:
    states, gone = either.states, "*Requested resource not found*"
    assert [states[name]["Catch"][0]["Next"] for name in ("Find", "Describe")] == ["IsMissing", "NotDescribed"]
    assert (states["IsMissing"]["Default"], states["WaitToFind"]["Next"]) == ("WaitToFind", "Find")
    assert states["NotDescribed"]["Default"] == "Wait"
    found = {name: [one for one in states[name]["Choices"][0]["Or"] if one.get("StringMatches") == gone] for name in
             ("IsMissing", "NotDescribed")}  # fmt: skip
    assert {name: one[0]["Variable"] for name, one in found.items()} == {
        "IsMissing": "$.Training.Missing.Cause",
        "NotDescribed": "$.Training.Error.Cause",
    }
    assert states["NotDescribed"]["Choices"][1] == {
        "Variable": "$.Training.Error.Cause",
        "StringMatches": "*is not authorized to perform*",
        "Next": "Stop",
    }


def test_a_job_that_was_not_found_is_stopped_in_case_it_comes_and_the_refusal_is_the_executions_error(
    either: RenderedWorkflow,
) -> None:
    assert either.states["IsMissing"]["Choices"][0]["Next"] == "Stop"
    assert either.states["Stop"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:stopTrainingJob"
    assert either.states["Stop"]["Next"] == "Error"
    # Of a job that cannot be stopped either, the first error is the execution's.
    assert either.states["Stop"]["Catch"] == [
        {"ErrorEquals": ["States.ALL"], "ResultPath": "$.Training.Stopped", "Next": "Error"}
    ]
    assert either.states["Error"]["ErrorPath"] == "$.Training.Error.Error"


def test_every_call_is_repeated_when_aws_throttles_or_fails_after_waits_that_double(either: RenderedWorkflow) -> None:
    # `Create` is repeated by states: test_retries.py.
    calls = {name: state for name, state in either.states.items() if state["Type"] == "Task" and name != "Create"}
    calls["StopperDescribes"] = either.stopper["States"]["DescribeExecution"]
    waits = {"IntervalSeconds": 1, "BackoffRate": 2, "JitterStrategy": "FULL"}
    retriers = {name: call["Retry"][0] for name, call in calls.items()}
    assert {name: {key: retriers[name][key] for key in waits} for name in calls} == dict.fromkeys(calls, waits)
    assert {name: (one["MaxAttempts"], one["MaxDelaySeconds"]) for name, one in retriers.items()} == {
        "Find": (3, 60),
        "Describe": (10, 60),
        "Stop": (3, 60),
        "FindModel": (3, 60),
        "StopperDescribes": (112, 60),
    }


def test_the_output_is_the_description_of_the_job(either: RenderedWorkflow) -> None:
    assert either.states["Completed"] == {"Type": "Pass", "InputPath": "$.Training.Job", "End": True}


def test_a_prefix_may_hold_what_intrinsic_functions_escape() -> None:
    stack = UserStack()
    rendered = RenderedWorkflow(stack, checkpoints=stack.place("it's {here}/"))
    assert rendered.request["CheckpointConfig"]["S3Uri.$"] == (
        r"States.Format('{}{}/', 's3://bucket/it\'s \{here\}/stack-training-04d490aa/', $$.Execution.Name)"
    )


def test_a_bucket_that_the_app_makes_keeps_checkpoints_too() -> None:
    stack = UserStack()
    stack.workflow(checkpoints=S3Prefix(s3.Bucket(stack, "Own"), "checkpoints/"))
    request = stack.request()
    uri = request["CheckpointConfig"]["S3Uri.$"]
    assert uri.startswith("States.Format('{}{}/', 's3://{Own")
    assert uri.endswith("}/checkpoints/stack-training-04d490aa/', $$.Execution.Name)")


def test_an_older_executions_checkpoints_are_used_by_its_name() -> None:
    stack = UserStack()
    rendered = RenderedWorkflow(stack, checkpoints=stack.place(), resume_from="monday")
    assert (
        rendered.request["CheckpointConfig"]["S3Uri.$"]
        == "States.Format('{}{}/', 's3://bucket/stack-training-04d490aa/', 'monday')"
    )


def test_an_older_execution_may_be_named_in_the_input() -> None:
    stack = UserStack()
    resume_from = sfn.JsonPath.string_at("$.resume_from")
    rendered = RenderedWorkflow(stack, checkpoints=stack.place(), resume_from=resume_from)
    assert (
        rendered.request["CheckpointConfig"]["S3Uri.$"]
        == "States.Format('{}{}/', 's3://bucket/stack-training-04d490aa/', $.resume_from)"
    )


def test_spot_says_where_checkpoints_are_kept() -> None:
    stack = UserStack()
    rendered = RenderedWorkflow(stack, spot=Spot(stack.place("spot/"), max_wait=cdk.Duration.hours(30)))
    assert rendered.request["CheckpointConfig"] == {
        "LocalPath": "/opt/ml/checkpoints",
        "S3Uri.$": "States.Format('{}{}/', 's3://bucket/spot/stack-training-04d490aa/', $$.Execution.Name)",
    }
    assert rendered.request["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400, "MaxWaitTimeInSeconds": 108_000}
    assert rendered.workflow.integration == "sync"


def test_a_hyperparameter_may_be_in_the_input() -> None:
    rendered = RenderedWorkflow(hyperparameters={"steps": sfn.JsonPath.string_at("$.steps")})
    assert rendered.request["HyperParameters"] == {"steps.$": "$.steps"}


def test_a_network_is_where_the_hosts_are() -> None:
    stack = UserStack()
    network = TrainingNetwork(stack, "Network")
    assert stack.workflow(network=network).network is network
    request = stack.request()
    assert sorted(request["VpcConfig"]) == ["SecurityGroupIds", "Subnets"]


def test_the_execution_ends_when_all_its_attempts_at_their_longest_have(
    poll: RenderedWorkflow, sync: RenderedWorkflow
) -> None:
    pending, upload = 86_400, 3_600
    assert poll.definition["TimeoutSeconds"] == 3 * (pending + 7_200 + upload)
    assert sync.definition["TimeoutSeconds"] == pending + 21_600 + upload


def test_the_time_of_an_execution_may_be_said() -> None:
    assert RenderedWorkflow(timeout=cdk.Duration.hours(2)).definition["TimeoutSeconds"] == 7_200


def test_a_job_is_polled_soon_and_then_less_often() -> None:
    intervals = Intervals.over((6 + 24) * 3_600, jobs=1)
    assert (intervals.first, intervals.step) == (2, 3)
    assert intervals.last >= 9 * (6 + 24) * 3_600 / 24_000


def test_a_long_path_makes_a_prefix_that_is_short_enough_and_no_other_constructs() -> None:
    stack = UserStack()
    names = [f"AWorkflowWithALongNameAndNumber{number}" for number in (1, 2)]
    for name in names:
        stack.workflow(name)
    prefixes = {
        definition["States"]["FirstAttempt"]["Parameters"]["JobName.$"].split("'")[1].removesuffix("-{}-{}")
        for definition in stack.machines().values()
        if "FirstAttempt" in definition["States"]
    }
    assert len(prefixes) == 2
    assert all(len(prefix) <= 26 and prefix.startswith("stack-aworkflowwi") for prefix in prefixes)


def test_a_metric_is_of_the_workflows_own_machine() -> None:
    stack = UserStack()
    workflow = stack.workflow()
    metric = stack.resolve(workflow.metric_failed().dimensions)
    assert metric == {"StateMachineArn": stack.resolve(workflow.state_machine.state_machine_arn)}


def test_the_workflow_is_a_state_of_another_machine_that_waits_for_it() -> None:
    stack = UserStack()
    task = stack.workflow().as_task(stack, "Train", result_path="$.trained")
    sfn.StateMachine(stack, "Other", definition_body=sfn.DefinitionBody.from_chainable(task))
    [state] = [
        definition["States"]["Train"] for definition in stack.machines().values() if "Train" in definition["States"]
    ]
    assert state["Resource"] == "arn:aws:states:::states:startExecution.sync:2"
    assert state["ResultPath"] == "$.trained"


PARENT = (
    r"""States.StringToJson(States.Format('\{"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID":"{}"\}', $$.Execution.Id))"""
)


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ({}, {"Input.$": f"States.JsonMerge($, {PARENT}, false)"}),
        ({"input": sfn.TaskInput.from_json_path_at("$.job")}, {"Input.$": f"States.JsonMerge($.job, {PARENT}, false)"}),
        ({"input": sfn.TaskInput.from_text("{}")}, {"Input": "{}"}),
        ({"associate_with_parent": False}, {"Input.$": "$"}),
        (
            {"input": sfn.TaskInput.from_object({"rate": sfn.JsonPath.number_at("$.rate"), "epochs": 3})},
            {"Input": {"rate.$": "$.rate", "epochs": 3, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id"}},
        ),
    ],
)  # fmt: skip
def test_an_execution_that_another_starts_names_it_in_its_input(given: dict[str, Any], started: dict[str, Any]) -> None:
    stack = UserStack()
    stack.machine_of(stack.workflow().as_task(stack, "Train", **given))
    [state] = [one["States"]["Train"] for one in stack.machines().values() if "Train" in one["States"]]
    parameters = {name: value for name, value in state["Parameters"].items() if name != "StateMachineArn"}
    assert parameters == started


OWN = "'AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID': $states.context.Execution.Id"
ID = "{% $states.context.Execution.Id %}"
JSONATA = sfn.QueryLanguage.JSONATA


def a_machine_in_jsonata(stack: UserStack, chain: Any) -> dict[str, Any]:
    """The first state of such a machine that has the states."""
    body = sfn.DefinitionBody.from_chainable(chain)
    sfn.StateMachine(stack, "Jsonata", definition_body=body, query_language=JSONATA)
    [definition] = [one for one in stack.machines().values() if one.get("QueryLanguage") == "JSONata"]
    return dict(definition["States"][definition["StartAt"]])


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ({"query_language": JSONATA}, f"{{% $merge([$states.input, {{{OWN}}}]) %}}"),
        (
            {"query_language": JSONATA, "input": sfn.TaskInput.from_text("{% $states.input.job %}")},
            f"{{% $merge([$states.input.job, {{{OWN}}}]) %}}",
        ),
        ({"query_language": JSONATA, "input": sfn.TaskInput.from_text("{}")}, "{}"),
        # Text and numbers say nothing of a language.
        (
            {"input": sfn.TaskInput.from_object({"epochs": 3})},
            {"epochs": 3, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": ID},
        ),
        (
            {"query_language": JSONATA, "input": sfn.TaskInput.from_object({"epochs": "{% $states.input.n %}"})},
            {"epochs": "{% $states.input.n %}", "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": ID},
        ),
    ],
)  # fmt: skip
def test_a_state_in_jsonata_that_starts_an_execution_names_it_in_its_input(given: dict[str, Any], started: Any) -> None:
    stack = UserStack()
    state = a_machine_in_jsonata(stack, stack.workflow().as_task(stack, "Train", **given))
    assert state["Arguments"]["Input"] == started


@pytest.mark.parametrize(
    "states",
    [
        lambda stack, workflow: workflow.as_task(stack, "Step"),
        lambda stack, workflow: workflow.as_task(stack, "Step", keeps_job=True),
        lambda stack, workflow: workflow.as_task(stack, "Step", input=sfn.TaskInput.from_json_path_at("$.job")),
        lambda stack, workflow: workflow.as_task(
            stack, "Step", input=sfn.TaskInput.from_object({"a": sfn.JsonPath.string_at("$.a")})
        ),
        lambda stack, workflow: TrainingPipeline(stack, "Pipeline", steps=[workflow]).as_task(stack, "Step"),
        lambda stack, workflow: Gate(stack, "Step", workflow, metric="loss", at_most=1),
        lambda stack, workflow: Approval(stack, "Step", topic=sns.Topic(stack, "Topic")),
        lambda stack, workflow: RegisterModel(stack, "Step", workflow, group="digits"),
    ],
    ids=["as_task", "keeps_job", "a path", "an object with a path", "a pipeline", "Gate", "Approval", "RegisterModel"],
)
def test_a_state_with_paths_is_refused_in_a_machine_in_jsonata_which_would_send_them_as_text(states: Any) -> None:
    stack = UserStack()
    chain = states(stack, stack.workflow(metric_definitions={"loss": "loss=([0-9.]+)"}))
    with pytest.raises(RuntimeError, match="'queryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state"):
        a_machine_in_jsonata(stack, chain)


@pytest.mark.parametrize(
    "state",
    [
        lambda stack: stack.workflow().as_task(stack, "Train"),
        lambda stack: stack.task(),
        lambda stack: stack.task(query_language=JSONATA),
        lambda stack: sfn.Chain.start(Approval(stack, "Ask", topic=sns.Topic(stack, "Topic"))),
    ],
    ids=["as_task", "TrainingTask", "TrainingTask.jsonata", "Approval"],
)
@pytest.mark.parametrize("within", ["", "Parallel", "Map"])
def test_a_state_that_waits_is_refused_in_an_express_machine(state: Any, within: str) -> None:
    """LocalStack's test_sfn_api_express.py::test_illegal_callbacks has AWS's refusal."""
    stack = UserStack()
    train = state(stack)
    other = sfn.Pass(stack, "Pass")
    chain: Any = train.next(other)
    if within == "Parallel":
        chain = sfn.Parallel(stack, "Both").branch(train)
    if within == "Map":
        chain = sfn.Map(stack, "Each", items_path="$.items").item_processor(train)
    body = sfn.DefinitionBody.from_chainable(chain)
    kind = sfn.StateMachineType
    sfn.StateMachine(stack, "Express", definition_body=body, state_machine_type=kind.EXPRESS)
    with pytest.raises(
        RuntimeError, match=r"state_machine_type must be STANDARD .* got EXPRESS of Stack/Express/Resource"
    ):
        stack.template()


def test_an_express_machine_with_a_state_of_the_same_name_is_taken() -> None:
    stack = UserStack()
    stack.machine_of(stack.workflow().as_task(stack, "Train"))
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "OfExpress", state_name="Train"))
    kind = sfn.StateMachineType
    sfn.StateMachine(stack, "Express", definition_body=body, state_machine_type=kind.EXPRESS)
    seconds = cdk.Duration.seconds(cdk.CfnParameter(stack, "Seconds", type="Number").value_as_number)
    wait = sfn.Wait(stack, "Wait", time=sfn.WaitTime.duration(seconds))
    parameter = cdk.CfnParameter(stack, "Definition").value_as_string
    for id, other in {
        "OfFile": sfn.DefinitionBody.from_file(__file__),
        "OfNumber": sfn.DefinitionBody.from_chainable(wait),
        "OfParameter": sfn.DefinitionBody.from_string(parameter),
        "OfText": sfn.DefinitionBody.from_string("${Definition}"),
    }.items():
        sfn.StateMachine(stack, id, definition_body=other, state_machine_type=kind.EXPRESS)
    stack.template()


def test_a_state_that_waits_is_refused_in_an_express_machine_beside_a_number_that_is_a_token() -> None:
    stack = UserStack()
    seconds = cdk.Duration.seconds(cdk.CfnParameter(stack, "Seconds", type="Number").value_as_number)
    wait = sfn.Wait(stack, "Wait", time=sfn.WaitTime.duration(seconds))
    body = sfn.DefinitionBody.from_chainable(wait.next(stack.workflow().as_task(stack, "Train")))
    kind = sfn.StateMachineType.EXPRESS
    sfn.StateMachine(stack, "Express", definition_body=body, state_machine_type=kind)
    with pytest.raises(RuntimeError, match="state_machine_type must be STANDARD"):
        stack.template()


def test_a_state_in_jsonata_keeps_no_job_for_states_in_jsonpath() -> None:
    stack = UserStack()
    with pytest.raises(ValueError, match=r"^keeps_job must be False in JSONata, .* like outputs=.*, got True$"):
        stack.workflow().as_task(stack, "Train", keeps_job=True, query_language=JSONATA)


def test_a_runtime_that_is_known_only_at_deployment_is_taken_for_the_longest() -> None:
    stack = UserStack()
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
