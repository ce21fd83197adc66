"""A plugin of pytest: tests that deploy a CDK stack to a local account and run its state machines.

    pytest --local-account

    def test_the_model_is_trained(deployed_stack, run_workflow):
        outputs = deployed_stack(TrainingStack(App(), "Training"))
        execution = run_workflow(outputs["StateMachineArn"])
        assert execution.jobs[0]["TrainingJobStatus"] == "Completed"

Without ``--local-account`` these tests are skipped, so that `pytest` stays as fast as it was. What the fixtures need is imported
when they are used: pytest loads this module wherever the package is installed.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from sagemaker_local_account.account import LocalAccount

_FIRST_POLL, _LONGEST_POLL = 0.2, 5.0  # seconds between two polls, which grow as executions take longer
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_LOG_LINES = 20  # in a failure's message


class Stack(Protocol):
    """A stack of aws_cdk, of which this package needs no more."""

    @property
    def stack_name(self) -> str:
        """The name."""

    @property
    def node(self) -> Any:
        """The construct's node, whose root is the app."""


@dataclass(frozen=True)
class Execution:
    """An execution that succeeded.

    Attributes:
        arn: The execution's ARN.
        output: Its output, decoded.
        jobs: The descriptions of the training jobs that it started, as DescribeTrainingJob returns them.
    """

    arn: str
    output: Any
    jobs: list[dict[str, Any]]


class AccountUnderTest:
    """A running local account, bootstrapped for the CDK, in which every call needs the permissions of its caller.

    Attributes:
        account: The account.
    """

    def __init__(self, account: LocalAccount) -> None:
        self.account = account

    def client(self, service: str) -> Any:
        """Returns a boto3 client of a service, with the permissions of the account's root."""
        import boto3

        environment = self.account.environment()
        return boto3.client(
            service,
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )

    def cdk(self, *arguments: str) -> None:
        """Runs the CDK CLI.

        Raises:
            AssertionError: It failed; with its output.
        """
        environment = self.account.environment()
        try:
            done = subprocess.run(
                ["cdk", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except FileNotFoundError:
            raise AssertionError("the CDK CLI is not on the PATH; install it, like: npm install aws-cdk") from None
        if done.returncode:
            raise AssertionError(f"cdk {arguments[0]} failed with exit code {done.returncode}:\n{done.stdout}")

    def deploy(self, stack: Stack) -> dict[str, str]:
        """Deploys a stack, with those that it depends on.

        Args:
            stack: A stack of aws_cdk, in an app.

        Returns:
            The stack's outputs by name.

        Raises:
            AssertionError: The deployment failed; with the CLI's output.
        """
        assembly = stack.node.root.synth().directory
        self.cdk("deploy", "--app", assembly, stack.node.path, "--require-approval", "never")
        [described] = self.client("cloudformation").describe_stacks(StackName=stack.stack_name)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}

    def run(self, state_machine_arn: str, execution_input: Mapping[str, Any] | None = None) -> Execution:
        """Starts an execution and waits for its end.

        Args:
            state_machine_arn: The ARN of a state machine, such as a TrainingWorkflow's.
            execution_input: The execution's input; empty by default.

        Raises:
            AssertionError: The execution did not succeed; with its cause, and the last lines of its jobs' logs.
        """
        states = self.client("stepfunctions")
        arn = states.start_execution(stateMachineArn=state_machine_arn, input=json.dumps(execution_input or {}))[
            "executionArn"
        ]
        poll = _FIRST_POLL
        while (described := states.describe_execution(executionArn=arn))["status"] == "RUNNING":
            time.sleep(poll)
            poll = min(_LONGEST_POLL, poll * 1.1)
        jobs = self._jobs_of(arn)
        if described["status"] != "SUCCEEDED":
            logs = "\n".join(line for job in jobs for line in self.log_lines(job["TrainingJobName"])[-_LOG_LINES:])
            raise AssertionError(f"{arn}: {described['status']}: {described.get('cause')}\n{logs}")
        return Execution(arn, json.loads(described["output"]), jobs)

    def log_lines(self, job_name: str) -> list[str]:
        """Returns the lines of the logs of a job's hosts, by time."""
        logs = self.client("logs")
        try:
            pages = logs.get_paginator("filter_log_events").paginate(
                logGroupName=_LOG_GROUP, logStreamNamePrefix=f"{job_name}/"
            )
            return [event["message"] for page in pages for event in page["events"]]
        except logs.exceptions.ResourceNotFoundException:
            return []

    def _jobs_of(self, execution_arn: str) -> list[dict[str, Any]]:
        sagemaker = self.client("sagemaker")
        found = []
        for page in sagemaker.get_paginator("list_training_jobs").paginate(SortBy="CreationTime"):
            for summary in page["TrainingJobSummaries"]:
                tags = sagemaker.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
                if execution_arn in {tag["Value"] for tag in tags}:
                    found.append(sagemaker.describe_training_job(TrainingJobName=summary["TrainingJobName"]))
        return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--local-account``."""
    parser.getgroup("local-account").addoption(
        "--local-account",
        action="store_true",
        help="run the tests that deploy to a local AWS account on this machine, which takes seconds for each job",
    )


@pytest.fixture(scope="session")
def local_account(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AccountUnderTest]:
    """A local account of the test session; an ``AccountUnderTest``."""
    if not request.config.getoption("--local-account"):
        pytest.skip("needs --local-account")
    from sagemaker_local_account.account import LocalAccount

    with LocalAccount(state=tmp_path_factory.mktemp("local-account"), enforce_iam=True) as account:
        under_test = AccountUnderTest(account)
        environment = account.environment()
        under_test.cdk("bootstrap", f"aws://{environment['CDK_DEFAULT_ACCOUNT']}/{environment['CDK_DEFAULT_REGION']}")
        yield under_test


@pytest.fixture(scope="session")
def deployed_stack(local_account: AccountUnderTest) -> Any:
    """A function that deploys a stack and returns its outputs by name: ``AccountUnderTest.deploy``."""
    return local_account.deploy


@pytest.fixture(scope="session")
def run_workflow(local_account: AccountUnderTest) -> Any:
    """A function that runs a state machine to its end and returns its ``Execution``: ``AccountUnderTest.run``."""
    return local_account.run
