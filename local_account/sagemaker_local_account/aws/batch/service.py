"""AWS Batch of one account: each region's queues and service jobs, their API and their resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local_account.aws.batch import resources
from sagemaker_local_account.aws.batch.api import batch_api
from sagemaker_local_account.aws.batch.queues import Queues
from sagemaker_local_account.aws.batch.service_jobs import ServiceJobs, Training
from sagemaker_local_account.core.location import Location


class Batch:
    """AWS Batch of one account.

    ``apis`` has the WSGI application of each region.

    Args:
        account: the account's id.
        training: SageMaker of each region.
    """

    def __init__(self, account: str, training: Mapping[str, Training]) -> None:
        queues = {region: Queues(Location(account, region)) for region in training}
        self._jobs = {
            region: ServiceJobs(Location(account, region), queues[region], sagemaker)
            for region, sagemaker in training.items()
        }
        resources.install({region: (queues[region], jobs) for region, jobs in self._jobs.items()})
        self.apis: dict[str, Any] = {region: batch_api(queues[region], jobs) for region, jobs in self._jobs.items()}

    def tags_of(self, region: str, id: str) -> dict[str, str]:
        """Returns the tags of a service job; none of one that does not exist."""
        return self._jobs[region].tags_of(id)

    def wake(self, region: str) -> None:
        """Looks at all jobs of a region once more, soon."""
        self._jobs[region].wake()

    def close(self) -> None:
        """Ends the threads; training jobs go on."""
        for jobs in self._jobs.values():
            jobs.close()
