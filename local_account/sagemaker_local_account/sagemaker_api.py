"""SageMaker's API as the account serves it: the operations of training jobs, in AWS's JSON 1.1 protocol.

moto answers CreateTrainingJob too, but runs nothing and calls every job Completed at once. So every request whose
target is SageMaker comes here, and an operation that is not served is refused by name, never passed on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from .faults import Faults, Throttling
from .json_api import JsonApi
from .service_errors import ServiceError
from .training_jobs import TrainingJobs

TARGET_PREFIX = "SageMaker."

# Calls a second of an account, by operation: the quotas that are known and cannot be raised (aws-solutions/deepracer-on-aws 87).
RATES = {"ListTrainingJobs": 2}


class Rate:
    """A token bucket: as many calls at once as in a second, and that many more each second."""

    def __init__(self, a_second: float) -> None:
        self._a_second = self._tokens = a_second
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._a_second, self._tokens + (now - self._since) * self._a_second)
            self._since = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


def sagemaker_api(jobs: TrainingJobs, faults: Faults) -> JsonApi:
    """A WSGI application for requests whose `X-Amz-Target` is `SageMaker.<Operation>`."""

    rates = {operation: Rate(a_second) for operation, a_second in RATES.items()}

    def throttle(operation: str) -> None:
        rate = rates.get(operation)
        if faults.take_one(Throttling, operation=operation) or (rate is not None and not rate.take()):
            raise ServiceError("ThrottlingException", "Rate exceeded", 400)

    return JsonApi(
        "SageMaker",
        {
            "CreateTrainingJob": lambda request: jobs.create(request),
            "DescribeTrainingJob": lambda request: jobs.describe(_required(request, "TrainingJobName")),
            "ListTrainingJobs": jobs.list,
            "StopTrainingJob": lambda request: jobs.stop(_required(request, "TrainingJobName")),
            "AddTags": lambda request: jobs.add_tags(_required(request, "ResourceArn"), _required(request, "Tags")),
            "ListTags": lambda request: jobs.list_tags(_required(request, "ResourceArn")),
            "DeleteTags": lambda request: jobs.delete_tags(
                _required(request, "ResourceArn"), _required(request, "TagKeys")
            ),
        },
        before=throttle,
    )


def _required(request: dict[str, Any], member: str) -> Any:
    if request.get(member) is None:
        raise ServiceError(
            "ValidationException",
            f"1 validation error detected: Value null at '{member[0].lower()}{member[1:]}' failed to satisfy "
            "constraint: Member must not be null",
            400,
        )
    return request[member]
