"""A task state in JSONata: the same request as in JSONPath, evaluated by an implementation of JSONata."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

import aws_cdk as cdk
import jsonata
import pytest
from aws_cdk import aws_stepfunctions as sfn
from stacks import UserStack, message_of

from cdk_sagemaker_training import DataParallelJob, InstanceGroup, S3Channel, TrainingTask
from cdk_sagemaker_training.core.tokens import is_unresolved

INPUT = {
    "steps": 500,
    "type": "ml.g5.2xlarge",
    "count": 2,
    "dataset": "digits",
    "index": 3,
    "who": "O'Neill",
    "team": "vision",
}
CONTEXT = {
    "Execution": {
        "Id": "arn:aws:states:us-east-1:123456789012:execution:Machine:monday",
        "Name": "monday",
        "RedriveCount": 1,
    },
    "State": {"Name": "Train", "RetryCount": 2},
}


def state_in_jsonata(stack: UserStack, **props: Any) -> dict[str, Any]:
    """The state of a task in a machine in JSONata."""
    task = TrainingTask.jsonata(stack, "Train", **{**least(stack), **props})
    stack.machine_of(task, query_language=sfn.QueryLanguage.JSONATA)
    [machine] = stack.machines().values()
    assert machine["QueryLanguage"] == "JSONata"
    return dict(machine["States"]["Train"])


def least(stack: UserStack) -> dict[str, Any]:
    job = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
    return {"job": job, "image": stack.image, "output": stack.place("models/")}


def by_jsonata(value: Any) -> Any:
    """A value of a state, with its expressions evaluated as Step Functions does."""
    if isinstance(value, dict):
        return {name: by_jsonata(item) for name, item in value.items()}
    if isinstance(value, list):
        return [by_jsonata(item) for item in value]
    if not (isinstance(value, str) and value.startswith("{%") and value.endswith("%}")):
        return value
    expression = jsonata.Jsonata(value[2:-2])
    expression.assign("states", {"input": INPUT, "context": CONTEXT})
    expression.register_lambda("hash", hashed)
    return expression.evaluate(None)


def hashed(content: str, algorithm: str) -> str:
    assert algorithm == "MD5"
    return hashlib.md5(content.encode()).hexdigest()


def by_jsonpath(value: Any) -> Any:
    """A value of a state, with its places and intrinsic functions evaluated as Step Functions does."""
    if isinstance(value, list):
        return [by_jsonpath(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name.removesuffix(".$"): evaluated(item) if name.endswith(".$") else by_jsonpath(item)
        for name, item in value.items()
    }


def evaluated(text: str) -> Any:
    call = re.fullmatch(r"States\.(Format|Hash)\((.*)\)", text, re.DOTALL)
    if call is None:
        return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith("'") else at(text)
    first, *others = (evaluated(argument.strip()) for argument in arguments(call[2]))
    if call[1] == "Hash":
        return hashed(first, others[0])
    for other in others:
        first = first.replace("{}", str(other), 1)
    return first


def at(path: str) -> Any:
    value: Any = CONTEXT if path.startswith("$$.") else INPUT
    for name in path.lstrip("$.").split("."):
        value = value[name]
    return value


def arguments(text: str) -> list[str]:
    """The arguments of a call, split at the commas outside of calls and literals."""
    found, depth, quoted = [""], 0, False
    for before, character in zip(" " + text, text, strict=False):
        quoted ^= character == "'" and before != "\\"
        depth += 0 if quoted else {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += character
    return found


def place(name: str, language: str) -> str:
    return f"{{% $states.input.{name} %}}" if language == "jsonata" else sfn.JsonPath.string_at(f"$.{name}")


def count(language: str) -> Any:
    return (
        cdk.Token.as_number("{% $states.input.count %}") if language == "jsonata" else sfn.JsonPath.number_at("$.count")
    )


def whole_job(stack: UserStack, language: str) -> dict[str, Any]:
    """A job of which an execution decides what it may, in either language."""
    return {
        "job": DataParallelJob(InstanceGroup(place("type", language), count(language))),
        "channels": {"images": S3Channel(stack.bucket, "images/", subfolder=place("dataset", language))},
        "checkpoints": stack.place("checkpoints"),
        "environment": {"WHO": f"it's {place('who', language)}, {{}}"},
        "hyperparameters": {"epochs": 4, "dataset": place("dataset", language), "quote": 'it\'s "so" \\ here'},
        "max_runtime": cdk.Duration.hours(6),
        "unique_by": place("index", language),
        "tags": {"team": place("team", language)},
    }


def test_the_request_is_that_of_the_state_in_jsonpath() -> None:
    in_jsonata, in_jsonpath = UserStack(), UserStack()
    arguments_ = state_in_jsonata(in_jsonata, **whole_job(in_jsonata, "jsonata"))["Arguments"]
    in_jsonpath.machine_of(in_jsonpath.task("Train", **whole_job(in_jsonpath, "jsonpath")))
    found = by_jsonata(arguments_)
    assert found == by_jsonpath(in_jsonpath.request())
    assert found["TrainingJobName"] == (
        "stack-train-201228b0-"
        + hashed("arn:aws:states:us-east-1:123456789012:execution:Machine:monday-Train-1-2-3", "MD5")
    )
    assert found["CheckpointConfig"] == {"S3Uri": "s3://bucket/checkpoints/stack-train-201228b0/monday/Train/3/"}
    assert found["ResourceConfig"]["InstanceCount"] == 2
    assert found["Environment"]["WHO"] == "it's O'Neill, {}"


def test_the_state_has_arguments_and_no_member_of_a_state_in_jsonpath() -> None:
    found = state_in_jsonata(UserStack())
    assert found.keys() == {"Type", "Resource", "Arguments", "End"}
    assert found["Resource"] == "arn:aws:states:::sagemaker:createTrainingJob.sync"


def test_a_state_in_jsonata_has_assign_and_outputs_and_the_props_of_every_state() -> None:
    found = state_in_jsonata(
        UserStack(),
        assign={"name": "{% $states.result.TrainingJobName %}"},
        outputs="{% $states.result.ModelArtifacts.S3ModelArtifacts %}",
        comment="trains",
        task_timeout=sfn.Timeout.duration(cdk.Duration.hours(7)),
    )
    assert found["Assign"] == {"name": "{% $states.result.TrainingJobName %}"}
    assert found["Output"] == "{% $states.result.ModelArtifacts.S3ModelArtifacts %}"
    assert (found["Comment"], found["TimeoutSeconds"]) == ("trains", 25_200)


def test_a_state_in_jsonata_is_one_of_a_machine_in_jsonpath_too() -> None:
    stack = UserStack()
    stack.machine_of(TrainingTask.jsonata(stack, "Train", **least(stack)))
    [machine] = stack.machines().values()
    assert machine["States"]["Train"]["QueryLanguage"] == "JSONata"


def test_the_machines_role_may_do_the_same_in_both_languages() -> None:
    in_jsonata, in_jsonpath = UserStack(), UserStack()
    state_in_jsonata(in_jsonata)
    in_jsonpath.machine_of(in_jsonpath.task("Train"))
    assert in_jsonata.statements("MachineRole") == in_jsonpath.statements("MachineRole")


@pytest.mark.parametrize(
    "text",
    [
        "{% for m in messages %}{{ m }}{% endfor %}",
        "{% if x %}it's{% endif %}\n",
        "a {% b %} c",
        "$states.input.steps",
    ],
)
def test_a_template_that_is_no_expression_is_sent_as_it_is(text: str) -> None:
    found = state_in_jsonata(UserStack(), environment={"TEMPLATE": text})["Arguments"]
    assert by_jsonata(found)["Environment"] == {"TEMPLATE": text}


def refusal_of(**props: Any) -> str:
    stack = UserStack()
    return message_of(lambda: TrainingTask.jsonata(stack, "Train", **{**least(stack), **props}))


STEPS = sfn.JsonPath.string_at("$.steps")


@pytest.mark.parametrize(
    ("prop", "value"),
    [
        ("hyperparameters", {"steps": STEPS}),
        ("environment", {"STEPS": f"of {STEPS}"}),
        ("container_arguments", ["--steps", STEPS]),
        ("tags", {"steps": STEPS}),
        ("job", DataParallelJob(InstanceGroup("ml.g5.xlarge", sfn.JsonPath.number_at("$.steps")))),
    ],
)
def test_a_jsonpath_in_a_state_in_jsonata_is_refused(prop: str, value: Any) -> None:
    assert refusal_of(**{prop: value}) == (
        f"{prop} must be in JSONata, as the state that creates the job is, like '{{% $states.input.value %}}', got a JSONPath"
    )


@pytest.mark.parametrize("make", ["workflow", "task"])
def test_an_expression_of_jsonata_in_a_state_in_jsonpath_is_refused(make: str) -> None:
    stack = UserStack()
    steps = "{% $states.input.steps %}"
    assert message_of(lambda: getattr(stack, make)(hyperparameters={"steps": steps})) == (
        "hyperparameters must be in JSONPath, as the state that creates the job is, like sfn.JsonPath.string_at('$.value'), "
        f"got {steps!r}"
    )


def test_a_template_in_a_state_in_jsonpath_is_sent_as_it_is() -> None:
    stack = UserStack()
    template = "{% for m in messages %}{{ m }}{% endfor %}"
    stack.workflow(hyperparameters={"template": template})
    assert stack.request()["HyperParameters"] == {"template": template}


@pytest.mark.parametrize("language", ["jsonata", "jsonpath"])
def test_unique_by_is_in_the_language_of_the_state(language: str) -> None:
    stack = UserStack()
    other = place("index", "jsonpath" if language == "jsonata" else "jsonata")
    make = TrainingTask.jsonata if language == "jsonata" else TrainingTask.json_path
    message = message_of(lambda: make(stack, "Train", **least(stack), unique_by=other))
    assert message.startswith("unique_by must be in JSON")
    assert message.endswith("got one of another language")


@pytest.mark.parametrize("prop", ["input_path", "output_path", "result_path"])
def test_a_path_of_a_state_in_jsonata_is_refused(prop: str) -> None:
    assert refusal_of(**{prop: "$.job"}) == (
        f"{prop} must be left out of a state in JSONata, like outputs='{{% $states.result %}}', got '$.job'"
    )


def test_outputs_of_a_state_in_jsonpath_are_refused() -> None:
    stack = UserStack()
    assert message_of(lambda: stack.task(outputs="{% $states.result %}")) == (
        "outputs must be left out of a state in JSONPath, like result_path='$.job', got '{% $states.result %}'"
    )


def test_a_prop_that_must_be_known_earlier_takes_no_expression() -> None:
    stack = UserStack()
    message = message_of(lambda: S3Channel(stack.bucket, "{% $states.input.dataset %}/"))
    assert message.startswith("prefix must be known when the app is deployed, since permissions are granted on it")
    assert message.endswith("got a place in the execution's input")


def test_cdks_two_methods_make_the_state_and_the_constructor_takes_a_query_language() -> None:
    stack = UserStack()
    made = [
        TrainingTask.json_path(stack, "One", **least(stack)),
        TrainingTask.jsonata(stack, "Two", **least(stack)),
        TrainingTask(stack, "Three", **least(stack), query_language=sfn.QueryLanguage.JSONATA),
    ]
    assert all(isinstance(task, TrainingTask) for task in made)
    stack.machine_of(made[0].next(made[1]).next(made[2]))
    [machine] = stack.machines().values()
    assert [state.get("QueryLanguage", "JSONPath") for state in machine["States"].values()] == [
        "JSONPath",
        "JSONata",
        "JSONata",
    ]


def test_a_tag_of_the_stack_is_on_the_job() -> None:
    stack = UserStack()
    cdk.Tags.of(stack).add("cost-centre", "42")
    found = by_jsonata(state_in_jsonata(stack)["Arguments"])
    assert found["Tags"] == [
        {"Key": "StepFunctionsExecution", "Value": CONTEXT["Execution"]["Id"]},
        {"Key": "cost-centre", "Value": "42"},
    ]


@pytest.mark.parametrize(
    "text",
    ["{%" + "$" * 20_000, "{% " * 20_000 + "$", "{% a $b " * 20_000, "{%" + "a$" * 20_000 + "%", "{% " + "a" * 40_000],
    ids=["dollars", "beginnings", "both", "no end", "no variable"],
)
def test_long_text_that_almost_is_an_expression_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    assert not is_unresolved(text)
    assert time.process_time() - began < 1
