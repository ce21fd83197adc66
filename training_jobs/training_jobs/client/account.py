"""An account: AWS's, of the environment's credentials, or the local one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from training_jobs.client.errors import NO_REGION, AmbiguousNameError, NotFoundError, TrainingError
from training_jobs.client.executions import Execution
from training_jobs.client.jobs import Job
from training_jobs.client.workflows import Workflow

if TYPE_CHECKING:
    import boto3

_COMMENT = "Runs a training job"  # of a TrainingWorkflow's definition
# The name of a TrainingWorkflow's state machine: the stack's, the construct's, and after each a hash.
_NAME = re.compile(r".+-[0-9a-f]{8}-.+-[0-9a-f]{8}")
# CDK's logical id of a construct StateMachine.
_LOGICAL_ID = re.compile(r"StateMachine[0-9A-F]{8}")
_STATE_MACHINE = "/StateMachine/Resource"
_PATH = "aws:cdk:path"
_ATTEMPTS = 8  # of a call that is throttled; boto3's own 3 are too few for lists of jobs, which have a low rate


@dataclass(frozen=True)
class JobSummary:
    """A job in a list.

    Attributes:
        name: Its name.
        status: Such as ``"InProgress"``.
        created: When it was created.
        ended: When it was over; None before.
    """

    name: str
    status: str
    created: datetime
    ended: datetime | None


class Account:
    """Workflows, executions and jobs of one account in one region.

    Attributes:
        region: The region.
        session: boto3's session.
    """

    def __init__(self, session: boto3.Session | None = None, *, region: str | None = None) -> None:
        """Use a session; nothing is called yet.

        Args:
            session: boto3's session. Default: one of the environment's credentials, profile and endpoint.
            region: The region. Default: the session's, or AWS_REGION, which boto3 does not read.

        Raises:
            TrainingError: No region is set.
        """
        # Imported here, since boto3 takes longer to import than all else together.
        import boto3

        self.session = session or boto3.Session()
        chosen = region or self.session.region_name or os.environ.get("AWS_REGION")
        if chosen is None:
            raise TrainingError(NO_REGION)
        if session is None and self.session.region_name is None:
            self.session = boto3.Session(region_name=chosen)
        self.region = chosen
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return boto3's client of a service; calls that are throttled are repeated.

        Args:
            service: Such as ``"sagemaker"``.
        """
        from botocore.config import Config

        if service not in self._clients:
            attempts = int(os.environ.get("AWS_MAX_ATTEMPTS", _ATTEMPTS))
            config = Config(
                retries={"mode": "standard", "total_max_attempts": attempts}, user_agent_appid="training-jobs"
            )
            self._clients[service] = self.session.client(service, region_name=self.region, config=config)
        return self._clients[service]

    def workflows(self) -> list[Workflow]:
        """Return the workflows that are deployed, by their construct paths."""
        return sorted(self._workflows(), key=lambda it: it.path)

    def workflow(self, name: str | None = None, among: list[Workflow] | None = None) -> Workflow:
        """Return one workflow.

        Args:
            name: Its construct path, such as ``"Digits/Training"``, or the end of it, such as ``"Training"``, or its stack's
                name, or its state machine's ARN. Default: the only one that there is.
            among: The workflows, where they are known. Default: those that are deployed.

        Raises:
            NotFoundError: There is none.
            AmbiguousNameError: There are several.
        """
        if name is not None and name.startswith("arn:"):
            return Workflow(self, name, path=name.rpartition(":")[2])
        found = self.workflows() if among is None else among
        exact = [it for it in found if name in (None, it.path)]
        matching = exact or [it for it in found if it.stack == name or it.path.endswith(f"/{name}")]
        if len(matching) == 1:
            return matching[0]
        if not found:
            raise NotFoundError(
                f"no TrainingWorkflow is deployed in {self.region}; deploy a stack with one: `training-jobs local up` into "
                "this folder's local account, `cdk deploy` on AWS"
            )
        paths = ", ".join(it.path for it in matching or found)
        if matching:
            raise AmbiguousNameError(f"several workflows in {self.region}; name one of {paths}")
        raise NotFoundError(f"no workflow {name!r} in {self.region}; name one of {paths}")

    def execution(self, arn: str) -> Execution:
        """Return an execution.

        Args:
            arn: Its ARN.
        """
        return Execution(self, arn)

    def job(self, name: str) -> Job:
        """Return a job.

        Args:
            name: Its name.
        """
        return Job(self, name)

    def jobs(
        self, *, name_contains: str | None = None, status: str | None = None, limit: int | None = None
    ) -> Iterator[JobSummary]:
        """Yield jobs, the newest first.

        Args:
            name_contains: Only jobs with this in their names.
            status: Only jobs of this status, such as ``"InProgress"``.
            limit: At most so many.
        """
        filters = {"NameContains": name_contains, "StatusEquals": status}
        pages = (
            self.client("sagemaker")
            .get_paginator("list_training_jobs")
            .paginate(
                SortBy="CreationTime",
                SortOrder="Descending",
                PaginationConfig={"MaxItems": limit, "PageSize": 100},
                **{key: value for key, value in filters.items() if value is not None},
            )
        )
        for page in pages:
            for it in page["TrainingJobSummaries"]:
                yield JobSummary(
                    it["TrainingJobName"], it["TrainingJobStatus"], it["CreationTime"], it.get("TrainingEndTime")
                )

    def _workflows(self) -> Iterator[Workflow]:
        states = self.client("stepfunctions")
        templates: dict[str, dict[str, Any]] = {}
        pages = states.get_paginator("list_state_machines").paginate()
        for machine in (machine for page in pages for machine in page["stateMachines"]):
            if not _NAME.fullmatch(machine["name"]):
                continue
            arn = machine["stateMachineArn"]
            # CloudFormation sets these tags on every resource of a stack (CloudFormation guide, "Resource tag").
            tags = {it["key"]: it["value"] for it in states.list_tags_for_resource(resourceArn=arn)["tags"]}
            stack, logical_id = tags.get("aws:cloudformation:stack-name"), tags.get("aws:cloudformation:logical-id")
            if stack is None or logical_id is None:
                continue
            if stack not in templates:
                templates[stack] = self._resources(stack)
            resource = templates[stack].get(logical_id, {})
            if _COMMENT in str(resource.get("Properties", {}).get("DefinitionString")):
                path = resource.get("Metadata", {}).get(_PATH, "").removesuffix(_STATE_MACHINE)
                # A template that was synthesized without the CDK CLI has no paths.
                yield Workflow(self, arn, path=path or f"{stack}/{_LOGICAL_ID.split(logical_id)[0]}", stack=stack)

    def _resources(self, stack: str) -> dict[str, Any]:
        """The resources of a stack's template, which boto3 returns parsed if it is JSON, as CDK's is."""
        template = self.client("cloudformation").get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
        return dict(template.get("Resources", {})) if isinstance(template, dict) else {}
