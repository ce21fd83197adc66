"""Declared fields of an execution's input, and the states that check them before a job is created."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import aws_stepfunctions as sfn
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of

from cdk_sagemaker_training import ChoiceField, DataParallelJob, InstanceGroup, NumberField, TextField, unlisted

FIELDS = {
    "learning_rate": NumberField(0, 1),
    "instance_type": ChoiceField(["ml.g5.xlarge", "ml.g5.2xlarge"]),
    "machines": ChoiceField([1, 2, 4]),
    "data_set": TextField("images-*"),
}


@pytest.fixture(scope="module")
def rendered() -> RenderedWorkflow:
    group = InstanceGroup(sfn.JsonPath.string_at("$.instance_type"), sfn.JsonPath.number_at("$.machines"))
    return RenderedWorkflow(job=DataParallelJob(group), input_fields=FIELDS)


def test_the_input_is_checked_before_anything_else(rendered: RenderedWorkflow) -> None:
    assert rendered.definition["StartAt"] == "CheckInput"
    assert rendered.states["CheckInput"]["Default"] == "FirstAttempt"


def test_each_field_must_be_there_and_be_allowed(rendered: RenderedWorkflow) -> None:
    assert rendered.states["CheckInput"]["Choices"][:4] == [
        {"Variable": "$.learning_rate", "IsPresent": False, "Next": "MissingLearningRate"},
        {
            "Not": {
                "And": [
                    {"Variable": "$.learning_rate", "IsNumeric": True},
                    {"Variable": "$.learning_rate", "NumericGreaterThanEquals": 0},
                    {"Variable": "$.learning_rate", "NumericLessThanEquals": 1},
                ]
            },
            "Next": "InvalidLearningRate",
        },
        {"Variable": "$.instance_type", "IsPresent": False, "Next": "MissingInstanceType"},
        {
            "Not": {
                "Or": [
                    {"Variable": "$.instance_type", "StringEquals": "ml.g5.xlarge"},
                    {"Variable": "$.instance_type", "StringEquals": "ml.g5.2xlarge"},
                ]
            },
            "Next": "InvalidInstanceType",
        },
    ]


def test_the_error_names_the_field_what_is_allowed_and_what_came(rendered: RenderedWorkflow) -> None:
    assert rendered.states["InvalidInstanceType"] == {
        "Type": "Fail",
        "Error": "InvalidInput",
        "CausePath": (
            "States.Format('{}, got {}', 'instance_type must be one of ml.g5.xlarge, ml.g5.2xlarge', "
            "States.JsonToString($.instance_type))"
        ),
    }


def test_a_field_with_a_default_may_be_left_out_and_is_checked_where_it_is_there() -> None:
    fields = {"learning_rate": NumberField(0, 1, default=0.1), "data_set": TextField(default="it's")}
    states = RenderedWorkflow(input_fields=fields).definition
    assert states["StartAt"] == "Defaults"
    assert states["States"]["Defaults"]["Parameters"]["Defaults"] == {"learning_rate": 0.1, "data_set": "it's"}
    merged = states["States"]["WithDefaults"]
    assert merged["Parameters"] == {"Input.$": "States.JsonMerge($.Defaults, $.Input, false)"}
    assert (merged["OutputPath"], merged["Next"]) == ("$.Input", "CheckInput")
    assert [rule["Next"] for rule in states["States"]["CheckInput"]["Choices"]] == [
        "InvalidLearningRate",
        "InvalidDataSet",
    ]


def test_a_whole_number_is_looked_at_as_text_once_it_is_known_to_be_a_number() -> None:
    group = InstanceGroup("ml.g5.xlarge", sfn.JsonPath.number_at("$.machines"))
    fields = {"machines": NumberField(1, 8, whole=True)}
    rendered = RenderedWorkflow(job=DataParallelJob(group), input_fields=fields)
    assert rendered.states["CheckInput"]["Default"] == "NumbersAsText"
    assert rendered.states["NumbersAsText"]["Parameters"] == {"machines.$": "States.JsonToString($.machines)"}
    [rule] = rendered.states["AreWhole"]["Choices"]
    assert [one["StringMatches"] for one in rule["Or"]] == ["*.*", "*e*", "*E*"]
    assert rule["Next"] == "InvalidMachines"
    assert "a whole number of at least 1 and at most 8" in rendered.states["InvalidMachines"]["CausePath"]
    assert lint(rendered.machines) == []


@pytest.mark.parametrize("field", [NumberField(1, 8), TextField(), ChoiceField([1, 2.5]), ChoiceField(["1"])])
def test_a_number_of_machines_that_may_be_no_whole_number_is_refused(field: Any) -> None:
    group = InstanceGroup("ml.g5.xlarge", sfn.JsonPath.number_at("$.machines"))
    said = message_of(lambda: RenderedWorkflow(job=DataParallelJob(group), input_fields={"machines": field}))
    assert said.startswith(
        "input_fields['machines'] must be whole numbers, which ResourceConfig.InstanceCount takes, like NumberField("
    )


TYPE, RATE = sfn.JsonPath.string_at("$.type"), sfn.JsonPath.string_at("$.rate")
ON_ANY = {"job": DataParallelJob(InstanceGroup(TYPE, sfn.JsonPath.number_at("$.machines")))}


@pytest.mark.parametrize(
    ("props", "fields", "said"),
    [
        (
            ON_ANY,
            {"type": ChoiceField(["ml.g5.xlarge", "ml.g5.xlrge"])},
            "input_fields['type'] must be a type that SageMaker trains on, like 'ml.g5.xlarge', "
            "or unlisted('ml.g5.xlrge') where AWS differs by now, got 'ml.g5.xlrge'",
        ),
        (
            ON_ANY,
            {"type": TextField(default="g5.xlarge")},
            "input_fields['type'] must be a SageMaker training type",
        ),
        (
            ON_ANY,
            {"machines": ChoiceField([0, 1])},
            "input_fields['machines'] must be a whole number of at least 1, like 2, got 0",
        ),
        (
            ON_ANY,
            {"machines": NumberField(0, 8, whole=True)},
            "input_fields['machines'] must be a whole number of at least 1, like 2, got 0",
        ),
        (
            {"max_runtime": sfn.JsonPath.number_at("$.seconds")},
            {"seconds": NumberField(0, 86_400, whole=True)},
            "input_fields['seconds'] allows what StoppingCondition.MaxRuntimeInSeconds does not: it must be at least 1, got 0",
        ),
        (
            {"hyperparameters": {"rate": RATE}},
            {"rate": NumberField(0, 1)},
            "HyperParameters.rate must be text, as which the number input_fields['rate'] is formatted like "
            "sfn.JsonPath.format('{}', sfn.JsonPath.string_at('$.rate')), got '$.rate' of NumberField(",
        ),
        (
            {"environment": {"RATE": RATE}},
            {"rate": ChoiceField([0.1, "0.2"])},
            "Environment.RATE must be text, as which ",
        ),
        (
            {"environment": {"RATE": RATE}},
            {"rate": TextField(default="0" * 600)},
            "input_fields['rate'] allows what Environment.RATE does not: it must be at most 512 characters, got 600 characters",
        ),
    ],
)
def test_what_a_field_allows_and_the_service_refuses_is_refused(
    props: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    assert message_of(lambda: UserStack().workflow(input_fields=fields, **props)).startswith(said)


def test_a_field_may_allow_what_the_service_takes_and_what_is_unlisted() -> None:
    fields = {
        "type": ChoiceField(["ml.g5.xlarge", unlisted("ml.x9.huge")], default="ml.g5.xlarge"),
        "machines": ChoiceField([1, 2]),
        "rate": NumberField(0, 1),
    }
    formatted = sfn.JsonPath.format("{}", RATE)
    request = RenderedWorkflow(**ON_ANY, hyperparameters={"rate": formatted}, input_fields=fields).request
    assert request["ResourceConfig"]["InstanceType.$"] == "$.type"
    assert request["HyperParameters"] == {"rate.$": "States.Format('{}', $.rate)"}


def test_the_machine_passes_the_check_of_amazon_states_language(rendered: RenderedWorkflow) -> None:
    assert lint(rendered.machines) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NumberField(2, 1), "minimum must be at most maximum, like 0 and 1, got 2 and 1"),
        (
            lambda: NumberField(0, 1, default=2),
            "default must be a number of at least 0 and at most 1, like None, got 2",
        ),
        (
            lambda: NumberField(1, 8, default=2.5, whole=True),
            "default must be a whole number of at least 1 and at most 8, like None, got 2.5",
        ),
        (lambda: ChoiceField([1, 2], default=3), "default must be one of 1, 2, like None, got 3"),
        (lambda: TextField("images-*", default="texts"), "default must be text like images-*, like None, got 'texts'"),
        (lambda: ChoiceField([]), "values must be at least one, like "),
        (lambda: NumberField("0"), "minimum must be a number, like "),
        (lambda: RenderedWorkflow(input_fields={"Training": TextField()}), "input_fields must be by names of letters"),
        (lambda: RenderedWorkflow(input_fields={"a-b": TextField()}), "input_fields must be by names of letters"),
        (
            lambda: RenderedWorkflow(input_fields={"steps": TextField(), "Steps": TextField()}),
            "input_fields must be by names that differ by more than case",
        ),
        (lambda: RenderedWorkflow(input_fields={"steps": 3}), "input_fields['steps'] must be a NumberField or "),
    ],
)
def test_a_field_that_cannot_be_is_refused(make: Any, message: str) -> None:
    assert message_of(make).startswith(message)
