"""Invokes what rules and schedules name as their target: state machines, functions, topics, queues and log groups."""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable

from moto.awslambda.models import lambda_backends
from moto.logs.models import logs_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.iam.policies import Call

_log = logging.getLogger(__name__)

#: Raises unless a call is allowed to whoever invokes a target.
Permit = Callable[[Call], None]

# The action that a target is invoked by, by the service of its ARN.
_ACTIONS = {
    "lambda": "lambda:InvokeFunction",
    "logs": "logs:PutLogEvents",
    "sns": "sns:Publish",
    "sqs": "sqs:SendMessage",
    "states": "states:StartExecution",
}


class Deliveries:
    """A thread that delivers events one after the other, so that what a rule does never holds up who put the event."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def add(self, deliver: Callable[[], None]) -> None:
        """Delivers after what was added before."""
        self._queue.put(deliver)

    def close(self) -> None:
        """Ends the thread after the current delivery."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (deliver := self._queue.get()) is not None:
            try:
                deliver()
            except Exception:
                _log.exception("an event was not delivered")


def is_target(arn: str) -> bool:
    """Whether the account can invoke an ARN."""
    service = service_of(arn)
    return service in _ACTIONS and (service != "states" or ":stateMachine:" in arn)


def service_of(arn: str) -> str:
    """Returns the service of an ARN; "" for what is none."""
    return f"{arn}:::".split(":")[2]


def action_of(arn: str) -> str:
    """The action that a target is invoked by."""
    return _ACTIONS[service_of(arn)]


def invoke(arn: str, text: str, permit: Permit, group_id: str | None = None, subject: str | None = None) -> None:
    """Invokes a target.

    Args:
        arn: the target.
        text: its input, JSON for state machines and functions.
        permit: checks the permission.
        group_id: the message group, for FIFO queues.
        subject: that of a topic's message.
    """
    _, _, service, region, account, *_, name = arn.split(":")
    permit(Call(action_of(arn), arn))
    if service == "states":
        execution = stepfunctions_parser_backends[account][region].start_execution(arn, execution_input=text)
        _log.info("%s started by an event", execution.execution_arn)
    elif service == "lambda":
        function = lambda_backends[account][region].get_function(arn)
        try:
            function.invoke(text, {"X-Amz-Invocation-Type": "Event"}, {})
        except Exception as error:
            log_failure(_log, error, "%s not invoked", function.function_arn)
    elif service == "sns":
        sns_backends[account][region].publish(text, arn, subject=subject)
    elif service == "sqs":
        sqs_backends[account][region].send_message(queue_name=name, message_body=text, group_id=group_id)
    else:
        group, stream = arn.split(":log-group:")[1].removesuffix(":*"), str(uuid.uuid4())
        logs = logs_backends[account][region]
        logs.create_log_stream(group, stream)
        logs.put_log_events(group, stream, [{"timestamp": round(time.time() * 1000), "message": text}])
