"""Many executions against AWS's rates: a simulation of discrete events, from the state machine that a default workflow deploys.

    python benchmarks/many_jobs.py [--docs docs] [--most 10000] [--json]

The definition is the workflow's own, evaluated by `training_jobs.prove`; the rates are those of `local-account --rates`.
Executions start together, or at random times of a day; a call beyond the rate of CreateTrainingJob is throttled, as are other
calls beyond theirs. The last column is the same for a state with one retrier of Step Functions' defaults: 3 times after 1, 2 and
4 seconds.

``--docs`` writes the table of many-jobs.md. ``--most`` leaves out rows with more executions. It ends with 1 where an execution
failed of a row that has no more jobs than its rate allows. ``--json`` prints the figures as one object.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import statistics
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sagemaker_local_account.http.rates import Bucket, Rate, rates
from training_jobs.prove import values
from training_jobs.prove.evaluator import Answered, Call, Elapsed, Execution, Failed, Timer, start, step, wants

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- simulated by benchmarks/many_jobs.py -->\n", "<!-- simulated -->"
THROTTLED = "Rate exceeded (Service: SageMaker, Status Code: 400, Request ID: 05f50214-59f0)"
MISSING = "Requested resource not found. (Service: SageMaker, Status Code: 400, Request ID: 05f50214-59f0)"
REGION, DAY, ANSWER_SECONDS = "eu-central-1", 86_400, 0.1
# Executions, the seconds in which they start, and CreateTrainingJob's rate a second.
ROWS = (
    (20, 0, 1),
    (100, 0, 1),
    (1_000, 0, 1),
    (5_000, 0, 1),
    (100, DAY, 1),
    (1_000, DAY, 1),
    (10_000, DAY, 1),
    (100_000, DAY, 2),
)


@dataclass(frozen=True)
class Row:
    """What became of executions.

    Attributes:
        executions: How many.
        within: The seconds in which they start; 0 for together.
        rate: Of CreateTrainingJob, a second.
        failed: How many failed.
        failed_with_defaults: How many fail with one retrier of Step Functions' defaults.
        last: Seconds until the last job is created.
        median_wait: Seconds between an execution's start and its job's creation.
        longest_wait: The most of these.
        calls: Of CreateTrainingJob, by execution.
        most_calls: The most of one execution.
    """

    executions: int
    within: int
    rate: float
    failed: int
    failed_with_defaults: int
    last: float
    median_wait: float
    longest_wait: float
    calls: float
    most_calls: int


def workflows_definition() -> Any:
    """The state machine of a workflow that waits for its job by `.sync`."""
    import aws_cdk as cdk
    from aws_cdk import aws_s3 as s3

    from cdk_sagemaker_training import DataParallelJob, InstanceGroup, S3Prefix, TrainingImage, TrainingWorkflow
    from training_jobs.prove.templates import read

    app = cdk.App()
    stack = cdk.Stack(app, "Many")
    image = TrainingImage.from_uri(stack, "Image", "111122223333.dkr.ecr.eu-central-1.amazonaws.com/train:1")
    job = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
    output = S3Prefix(s3.Bucket.from_bucket_name(stack, "Bucket", "models"), "models/")
    props = {"image": image, "job": job, "output": output, "max_runtime": cdk.Duration.hours(1)}
    TrainingWorkflow(stack, "Training", integration="sync", missing_model="ignore", **props)
    machines = read(app.synth().get_stack_by_name("Many").template).machines
    return next(machine for name, machine in machines.items() if name.startswith("TrainingStateMachine"))


def retrying_definition() -> Any:
    """A state that creates a job, with one retrier of the defaults."""
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync",
        "Parameters": {},
        "End": True,
    }
    return {"StartAt": "Train", "States": {"Train": {**task, "Retry": [{"ErrorEquals": ["States.ALL"]}]}}}


def simulate(definition: Any, number: int, within: float, rate: float, seed: int = 7) -> tuple[list[Any], Counter[int]]:
    """Run executions.

    Args:
        definition: Their state machine.
        number: How many.
        within: The seconds in which they start; those that start together do so within one second.
        rate: Of CreateTrainingJob, a second.
        seed: Of the times and of what the executions draw.

    Returns:
        For each execution that has ended its start, the creation of its job or None, and its status; and each one's calls.
    """
    drawn, now = random.Random(seed), 0.0
    buckets = {
        operation: Bucket(Rate(max(rate, 1), rate) if operation == "CreateTrainingJob" else each, lambda: now)
        for (_, operation), each in rates(REGION).items()
    }
    order = itertools.count()
    started = sorted(drawn.uniform(0, within or 1) for _ in range(number))
    created: dict[int, float] = {}
    ended, calls = [], Counter[int]()
    queue: list[tuple[float, int, int, Execution]] = []
    following = 0
    with mock.patch.dict(values.FUNCTIONS, {"States.MathRandom": lambda first, last: drawn.randrange(first, last)}):
        while queue or following < number:
            if following < number and (not queue or started[following] <= queue[0][0]):
                name = str(following)
                context = {"Execution": {"Id": f"arn:{name}", "Name": name, "Input": {}, "RedriveCount": 0}}
                heapq.heappush(queue, (started[following], next(order), following, start(definition, {}, context)))
                following += 1
                continue
            now, _, index, execution = heapq.heappop(queue)
            if execution.status != "RUNNING":
                ended.append((started[index], created.get(index), execution.status))
                continue
            execution = step(execution, _event(execution, index, now, buckets, created, calls))
            timers = (
                [one for one in wants(execution) if isinstance(one, Timer)] if execution.status == "RUNNING" else []
            )
            later = timers[0].seconds or 0 if timers else ANSWER_SECONDS
            heapq.heappush(queue, (now + later, next(order), index, execution))
    return ended, calls


def _event(
    execution: Execution,
    index: int,
    now: float,
    buckets: dict[str, Bucket],
    created: dict[int, float],
    calls: Counter[int],
) -> Any:
    """What the execution waits for: the end of a timer, or the answer of a call."""
    [want] = wants(execution)
    if isinstance(want, Timer):
        return Elapsed(want.at)
    assert isinstance(want, Call)
    operation = want.resource.rpartition(":")[2].partition(".")[0]
    operation = operation[0].upper() + operation[1:]
    if operation == "CreateTrainingJob":
        calls[index] += 1
    if operation in buckets and not buckets[operation].take():
        return Failed(want.at, "SageMaker.AmazonSageMakerException", THROTTLED)
    if operation == "CreateTrainingJob":
        created[index] = now
    elif index not in created:
        return Failed(want.at, "SageMaker.SageMakerException", MISSING)
    return Answered(want.at, {"TrainingJobStatus": "Completed"})


def row(number: int, within: int, rate: float, definition: Any) -> Row:
    """Simulate executions of a workflow, and the same with Step Functions' default retrier."""
    ended, calls = simulate(definition, number, within, rate)
    others, _ = simulate(retrying_definition(), number, within, rate)
    waits = [at - began for began, at, _ in ended if at is not None]
    return Row(
        number,
        within,
        rate,
        failed=_failed(ended),
        failed_with_defaults=_failed(others),
        last=max(at for _, at, _ in ended if at is not None),
        median_wait=statistics.median(waits),
        longest_wait=max(waits),
        calls=statistics.mean(calls.values()),
        most_calls=max(calls.values()),
    )


