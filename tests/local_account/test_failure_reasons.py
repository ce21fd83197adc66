from pathlib import Path

import pytest

from sagemaker_local_account.core.failure_reasons import LONGEST_REASON, HostEnd, oom_kills, reason_of


@pytest.mark.parametrize("code", [-9, 137])
def test_a_host_that_the_kernel_ended_for_its_memory_has_sagemakers_words(code: int) -> None:
    reason = reason_of(HostEnd("algo-2", code, log_tail=["allocating"], oom_killed=True))
    assert reason == (
        "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an "
        "instance. The kernel's out-of-memory killer ended algo-2, exit code: 137"
    )


def test_an_exit_code_of_its_own_is_no_matter_of_memory() -> None:
    assert (
        reason_of(HostEnd("algo-1", 1, oom_killed=True)) == "AlgorithmError: the command on algo-1 ended, exit code: 1"
    )


def test_a_kill_that_nothing_is_known_of_is_named_by_its_signal() -> None:
    assert (
        reason_of(HostEnd("algo-1", -9)) == "AlgorithmError: the command on algo-1 was ended by SIGKILL, exit code: 137"
    )


def test_an_exit_code_that_a_shell_gives_for_a_signal_is_named_by_it() -> None:
    expected = "AlgorithmError: the command on algo-1 ended, with a shell's exit code for SIGTERM, exit code: 143"
    assert reason_of(HostEnd("algo-1", 143)) == expected


def test_a_host_whose_machine_is_lost_is_a_failure_of_the_service() -> None:
    assert reason_of(HostEnd("algo-2", -9, lost=True)).startswith("InternalServerError: the host algo-2 was lost")


def test_of_too_many_lines_the_last_ones_are_kept_whole() -> None:
    reason = reason_of(HostEnd("algo-1", 1, log_tail=[f"line {number} {'x' * 90}" for number in range(20)]))
    assert LONGEST_REASON - 100 < len(reason) <= LONGEST_REASON
    start, first, *_, last = reason.split("\n")
    assert start == "AlgorithmError: the command on algo-1 ended; its last lines:"
    assert first.startswith("line ")
    assert last == f"line 19 {'x' * 90}, exit code: 1"


def test_of_one_line_that_is_too_long_the_end_is_kept() -> None:
    reason = reason_of(HostEnd("algo-1", 1, log_tail=["a" * 2000 + "the end"]))
    assert len(reason) == LONGEST_REASON
    assert reason.endswith("the end, exit code: 1")


def test_of_a_message_that_is_too_long_the_beginning_and_the_exit_code_are_kept() -> None:
    # "The first 1024 characters" of the file are the FailureReason (SageMaker's guide, "How Amazon SageMaker AI Processes
    # Training Output").
    reason = reason_of(HostEnd("algo-1", 3, failure_file="the digits are missing " + "x" * 2000))
    assert len(reason) == LONGEST_REASON
    assert reason.startswith("AlgorithmError: the digits are missing xxx")
    assert reason.endswith("x, exit code: 3")


def test_the_kernels_count_of_kills_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("pgfault 7\noom_kill 3\nnuma_hit 1\n")
    assert oom_kills(tmp_path / "vmstat") == 3
    assert oom_kills(tmp_path / "none") == 0
