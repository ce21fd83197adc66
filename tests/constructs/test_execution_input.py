"""By when each prop must be known, row by row of the table: taken from an execution's input, or refused by its name."""

from __future__ import annotations

import json
import re
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct
from member_cases import RULES_IMAGE, Stack
from rendered import lint
from stacks import CODE, reads
from takers import NEEDED, NUMBERS, TAKERS, annotations, is_whole

from cdk_sagemaker_training import (
    DataParallelJob,
    Debugger,
    DebuggerRule,
    HeterogeneousJob,
    InstanceGroup,
    ModelParallelJob,
    Profiler,
    S3Channel,
    S3Prefix,
    Spot,
    TrainingImage,
    TrainingProps,
    TrainingTask,
)
from cdk_sagemaker_training.docs_generator import known
from cdk_sagemaker_training.lifecycle.job_set import JobSet

STACK = Stack()
KNOWN = known()
PLACE = sfn.JsonPath.string_at("$.place")
NUMBER = sfn.JsonPath.number_at("$.place")
GROUP = InstanceGroup("ml.p4d.24xlarge", 2)
ROWS = [tuple(name.rsplit(".", 1)) for name in KNOWN]
# Text that reaches no request, such as a construct's id, and what kinds of job make of it.
NO_ROWS = {"Advice", "JobRequest", "efa_environment", "rescaled_learning_rate", "suggested_batch_sizes"}
# Of the steps of a pipeline only the channel reaches a job, by the props of `S3Channel`.
NO_ROWS |= {"Approval", "ArtifactOf", "Gate", "ParallelSteps", "RegisterModel", "TrainingPipeline"}
NO_ROWS |= {"Attempt", "Feature", "training_code_path", "unlisted", "TrainingBucket", "TrainingRole"}
STATES = ("TrainingWorkflow", "TrainingTask")
# Where a value goes in a job's props.
PUT: dict[str, Any] = {
    "Alternative": lambda value: {"hyperparameters": value.hyperparameters, "environment": value.environment},
    "Debugger": lambda value: {"debugger": value},
    "DebuggerRule": lambda value: {"profiler": Profiler(rules=[value])},
    "EfsChannel": lambda value: {"channels": {"a": value}, "network": STACK.network},
    "Experiment": lambda value: {"experiment": value},
    "FsxLustreChannel": lambda value: {"channels": {"a": value}, "network": STACK.network},
    "InstanceGroup": lambda value: {"job": DataParallelJob(value)},
    "InstancePreference": lambda value: {"job": DataParallelJob(InstanceGroup([value]))},
    "Mlflow": lambda value: {"mlflow": value},
    "Mpi": lambda value: {"job": DataParallelJob(GROUP, launcher=value)},
    "Neuron": lambda value: {
        "job": DataParallelJob(InstanceGroup("ml.trn1.32xlarge"), TAKERS["Torchrun"](), compiler=value),
        "image": TrainingImage.from_neuron(Construct(STACK, "Neuron"), "Image"),
        "code": CODE,
    },
    "Profiler": lambda value: {"profiler": value},
    "PyTorchDdp": lambda value: {"job": DataParallelJob(GROUP, launcher=value)},
    "S3Channel": lambda value: {"channels": {"a": value}},
    "S3Prefix": lambda value: {"output": value},
    "SmDdp": lambda value: {"job": DataParallelJob(GROUP, launcher=value)},
    "SmpV1": lambda value: {"job": ModelParallelJob(GROUP, value)},
    "Spot": lambda value: {"spot": value},
    "TensorBoard": lambda value: {"tensorboard": value},
    "TrainingImage.from_dlc": lambda value: {"image": value, "code": CODE},
    "TrainingImage.from_ecr_repository": lambda value: {"image": value},
    "TrainingImage.from_uri": lambda value: {"image": value},
    "WarmPool": lambda value: {"warm_pool": value},
}
# What else a prop needs to be taken at all.
BESIDE: dict[str, dict[str, Any]] = {
    "S3Channel.subfolder": {"prefix": "datasets/"},
    "S3Prefix.subfolder": {"prefix": "models/"},
    "Spot.local_path": {"max_wait": 86_400},
    "S3Channel.compression": {"input_mode": "Pipe"},
    "S3Channel.record_wrapper": {"input_mode": "Pipe"},
    "S3Channel.attribute_names": {
        "prefix": "train.manifest",
        "data_type": "AugmentedManifestFile",
        "objects": S3Prefix(STACK.bucket, "some/"),
        "input_mode": "Pipe",
    },
    "TrainingProps.checkpoint_local_path": {"checkpoints": S3Prefix(STACK.bucket, "some/")},
    "TrainingProps.max_pending": {"job": DataParallelJob(InstanceGroup("ml.g5.xlarge"))},
}


def annotation(owner: str, prop: str) -> str:
    return annotations(TAKERS["TrainingWorkflow" if owner == "TrainingProps" else owner])[prop]