def _failed(ended: list[Any]) -> int:
    return sum(status != "SUCCEEDED" or created is None for _, created, status in ended)


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| executions | start | CreateTrainingJob's rate | last job created after | wait: median, longest "
        "| calls each: mean, most | failed | failed with the default retrier |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        within = "in a day" if one.within else "together"
        lines.append(
            f"| {one.executions:,} | {within} | {one.rate:g} a second | {span(one.last)} | {span(one.median_wait)}, "
            f"{span(one.longest_wait)} | {one.calls:.1f}, {one.most_calls} | {one.failed:,} | {one.failed_with_defaults:,} |"
        )
    return "\n".join(lines) + "\n"


def span(seconds: float) -> str:
    """Seconds for a reader."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7_200
        else f"{seconds / 3_600:.1f} h"
    )


def main() -> None:
    """Simulate each row, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    definition, rows = workflows_definition(), []
    for number, within, rate in ROWS:
        if number <= options.most:
            if not options.json:
                print(f"{number:,} executions at {rate} a second ...", file=sys.stderr, flush=True)
            rows.append(row(number, within, rate, definition))
    print(
        json.dumps({"rows": [asdict(one) for one in rows]}) if options.json else table(rows),
        end="\n" if options.json else "",
    )
    if options.docs:
        page = options.docs / "many-jobs.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    if any(one.failed for one in rows if not one.within or one.executions <= one.within * one.rate):
        sys.exit(1)


if __name__ == "__main__":
    main()
