"""What a name means: a job, an execution or a workflow, whole or in part.

A part of a name is enough where only one job or execution has it, as git takes a part of a commit's. `list` cuts a name that a
terminal has no room for in its middle, with an ellipsis; pasted, that means any characters.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from training_jobs.client.errors import AmbiguousNameError, NotFoundError
from training_jobs.client.executions import Execution
from training_jobs.client.jobs import Job

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.workflows import Workflow

ELLIPSIS = "…"
# TrainingJobName and NameContains of the service model.
_JOB, _PART_OF_JOB = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"), re.compile(r"[a-zA-Z0-9-]{1,63}")
_CUT = re.compile(r"…|\.\.\.")
_MOST_JOBS, _MOST_EXECUTIONS = 100, 50  # that are searched for a part of a name: one page of each list
_MOST_NAMED = 5


def elided(name: str, width: int) -> str:
    """Return a name with an ellipsis in its middle where it is longer than a width.

    Args:
        name: The name.
        width: Its most characters, at least 3.
    """
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}{ELLIPSIS}{name[-end:]}"


def find(account: Account, name: str | None) -> Execution | Job:
    """Return what a name means; for a workflow its newest execution.

    Args:
        account: The account.
        name: A job, an execution (its ARN or name), a workflow's construct path, or a part of the name of the only job or
            execution that has it. Default: the only workflow.

    Raises:
        NotFoundError: There is none, or several have the part.
    """
    if name is not None and ":execution:" in name:
        return account.execution(name)
    if name is not None and ":training-job/" in name:
        return account.job(name.rpartition("/")[2])
    by_name = name is not None and not name.startswith("arn:") and "/" not in name
    if by_name and (job := _job(account, str(name))) is not None:
        return job
    workflows = [] if name is not None and name.startswith("arn:") else account.workflows()
    if by_name and (execution := _execution(account, workflows, str(name))) is not None:
        return execution
    try:
        workflow = account.workflow(name, workflows)
    except AmbiguousNameError:
        raise
    except NotFoundError as error:
        if not by_name:
            raise
        return _only(str(name), list(_with_part(account, workflows, str(name))), error)
    latest = workflow.latest()
    if latest is None:
        raise NotFoundError(f"{workflow.path} was never started: `training-jobs start {workflow.path}`")
    return latest


def _job(account: Account, name: str) -> Job | None:
    if not _JOB.fullmatch(name):  # the service refuses to describe another name
        return None
    job = account.job(name)
    try:
        job.describe()
    except NotFoundError:
        return None
    return job


def _execution(account: Account, workflows: list[Workflow], name: str) -> Execution | None:
    for workflow in workflows:
        execution = account.execution(f"{workflow.arn.replace(':stateMachine:', ':execution:')}:{name}")
        try:
            execution.describe()
        except NotFoundError:
            continue
        return execution
    return None


def _only(name: str, candidates: list[Execution | Job], error: NotFoundError) -> Execution | Job:
    """The only candidate that there is."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NotFoundError(f"no job or execution {name!r}, and {error}") from None
    more = f" and {len(candidates) - _MOST_NAMED} more" if len(candidates) > _MOST_NAMED else ""
    named = ", ".join(it.name for it in candidates[:_MOST_NAMED])
    raise AmbiguousNameError(f"{name!r} is a part of several names: {named}{more}") from None


def _with_part(account: Account, workflows: list[Workflow], name: str) -> Iterator[Execution | Job]:
    """Jobs and executions, each the newest first, that have a part in their names."""
    pieces = _CUT.split(name)
    pattern = re.compile(".+".join(map(re.escape, pieces)))
    # A name that was cut has its beginning and its end.
    matches = pattern.search if len(pieces) == 1 else pattern.fullmatch
    longest = max(pieces, key=len)
    if _PART_OF_JOB.fullmatch(longest):
        for job in account.jobs(name_contains=longest, limit=_MOST_JOBS):
            if matches(job.name):
                yield account.job(job.name)
    for workflow in workflows:
        for execution in itertools.islice(workflow.executions(), _MOST_EXECUTIONS):
            if matches(execution.name):
                yield execution
