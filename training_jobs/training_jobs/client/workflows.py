"""A deployed TrainingWorkflow: its definition, its executions, and its start."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from training_jobs.client.errors import TrainingError
from training_jobs.client.executions import Execution
from training_jobs.client.planned_request import planned_request, value_at

if TYPE_CHECKING:
    from training_jobs.client.account import Account

_INPUT_PATH = re.compile(r"\$(\.[A-Za-z_][\w-]*)+")
_OWN = "$.Training"  # what the workflow itself keeps beside the input


class Workflow:
    """A state machine that runs a training job each time it is started.

    Attributes:
        path: Its construct path, such as ``"Digits/Training"``.
        stack: The name of its CloudFormation stack; empty outside of one.
        arn: The state machine's ARN.
    """

    def __init__(self, account: Account, arn: str, *, path: str, stack: str = "") -> None:
        """Refer to a state machine; nothing is called yet.

        Args:
            account: The account.
            arn: The state machine's ARN.
            path: Its construct path.
            stack: The name of its stack.
        """
        self.arn = arn
        self.path = path
        self.stack = stack
        self._account = account
        self._definition: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Workflow({self.path!r})"

    def definition(self) -> dict[str, Any]:
        """Return its definition, in the Amazon States Language."""
        if self._definition is None:
            described = self._account.client("stepfunctions").describe_state_machine(stateMachineArn=self.arn)
            self._definition = dict(json.loads(described["definition"]))
        return self._definition

    def requests(self, *, alternatives: bool = True) -> list[dict[str, Any]]:
        """Return the Parameters of its calls of CreateTrainingJob; what an execution decides has keys that end in ``.$``.

        Args:
            alternatives: Whether to include those of jobs that run only where AWS has no capacity for the first.
        """
        return [
            state["Parameters"]
            for name, state in self.definition()["States"].items()
            if "createTrainingJob" in str(state.get("Resource", ""))
            and (alternatives or not name.startswith("CreateAlternative"))
        ]

    def first_values(self) -> dict[str, Any]:
        """Return the workflow's own data with which the first attempt begins, as far as the definition has them."""
        first = self.definition()["States"].get("FirstAttempt", {}).get("Parameters", {})
        return {name: value for name, value in first.items() if not name.endswith(".$")}

    def input_defaults(self) -> dict[str, Any]:
        """Return what an execution's input has where it is not given: the defaults of the workflow's ``input_fields``."""
        state = self.definition()["States"].get("Defaults", {})
        return dict(state.get("Parameters", {}).get("Defaults", {}))

    def input_paths(self) -> list[str]:
        """Return what its requests take of an execution's input, such as ``["epochs"]``, sorted."""
        found: set[str] = set()
        for text in _expressions(self.requests()):
            # `$$.` is the context object, of the execution itself.
            found |= {it.group() for it in _INPUT_PATH.finditer(text.replace("$$.", "")) if not _of_own(it.group())}
        return sorted(path.removeprefix("$.") for path in found)

    def reads(self, path: str) -> bool:
        """Return whether its definition contains a path into a member of an execution's input.

        Args:
            path: Of the member, such as ``"epochs"``; its first name counts.
        """
        first = re.escape(path.split(".")[0])
        return re.search(rf"\.{first}\b|\['{first}'\]", json.dumps(self.definition())) is not None

    def resume_path(self) -> str | None:
        """Return the member of the input that is ``resume_from``, such as ``"resume_from"``; None where there is none."""
        for request in self.requests():
            uri = str(request.get("CheckpointConfig", {}).get("S3Uri.$", "")).replace("$$.", "")
            for found in _INPUT_PATH.finditer(uri):
                if not _of_own(found.group()):
                    return found.group().removeprefix("$.")
        return None

    def _text_paths(self) -> set[str]:
        """What its hyperparameters and environments take of the input as it is, and the fields that are declared as text."""
        maps = [request.get(key, {}) for request in self.requests() for key in ("HyperParameters", "Environment")]
        whole = {text for one in maps if isinstance(one, dict) for text in _expressions(one)}
        rules = list(_conditions(self.definition()["States"].get("CheckInput", {})))
        declared = {str(one["Variable"]) for one in rules if "IsString" in one or "StringEquals" in one}
        return {text.removeprefix("$.") for text in {*whole, *declared} if _INPUT_PATH.fullmatch(text)}

    def prepare(self, input: Mapping[str, Any] | None = None, name: str | None = None) -> tuple[str, dict[str, Any]]:
        """Return the name and the input with which ``start`` would start an execution.

        Where the workflow has ``resume_from`` and the input has not, it is the execution's own name: its own checkpoints. Numbers
        become text where the request has them as hyperparameters or in the environment, whose values are text, and where a field
        of the input is declared as text.

        Args:
            input: The execution's input.
            name: The execution's name.

        Raises:
            TrainingError: The input lacks what the request takes of it.
        """
        if name is not None:
            check_name(name)
        chosen = name or uuid.uuid4().hex[:12]
        complete = copy.deepcopy(dict(input or {}))
        resume = self.resume_path()
        if resume is not None and value_at(complete, resume) is None:
            set_at(complete, resume, chosen)
        for path in self._text_paths():
            value = value_at(complete, path)
            if isinstance(value, bool | int | float):
                set_at(complete, path, json.dumps(value))
        given = {**self.input_defaults(), **complete}
        missing = [path for path in self.input_paths() if value_at(given, path) is None]
        if missing:
            raise TrainingError(
                f"{self.path} takes {', '.join(missing)} of the input, like --set {missing[0]}=VALUE, got {sorted(input or {})}"
            )
        return chosen, complete

    def planned_requests(
        self, input: Mapping[str, Any] | None = None, *, name: str | None = None, alternatives: bool = True
    ) -> list[dict[str, Any]]:
        """Return the requests that the next start sends; what only the execution itself knows is in angle brackets.

        Args:
            input: The execution's input.
            name: The execution's name.
            alternatives: Whether to include those of jobs that run only where AWS has no capacity for the first.

        Raises:
            TrainingError: The input lacks what the request takes of it, or a job cannot have a tag with the name.
        """
        chosen, complete = self.prepare(input, name)
        known = {**self.input_defaults(), **complete, "Training": self.first_values()}
        return [planned_request(request, known, chosen) for request in self.requests(alternatives=alternatives)]

    def model_trainer(self, input: Mapping[str, Any] | None = None) -> Any:
        """Return the ``ModelTrainer`` of SageMaker's SDK, version 3, whose ``train()`` starts the job of the next start.

        The job has no state machine that retries it, and not the tag of an execution. Needs the extra ``[sagemaker]``.

        Args:
            input: The execution's input.

        Raises:
            TrainingError: The SDK is not installed, the workflow runs several jobs, or ModelTrainer has no argument for a member.
        """
        from training_jobs.client.model_trainer import model_trainer

        requests = self.planned_requests(input, alternatives=False)
        if len(requests) != 1:
            raise TrainingError(f"a ModelTrainer starts one job, and {self.path} runs {len(requests)} in order")
        shape = self._account.client("sagemaker").meta.service_model.operation_model("CreateTrainingJob").input_shape
        return model_trainer(requests[0], shape, self._account.session, self.path.rpartition("/")[2].lower())

    def start(self, input: Mapping[str, Any] | None = None, *, name: str | None = None) -> Execution:
        """Start an execution.

        Args:
            input: Its input.
            name: Its name, unique among the workflow's executions of 90 days. Default: a random one.

        Returns:
            The execution.

        Raises:
            TrainingError: The input lacks what the request takes of it.
        """
        chosen, complete = self.prepare(input, name)
        states = self._account.client("stepfunctions")
        started = states.start_execution(stateMachineArn=self.arn, name=chosen, input=json.dumps(complete))
        return Execution(self._account, started["executionArn"])

    def executions(self) -> Iterator[Execution]:
        """Yield its executions, the newest first."""
        pages = (
            self._account.client("stepfunctions").get_paginator("list_executions").paginate(stateMachineArn=self.arn)
        )
        for page in pages:
            for it in page["executions"]:
                yield Execution(self._account, it["executionArn"])

    def latest(self) -> Execution | None:
        """Return its newest execution; None where it was never started."""
        return next(self.executions(), None)