def later(text: str, place: str, number: float) -> Any:
    """A value that is known later, of the kind that an annotation says."""
    if text.startswith("Mapping[str, Mapping"):
        return {"a": {"b": place}}
    if text.startswith("Mapping"):
        return {"a": f"({place})" if "Sequence" in text else place}
    if text.startswith("Sequence"):
        return [place, "more"]
    if "Duration" in text:
        return cdk.Duration.seconds(number)
    if "Size" in text:
        return cdk.Size.gibibytes(number)
    return number if re.search("int|float", text) and "str" not in text else place


def made(owner: str, prop: str, value: Any) -> Any:
    props = {**NEEDED.get(owner, {}), **BESIDE.get(f"{owner}.{prop}", {}), prop: value}
    if "id" in props:
        props["scope"] = Construct(STACK, f"{owner}{prop}{next(NUMBERS)}")
    return TAKERS[owner](**props)


def requests_of(given: dict[str, Any], id: str) -> str:
    """The parameters of the states that create a job, as JSON."""
    plain = {"job": DataParallelJob(GROUP), "image": STACK.image, "output": S3Prefix(STACK.bucket, "models/")}
    jobs = JobSet(Construct(STACK, id), {**plain, "role": STACK.role, **given})  # type: ignore[typeddict-item]
    rendered = [
        jobs.request(one, job_name="$.Training.JobName", checkpoint_folder="$$.Execution.Name")
        for one in jobs.job_requests
    ]
    return json.dumps(rendered)


# Of a workflow and a task itself there are tests below.
DECIDED = [row for row in ROWS if KNOWN[".".join(row)].when == "execution" and row[0] not in STATES]


@pytest.mark.parametrize(("owner", "prop"), DECIDED)
def test_a_prop_that_an_execution_may_decide_is_in_its_request_as_a_path(owner: str, prop: str) -> None:
    value = later(annotation(owner, prop), PLACE, NUMBER)
    given = {prop: value} if owner == "TrainingProps" else PUT[owner](made(owner, prop, value))
    request = requests_of({**BESIDE.get(f"TrainingProps.{prop}", {}), **given}, f"{owner}.{prop}")
    assert re.search(r'\.\$": "(\$\.place"|States\.[^"]*\$\.place[^"]*")', request.replace('\\"', "'")), request
    assert "Token[place" not in request
    assert not re.search(r'[^$]": "[^"]*\$\.place', request.replace('\\"', "'"))


@pytest.mark.parametrize(("owner", "prop"), [row for row in ROWS if KNOWN[".".join(row)].when != "execution"])
def test_a_prop_that_no_execution_may_decide_is_refused_by_its_name(owner: str, prop: str) -> None:
    refusal = refusal_of(owner, prop, PLACE, NUMBER)
    assert is_whole(refusal, prop), refusal


@pytest.mark.parametrize(("owner", "prop"), [row for row in ROWS if KNOWN[".".join(row)].when == "synth"])
def test_a_prop_that_shapes_the_app_is_refused_a_stacks_parameter_by_its_name(owner: str, prop: str) -> None:
    refusal = refusal_of(owner, prop, cdk.Token.as_string({"Ref": "Text"}), cdk.Token.as_number({"Ref": "Number"}))
    assert is_whole(refusal, prop), refusal


TIMES = [row for row in ROWS if KNOWN[".".join(row)].when == "synth" and "Duration" in annotation(*row)]


@pytest.mark.parametrize("unit", ["millis", "minutes", "hours", "days"])
@pytest.mark.parametrize(("owner", "prop"), TIMES)
def test_a_time_that_is_a_token_of_any_unit_is_refused_by_its_name(owner: str, prop: str, unit: str) -> None:
    time = getattr(cdk.Duration, unit)(cdk.Token.as_number({"Ref": "Number"}))
    with pytest.raises(ValueError) as raised:
        made("TrainingWorkflow" if owner == "TrainingProps" else owner, prop, time)
    assert is_whole(str(raised.value), prop)
    assert str(raised.value).endswith(" got a token")


def refusal_of(owner: str, prop: str, place: str, number: float) -> str:
    text = annotation(owner, prop)
    if prop in ("channels", "groups") and text.startswith("Mapping"):
        value: Any = {place: S3Channel(STACK.bucket) if prop == "channels" else GROUP}
    else:
        value = later(text, place, number)
    with pytest.raises(ValueError) as raised:
        made("TrainingWorkflow" if owner == "TrainingProps" else owner, prop, value)
    return str(raised.value)


