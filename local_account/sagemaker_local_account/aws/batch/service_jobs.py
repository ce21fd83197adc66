"""The service jobs of a region: each waits in its queue, and becomes a training job of the account.

A thread starts jobs and takes over the status of their training jobs; it is woken by requests and by changes of training jobs.
It calls SageMaker without the lock, since a training job reports a change while it holds its own.
"""

from __future__ import annotations

import builtins
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from sagemaker_local_account.aws.batch.queues import Queues, client_error
from sagemaker_local_account.aws.batch.quota_shares import Share, decide
from sagemaker_local_account.aws.batch.scheduler import Use, first
from sagemaker_local_account.aws.batch.service_job import (
    ENDED,
    ServiceJob,
    check_submission,
    is_listed,
    is_tried_again,
    payload_of,
)
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_errors import ServiceError

# Batch retries a job for which there was no capacity ("Service job retry strategies"); after which time is not said.
CAPACITY_SECONDS = 60.0

_POLL_SECONDS = 0.2
_MOST_LISTED = 100
# "Mapping AWS Batch service job status to SageMaker AI status"; by SecondaryStatus, of a job that is in progress.
_STATUSES = {"Downloading": "STARTING", "Training": "RUNNING", "Uploading": "RUNNING", "Stopping": "RUNNING"}

_log = logging.getLogger(__name__)


