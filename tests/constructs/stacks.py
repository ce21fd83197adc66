"""A user's stack with what a training job needs, and what its template says once the workflows and tasks are in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match, Template
from rendered import create_requests, definitions, resolved

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingCode,
    TrainingImage,
    TrainingTask,
    TrainingWorkflow,
)

GUARD = "SageMakerTrainingJobsGuard"
ENVIRONMENT = cdk.Environment(account="123456789012", region="us-east-1")
ON_ONE_GPU = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
CODE = TrainingCode(str(Path(__file__).parent / "any_script"))
IMAGE_URI = "123456789012.dkr.ecr.us-east-1.amazonaws.com/images:1"


class UserStack(cdk.Stack):
    """A stack named ``Stack`` in an app of its own, with a bucket and an image that exist already.

    Nothing is synthesized before the template or the warnings are read, which once they are do not change.

    Args:
        region: None for a stack that names neither region nor account.
        context: What the CLI has looked up.
    """

    def __init__(self, region: str | None = "us-east-1", context: Mapping[str, Any] | None = None) -> None:
        env = None if region is None else cdk.Environment(account="123456789012", region=region)
        super().__init__(cdk.App(analytics_reporting=False, context=context), "Stack", env=env)
        self.bucket = s3.Bucket.from_bucket_name(self, "Bucket", "bucket")
        self.image = self.image_from("images")

    def image_from(self, repository: str, *, base: str | None = None) -> TrainingImage:
        """The image tagged 1 of an existing repository, which says that it is built from ``base``."""
        existing = ecr.Repository.from_repository_name(self, f"{repository}{base or ''}Repository", repository)
        return TrainingImage.from_ecr_repository(self, f"{repository}{base or ''}Image", existing, "1", base=base)

    def place(self, prefix: str = "", **props: Any) -> S3Prefix:
        return S3Prefix(self.bucket, prefix, **props)

    def workflow(self, id: str = "Training", **props: Any) -> TrainingWorkflow:
        """A workflow of a job on one GPU, unless ``props`` say otherwise."""
        return TrainingWorkflow(self, id, **self._complete(props))

    def task(self, id: str = "Train", **props: Any) -> TrainingTask:
        """A task state of a job on one GPU, unless ``props`` say otherwise; in the template by ``machine_of`` it."""
        return TrainingTask(self, id, **self._complete(props))

    def machine_of(self, chain: sfn.IChainable, **props: Any) -> sfn.StateMachine:
        """A state machine of the user's own, named ``Machine``."""
        return sfn.StateMachine(self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(chain), **props)

    def _complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Props with the least that a job needs, code among it where one of AWS's containers has no other."""
        props = {"job": ON_ONE_GPU, "image": self.image, "output": self.place("models/"), **given}
        own = {"container_entrypoint"} & props.keys() or not getattr(props["image"], "is_container", False)
        return props if own else {"code": CODE, **props}

    def template(self) -> dict[str, Any]:
        return dict(Template.from_stack(self).to_json())

    def again(self) -> dict[str, Any]:
        """The template once more was added since it was read."""
        app = cdk.App.of(self)
        assert isinstance(app, cdk.App)
        return dict(app.synth(force=True).get_stack_artifact(self.artifact_id).template)

    def machines(self) -> dict[str, dict[str, Any]]:
        """The definitions of the state machines by logical id."""
        return definitions(self.template())

    def request(self) -> dict[str, Any]:
        """The request of the one job that the stack's state machines create."""
        [request] = create_requests(self.template()).values()
        return dict(request)

    def statements(self, role: str | None = "TrainingRole") -> list[dict[str, Any]]:
        """What a role may do, by its logical id without the hash; of all roles where it is None."""
        return statements_of(self.template(), role)

    def warnings(self, id: str = "") -> list[str]:
        """The texts of the warnings of this library, or of those with an id."""
        named = Match.string_like_regexp(rf"cdk-sagemaker-training:{id or '.*'}\]$")
        return [str(one.entry.data) for one in Annotations.from_stack(self).find_warning("*", named)]

    def warned(self) -> list[str]:
        """The ids of the warnings of this library."""
        return [text.rsplit("cdk-sagemaker-training:", 1)[1].rstrip("]") for text in self.warnings()]


class RenderedWorkflow:
    """The workflow ``Training`` alone in its stack, as the template has it with its tokens resolved."""

    def __init__(self, stack: UserStack | None = None, **props: Any) -> None:
        self.stack = stack or UserStack()
        self.workflow = self.stack.workflow(**props)
        self.template = self.stack.template()
        self.machines = definitions(self.template)
        [self.definition] = [value for value in self.machines.values() if "FirstAttempt" in value["States"]]
        [self.stopper] = [value for value in self.machines.values() if "WaitForLateJobs" in value["States"]]
        self.pollers = {
            name: value for name, value in self.machines.items() if value["Comment"] == "Polls a training job"
        }
        self.states = self.definition["States"]
        self.request = self.states["Create"]["Parameters"]

    def logical_id(self, definition: Mapping[str, Any]) -> str:
        """That of the state machine with a definition."""
        [found] = [name for name, value in self.machines.items() if value is definition]
        return found

    def statements(self, role: str) -> list[dict[str, Any]]:
        return statements_of(self.template, role)

    def of_guard(self, kind: str, id: str = "") -> list[dict[str, Any]]:
        """The properties of those of a type of the guard, whose ids begin so."""
        resources = self.template["Resources"].items()
        return [one["Properties"] for name, one in resources if one["Type"] == kind and name.startswith(f"{GUARD}{id}")]

    def resources_of(self, kind: str) -> list[dict[str, Any]]:
        """The properties of those of a type that are the workflow's own, or of all stacks' but for the guard's."""
        resources = self.template["Resources"].items()
        return [one["Properties"] for id, one in resources if one["Type"] == kind and not id.startswith(GUARD)]


def statements_of(template: Mapping[str, Any], role: str | None) -> list[dict[str, Any]]:
    """The statements of all policies of a role, by its logical id without the hash; of all roles where it is None."""

    def wanted(id: str) -> bool:
        return role is None or id.rstrip("0123456789ABCDEF") == role

    documents = [
        document for id, resource in template["Resources"].items() for document in _documents(id, resource, wanted)
    ]
    return [resolved(statement) for document in documents for statement in document["Statement"]]


def _documents(id: str, resource: Mapping[str, Any], wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
    properties = resource.get("Properties", {})
    if resource["Type"] == "AWS::IAM::Policy" and wanted(properties["Roles"][0]["Ref"]):
        return [properties["PolicyDocument"]]
    if resource["Type"] == "AWS::IAM::Role" and wanted(id):
        return [one["PolicyDocument"] for one in properties.get("Policies", [])]
    return []


def reads(message: str, text: str) -> bool:
    """Whether a message is a text, in which `` ... `` stands for any part of it, such as an error's example."""
    return re.fullmatch(".*".join(map(re.escape, text.split(" ... "))), message, re.DOTALL) is not None


def message_of(make: Callable[[], Any]) -> str:
    """What the ``ValueError`` says that ``make`` raises."""
    with pytest.raises(ValueError) as raised:
        make()
    return str(raised.value)