def set_at(input: dict[str, Any], path: str, value: Any) -> None:
    """Set a member of an input.

    Args:
        input: The input, which is changed.
        path: Names with dots between them.
        value: The value.

    Raises:
        TrainingError: A name before the last is of something that is no object.
    """
    *parents, last = path.split(".")
    for name in parents:
        input = input.setdefault(name, {})
        if not isinstance(input, dict):
            raise TrainingError(f"{path} cannot be set: {name} is not an object")
    input[last] = value


def _conditions(value: Any) -> Iterator[Mapping[str, Any]]:
    """The conditions of a Choice that compare a variable, however deep."""
    if isinstance(value, Mapping):
        if "Variable" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _conditions(one)


def _expressions(value: Any) -> Iterator[str]:
    """The values of all keys that end in ``.$``."""
    if isinstance(value, list):
        for item in value:
            yield from _expressions(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key.endswith(".$"):
                yield str(item)
            else:
                yield from _expressions(item)


def _of_own(path: str) -> bool:
    return path == _OWN or path.startswith(f"{_OWN}.")


def check_name(name: str) -> None:
    """Check that jobs can have an execution's ARN as a tag (TagValue of SageMaker's service model; StartExecution, ``name``).

    Args:
        name: The execution's name.

    Raises:
        TrainingError: It has characters that tags or executions do not take.
    """
    if not re.fullmatch(r"[\w.=+\-@]{1,80}", name):
        raise TrainingError(
            f"name must be 1 to 80 letters, digits and '_.=+-@', which tags of jobs take, like 'monday-2', got {name!r}"
        )
