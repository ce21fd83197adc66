"""The rules of scripts that are right on one machine: each host has devices and a disk of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from training_jobs.lint.program import conditions, programs, side_of
from training_jobs.lint.script import Check, Found, Job, Script, constant, keyword, name_of
from training_jobs.lint.wrapped import DDP

_GLOBAL_RANK = re.compile(r"(?:dist|distributed)\.get_rank\(\)$|environ\W+(?:get\W+)?RANK\b[^%]*$")


def _device_of_rank(scripts: Sequence[Script], job: Job) -> Found:
    """Torchrun's "Environment Variables": RANK is among all hosts, LOCAL_RANK among the processes of one, as devices are."""
    for program in programs(scripts, job.entry_point) if (job.hosts or 1) > 1 and job.device != "cpu" else ():
        for script, call in program.calls:
            for given in _devices(call):
                values = program.assigned(given) or [given]
                if all(_GLOBAL_RANK.search(ast.unparse(one)) for one in values):
                    why = f"{ast.unparse(given)} counts the processes of all hosts, and the second host has no such device"
                    yield script, call.lineno, f"{why}: int(os.environ['LOCAL_RANK'])"
                    return


def _devices(call: ast.Call) -> Iterator[ast.expr]:
    """The numbers of devices that a call is given."""
    name, first = name_of(call), next(iter(call.args), None)
    if name in ("set_device", "cuda", "to") and first is not None:
        yield first
    elif name == "device" and constant(first) == "cuda":
        yield from call.args[1:2]
    elif name in DDP and isinstance(ids := keyword(call, "device_ids"), ast.List):
        yield from ids.elts
    for part in call.args:
        if isinstance(part, ast.JoinedStr) and constant(part.values[0]) == "cuda:":
            yield from (one.value for one in part.values[1:2] if isinstance(one, ast.FormattedValue))


def _one_host_prepares(scripts: Sequence[Script], job: Job) -> Found:
    """SageMaker's "Distributed training": each instance has a container and a disk of its own, and rank 0 is on one of them."""
    for program in programs(scripts, job.entry_point) if (job.hosts or 1) > 1 else ():
        for script, call in program.calls:
            if constant(keyword(call, "download")) is not True or side_of(script, call) != "one":
                continue
            tests = [ast.unparse(test) for test, _ in conditions(script, call)]
            again = [
                other
                for other_script, other in program.calls
                if other is not call and name_of(other) == name_of(call) and not side_of(other_script, other)
            ]
            reads = again and all(constant(keyword(other, "download")) is not True for other in again)
            if reads and not any("local" in test.lower() for test in tests):
                why = "rank 0 alone downloads it, and the other hosts have disks of their own"
                yield script, call.lineno, f"{why}: do so where LOCAL_RANK is 0"


HOSTS: Mapping[str, Check] = {"device-of-rank": _device_of_rank, "one-host-prepares": _one_host_prepares}
