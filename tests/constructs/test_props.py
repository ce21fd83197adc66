"""A prop is declared in one place: one more shows in the checks, in the request, in what `.sync` takes and in the reference."""

from __future__ import annotations

import ast
import inspect
import itertools
from typing import Annotated, Any

import pytest
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from member_cases import Stack
from rendered import create_requests
from stacks import reads

from cdk_sagemaker_training import TrainingProps
from cdk_sagemaker_training.docs_generator import page
from cdk_sagemaker_training.facts.service_model import shapes
from cdk_sagemaker_training.props.prop import Known, Member, Prop
from cdk_sagemaker_training.request import access, container, data, machine


def check_share(share: int, context: Any) -> None:
    machines = context.job_request.resource_config["InstanceCount"]
    if share > machines:
        raise ValueError(f"queue_share must be at most the job's machines ... got {share}")


class WithQueue(TrainingProps, total=False):
    """The props of a job, and one of a member that SageMaker does not have."""

    queue_share: Annotated[
        int | None,
        Prop(
            Member("QueueConfig.Share", docs="`queue_share`, of all machines"),
            check=check_share,
            known=Known("deployment", "since queues are made with it"),
            example="1",
        ),
    ]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """One prop more, and a service model that has its member."""
    model = dict(shapes())
    request = model["CreateTrainingJobRequest"]
    members = {**request["members"], "QueueConfig": {"shape": "QueueConfig"}}
    model["CreateTrainingJobRequest"] = {**request, "members": members}
    model["QueueConfig"] = {"type": "structure", "members": {"Share": {"shape": "Share"}}}
    model["Share"] = {"type": "integer", "min": 1}
    monkeypatch.setattr("cdk_sagemaker_training.request.props.TrainingProps", WithQueue)
    for module in ("facts.service_model", "docs_generator"):
        monkeypatch.setattr(f"cdk_sagemaker_training.{module}.shapes", lambda: model)


def refusal_of(**props: Any) -> str:
    with pytest.raises(ValueError) as raised:
        Stack().workflow("Training", **{"profiler": None, **props})
    return str(raised.value)


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("share", "refusal"),
    [
        ("all", "queue_share must be a whole number ... got 'all'"),
        (3, "queue_share must be at most the job's machines ... got 3"),
        (0, "queue_share (QueueConfig.Share) must be at least 1 ... got 0"),
        (
            sfn.JsonPath.number_at("$.share"),
            "queue_share must be known when the app is deployed, since queues are made with it ... got a place "
            "in the execution's input",
        ),
    ],
    ids=["type", "rule", "service model", "known later"],
)
def test_a_declared_prop_is_checked_by_its_type_its_rule_the_service_model_and_when_it_is_known(
    share: Any, refusal: str
) -> None:
    assert reads(refusal_of(queue_share=share), refusal)


@pytest.mark.usefixtures("queue")
def test_a_declared_prop_is_a_member_of_the_request() -> None:
    stack = Stack()
    stack.workflow("With", queue_share=2)
    stack.workflow("Without")
    requests = create_requests(dict(Template.from_stack(stack).to_json()))
    configs = {name.split("StateMachine")[0]: request.get("QueueConfig") for name, request in requests.items()}
    assert configs == {"With": {"Share": 2}, "Without": None}


@pytest.mark.usefixtures("queue")
def test_a_declared_prop_is_what_sync_takes_only_if_it_says_so() -> None:
    stack = Stack()
    assert stack.workflow("Without", profiler=None).integration == "sync"
    assert stack.workflow("With", profiler=None, queue_share=2).integration == "poll"
    assert refusal_of(queue_share=2, integration="sync").startswith(
        "queue_share must be what `sagemaker:createTrainingJob.sync` is known to take"
    )


@pytest.mark.usefixtures("queue")
def test_a_declared_prop_is_in_the_reference() -> None:
    rows = page().splitlines()
    assert "| `QueueConfig.Share` | `queue_share`, of all machines |  |  |" in rows
    assert "| `queue_share` | deployment | queues are made with it |" in rows


def test_a_prop_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="TrainingWorkflow got an unexpected keyword argument 'queue_share'"):
        Stack().workflow("Training", queue_share=2)


def test_an_editor_has_documentation_of_each_prop() -> None:
    documented = set()
    for module in (access, container, data, machine):
        for props in ast.parse(inspect.getsource(module)).body:
            body = props.body if isinstance(props, ast.ClassDef) else []
            for field, text in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    documented.add(ast.unparse(field.target))
    assert documented == {*TrainingProps.__annotations__}