def test_each_text_and_number_that_reaches_a_job_has_a_row() -> None:
    texts = {
        (("TrainingProps" if name == "TrainingWorkflow" and prop in PROPS else name), prop)
        for name in TAKERS
        if name.split(".")[0] not in NO_ROWS and name != "TrainingTask"
        for prop, text in annotations(TAKERS[name]).items()
        if re.search(r"\b(str|int|float|Literal|Size|Duration|Mapping)\b", text) and prop not in ("id", "preferences")
    }
    # What a member takes that is no prop is the request's, as the service model has it.
    assert texts - set(ROWS) <= {("Neuron", "cache")}


PROPS = frozenset(TrainingProps.__annotations__)


def test_text_around_a_place_in_the_input_and_lists_with_one_are_made_by_the_state() -> None:
    [request] = json.loads(
        requests_of(
            {
                "environment": {"DATA": f"s3://it's/{PLACE}/{{x}}"},
                "container_arguments": ["--data", PLACE, f"--at={PLACE}"],
                "hyperparameters": {"data": f"a/{PLACE}"},
                "output": S3Prefix(STACK.bucket, "models/", subfolder=PLACE),
            },
            "Around",
        )
    )
    assert request["Environment"]["DATA.$"] == r"States.Format('s3://it\'s/{}/\{x\}', $.place)"
    assert request["AlgorithmSpecification"]["ContainerArguments.$"] == (
        "States.Array('--data', $.place, States.Format('--at={}', $.place))"
    )
    assert request["HyperParameters"] == {"data.$": "States.Format('a/{}', $.place)"}
    assert request["OutputDataConfig"] == {"S3OutputPath.$": "States.Format('s3://bucket/models/{}', $.place)"}


def test_a_place_in_the_input_inside_a_hyperparameter_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        requests_of({"hyperparameters": {"layers": [1, {"size": PLACE}]}}, "Nested")
    assert str(raised.value).startswith("hyperparameters['layers'] must be known at synthesis, except ")


def test_a_place_of_checkpoints_that_an_execution_chooses_is_refused() -> None:
    place = S3Prefix(STACK.bucket, "checkpoints/", subfolder=PLACE)
    for given in ({"checkpoints": place}, {"spot": Spot(place, max_wait=86_400)}):
        with pytest.raises(ValueError) as raised:
            requests_of(given, f"Checkpoints{len(given)}{next(iter(given))}")
        assert str(raised.value).startswith("checkpoints.subfolder must be left out, since this location is the same")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"prefix": "datasets", "subfolder": PLACE}, "prefix must end with a slash before a subfolder, since "),
        ({"subfolder": PLACE}, "prefix must end with a slash before a subfolder, since "),
        (
            {"prefix": "datasets/", "subfolder": ""},
            "subfolder must continue the prefix without a leading slash ... got ''",
        ),
        (
            {"prefix": "datasets/", "subfolder": "/a"},
            "subfolder must continue the prefix without a leading slash",
        ),
    ],
)
def test_a_subfolder_below_no_folder_is_refused(place: dict[str, Any], message: str) -> None:
    for kind in (S3Prefix, S3Channel):
        with pytest.raises(ValueError) as raised:
            kind(STACK.bucket, **place)
        assert reads(str(raised.value), f"{message} ... ")


def test_the_definitions_of_jobs_that_executions_decide_are_states_language() -> None:
    stack = Stack()
    job = HeterogeneousJob(
        {"data": InstanceGroup(PLACE, NUMBER)}, DataParallelJob(InstanceGroup("ml.g5.xlarge")), train_group="dnn"
    )
    given: dict[str, Any] = {
        "job": job,
        "image": TrainingImage.from_ecr_repository(stack, "Tagged", stack.image.repository, PLACE),  # type: ignore[arg-type]
        "output": S3Prefix(stack.bucket, "models/", subfolder=PLACE),
        "channels": {"a": S3Channel(stack.bucket, "datasets/", subfolder=PLACE)},
        "container_arguments": [PLACE],
        "environment": {"DATA": f"a/{PLACE}"},
        "checkpoints": S3Prefix(stack.bucket, "checkpoints/"),
        "max_runtime": cdk.Duration.seconds(NUMBER),
        "debugger": Debugger(stack.place("tensors/"), rules=[DebuggerRule("Loss", RULES_IMAGE, {"a": PLACE})]),
        "resume_from": PLACE,
    }
    stack.workflow("Training", **given)
    machines = stack.machines()
    assert lint(machines) == []


def test_a_task_of_its_own_takes_what_tells_its_jobs_apart_from_the_input() -> None:
    task = TrainingTask(
        STACK, "ByPlace", job=DataParallelJob(GROUP), image=STACK.image, output=STACK.place("models/"), unique_by=PLACE
    )
    state = task.to_state_json(sfn.QueryLanguage.JSON_PATH)
    assert "$.place" in state["Parameters"]["TrainingJobName.$"]


def test_a_workflow_resumes_the_execution_that_its_input_names() -> None:
    stack = Stack()
    stack.workflow(checkpoints=stack.place("checkpoints/"), resume_from=PLACE)
    assert "$.place" in json.dumps(stack.machines())