class Training(Protocol):
    """SageMaker of the region."""

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateTrainingJob."""

    def describe(self, name: str) -> dict[str, Any]:
        """DescribeTrainingJob."""

    def stop(self, name: str) -> None:
        """StopTrainingJob."""


class ServiceJobs:
    """The service jobs of one region.

    Args:
        location: the account and region.
        queues: its queues.
        training: SageMaker of the region.
        in_background: whether a thread serves the queues, from the first job on; else who calls ``serve``.
    """

    def __init__(self, location: Location, queues: Queues, training: Training, *, in_background: bool = True) -> None:
        self._in_background = in_background
        self._arn = f"arn:aws:batch:{location.region}:{location.account}:service-job/"
        self._training_arn = f"arn:aws:sagemaker:{location.region}:{location.account}:training-job/"
        self._queues, self._training = queues, training
        self._lock = threading.Lock()
        self._jobs: dict[str, ServiceJob] = {}
        self._uses: list[tuple[str, Use]] = []
        self._wake, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="batch", daemon=True)

    def submit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """SubmitServiceJob."""
        queue = self._queues.queues.get(request["jobQueue"])
        shares = self._queues.quota_shares_of(queue["jobQueueArn"])
        enabled = {one["quotaShareName"] for one in shares if one["state"] == "ENABLED"}
        check_submission(request, self._queues.policy_of(queue), enabled)
        with self._lock:
            token = request.get("clientToken")
            if token and any(job.request.get("clientToken") == token for job in self._jobs.values()):
                # "these requests are considered the same request and the second request is rejected" (service model)
                raise client_error(f"a service job was submitted with the client token {token}")
            job = ServiceJob(request, payload_of(request), str(uuid.uuid4()), queue["jobQueueArn"], len(self._jobs))
            job.times["createdAt"] = _now()
            self._jobs[job.id] = job
            if self._in_background and not self._thread.is_alive():
                self._thread.start()
        self.wake()
        return {"jobArn": self._arn + job.id, "jobId": job.id, "jobName": request["jobName"]}

    def describe(self, id: str) -> dict[str, Any]:
        """DescribeServiceJob."""
        with self._lock:
            job = self._job(id)
            return job.description(self._arn + job.id)

    def tags_of(self, id: str) -> dict[str, str]:
        """Returns the tags of a job; none of one that does not exist."""
        with self._lock:
            job = self._jobs.get(id)
        return {} if job is None else dict(job.request.get("tags", {}))

    def list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """ListServiceJobs."""
        queue = self._queues.queues.get(request.get("jobQueue", ""))["jobQueueArn"]
        with self._lock:
            jobs = [job for job in self._jobs.values() if job.queue == queue and is_listed(job, request)]
            shown = [job.summary(self._arn + job.id) for job in sorted(jobs, key=lambda job: -job.order)]
        start = int(request.get("nextToken") or 0)
        end = start + min(request.get("maxResults") or _MOST_LISTED, _MOST_LISTED)
        return {"jobSummaryList": shown[start:end], **({"nextToken": str(end)} if end < len(shown) else {})}

    def terminate(self, id: str, reason: str) -> dict[str, Any]:
        """TerminateServiceJob; without effect on a job that has ended."""
        with self._lock:
            job = self._job(id)
            self._terminate(job, reason)
        self.wake()
        return {}

    def delete_queue(self, name: str) -> dict[str, Any]:
        """DeleteJobQueue: "All jobs in the queue are eventually terminated when you delete a job queue" (service model)."""
        for queue in self._queues.queues.describe([name]):
            with self._lock:
                for job in self._jobs.values():
                    if job.queue == queue["jobQueueArn"]:
                        self._terminate(job, "the job queue was deleted")
        self.wake()
        return self._queues.queues.delete(name)

    def update_quota_share(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """UpdateQuotaShare."""
        updated = self._queues.shares.update(request, "quotaShareArn")
        self.wake()
        return updated

    def wake(self) -> None:
        """Looks at all jobs once more, soon."""
        self._wake.set()

    def close(self) -> None:
        """Ends the thread; training jobs go on."""
        self._closed = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                timed = any(job.not_before or "timeoutConfig" in job.request for job in self._active())
            self._wake.wait(_POLL_SECONDS if timed else None)
            self._wake.clear()
            try:
                self.serve()
            except Exception:
                _log.exception("the queues were not served")

    def serve(self) -> None:
        """Takes over the status of training jobs, and starts the jobs for which there is capacity."""
        with self._lock:
            created = [job for job in self._active() if job.training_job]
        for job in created:
            described = self._training.describe(job.training_job)
            with self._lock:
                stop = self._take_over(job, described)
            if stop:
                self._stop(job.training_job)
        while True:
            with self._lock:
                started = self._start_next()
            if started is None:
                return
            self._create(started)

    def _create(self, job: ServiceJob) -> None:
        tags = [{"Key": key, "Value": value} for key, value in job.request.get("tags", {}).items()]
        request = {**job.payload, "TrainingJobName": job.training_job, **({"Tags": tags} if tags else {})}
        try:
            self._training.create(request)
        except ServiceError as error:
            with self._lock:
                job.attempts.pop()
                job.training_job = ""
                self._end(job, "FAILED", f"Received status from SageMaker: {error.code}: {error.message}")

    def _stop(self, name: str) -> None:
        try:
            self._training.stop(name)
        except ServiceError as error:  # it has ended, or is stopping
            _log.info("%s was not stopped: %s", name, error)

    def _start_next(self) -> ServiceJob | None:
        """The next job that fits into its queue's capacity, which is marked as scheduled; None for none."""
        now = CLOCK.monotonic()
        queues = sorted(self._queues.queues.describe(), key=lambda queue: -queue["priority"])
        for queue in queues:
            arn = queue["jobQueueArn"]
            waiting = [
                job
                for job in self._jobs.values()
                if job.queue == arn and job.status == "RUNNABLE" and not (job.training_job or job.not_before > now)
            ]
            quotas = self._queues.policy_of(queue) == "quota share"
            start = self._start_by_quotas if quotas else self._start_in_order
            if (started := start(queue, waiting, now)) is not None:
                return started
        return None

    def _start_in_order(
        self, queue: Mapping[str, Any], waiting: builtins.list[ServiceJob], now: float
    ) -> ServiceJob | None:
        arn = queue["jobQueueArn"]
        uses = [use for of, use in self._uses if of == arn]
        uses += [job.use for job in self._active() if job.queue == arn and job.use]
        chosen = first([job.waiting for job in waiting], uses, self._queues.fair_share(queue), now)
        if chosen is None:
            return None
        for environment, capacity in self._queues.capacity(queue).items():
            used = sum(job.machines for job in self._active() if job.use and job.environment == environment)
            if used + chosen.machines <= capacity:
                return self._schedule(self._jobs[chosen.id], environment, chosen.share, now)
        return None

    def _start_by_quotas(
        self, queue: Mapping[str, Any], waiting: builtins.list[ServiceJob], now: float
    ) -> ServiceJob | None:
        environment, capacity = self._queues.machines(queue)
        shares = {one["quotaShareName"]: Share.of(one) for one in self._queues.quota_shares_of(queue["jobQueueArn"])}
        held = [job for job in self._active() if job.use and job.environment == environment]
        running, free = [], Counter(capacity)
        for job in held:
            if job.preempting or job.of_share.share not in shares:
                free.subtract(job.machines_by_type)
            else:
                running.append(job.of_share)
        ready = [job.of_share for job in waiting if job.of_share.share in shares]
        decision = decide(ready, running, shares, free)
        if decision.start is not None:
            return self._schedule(self._jobs[decision.start.id], environment, decision.start.share, now)
        # Those that are being preempted leave room for the one that waits, once their training jobs have stopped.
        if not any(job.preempting for job in held):
            for one in decision.preempt:
                self._jobs[one.id].preempting = True
                self.wake()
        return None

    def _schedule(self, job: ServiceJob, environment: str, share: str, now: float) -> ServiceJob:
        job.training_job = f"AWSBatch{job.payload.get('TrainingJobName', '')}{uuid.uuid4().hex}"
        job.status, job.environment, job.not_before = "SCHEDULED", environment, 0.0
        job.tried += 1
        job.use = Use(share, job.machines, now)
        job.times["scheduledAt"] = _now()
        resource = {"name": "TrainingJobArn", "value": self._training_arn + job.training_job}
        job.attempts.append({"serviceResourceId": resource})
        return job

    def _take_over(self, job: ServiceJob, described: Mapping[str, Any]) -> bool:
        """Takes over the status of a training job; returns whether it is to be stopped."""
        status, message = described["TrainingJobStatus"], described["SecondaryStatusTransitions"][-1]["StatusMessage"]
        if status in ("InProgress", "Stopping"):
            job.status = _STATUSES.get(described["SecondaryStatus"], job.status)
            if job.status in ("STARTING", "RUNNING") and "startedAt" not in job.times:
                job.times["startedAt"] = job.attempts[-1]["startedAt"] = _now()
            return status == "InProgress" and (job.terminated or job.preempting or job.is_out_of_time)
        job.preempting = job.preempting and status == "Stopped"
        reason = described.get("FailureReason") or message
        self._end(job, "SUCCEEDED" if status == "Completed" else "FAILED", f"Received status from SageMaker: {reason}")
        return False

    def _end(self, job: ServiceJob, status: str, reason: str) -> None:
        """Ends an attempt, and the job unless it is tried again."""
        if job.use is not None:
            self._uses.append((job.queue, Use(job.use.share, job.use.machines, job.use.start, CLOCK.monotonic())))
            job.use = None
        if job.attempts and job.training_job:
            job.attempts[-1] |= {"stoppedAt": _now(), "statusReason": reason}
        job.training_job = ""
        if job.waits_again_after_preemption():
            return
        capacity = reason.startswith("Received status from SageMaker: CapacityError")
        again = status == "FAILED" and not job.terminated and (capacity or is_tried_again(job, reason))
        if again:
            job.tried -= capacity
            job.not_before = CLOCK.monotonic() + CAPACITY_SECONDS if capacity else 0.0
            job.status, job.reason = "RUNNABLE", reason
            return
        job.status, job.times["stoppedAt"] = status, _now()
        job.reason = job.reason if job.terminated else reason

    def _terminate(self, job: ServiceJob, reason: str) -> None:
        if job.status in ENDED:
            return
        job.terminated, job.reason = True, reason
        if not job.training_job:
            self._end(job, "FAILED", reason)

    def _active(self) -> builtins.list[ServiceJob]:
        return [job for job in self._jobs.values() if job.status not in ENDED]

    def _job(self, id: str) -> ServiceJob:
        job = self._jobs.get(id.removeprefix(self._arn))
        if job is None:
            raise client_error(f"service job {id} does not exist")
        return job


def _now() -> int:
    return round(CLOCK.now().timestamp() * 1000)
