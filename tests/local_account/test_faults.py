"""When and how often faults happen."""

from __future__ import annotations

import pytest

from sagemaker_local_account.faults import Capacity, Faults, FaultTrigger, Interruption, LateHost, LostHost


def test_a_fault_happens_as_often_as_it_says() -> None:
    faults = Faults()
    faults.add(Capacity("ml.g5.xlarge", times=2))
    assert [faults.consume_first(Capacity, instance_type="ml.g5.xlarge") is not None for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert faults.remaining() == {}


def test_a_fault_without_end_happens_until_it_is_mended() -> None:
    faults = Faults()
    name = faults.add(Capacity("ml.g5.xlarge", times=None))
    assert all(faults.consume_first(Capacity, instance_type="ml.g5.xlarge") for _ in range(10))
    faults.mend(name)
    assert faults.consume_first(Capacity, instance_type="ml.g5.xlarge") is None


def test_a_fault_happens_to_the_jobs_and_the_things_that_it_names() -> None:
    faults = Faults()
    faults.add(LateHost("algo-2", 30, job="mine"))
    assert faults.consume_first(LateHost, job="yours-1", host="algo-2") is None
    assert faults.consume_first(LateHost, job="mine-1", host="algo-1") is None
    assert faults.consume_first(LateHost, job="mine-1", host="algo-2") == LateHost("algo-2", 30, job="mine")


def test_two_faults_that_say_the_same_both_happen() -> None:
    faults = Faults()
    names = [faults.add(Capacity("ml.g5.xlarge")) for _ in range(2)]
    assert len(set(names)) == 2
    assert [faults.consume_first(Capacity) is not None for _ in range(3)] == [True, True, False]


def test_a_moment_without_more_is_now() -> None:
    assert FaultTrigger(LostHost()).due


def test_a_moment_may_be_a_line() -> None:
    trigger = FaultTrigger(Interruption(r"step \d+0 "))
    trigger.observe("step 9 done")
    assert not trigger.due
    trigger.observe("step 10 done")
    assert trigger.due


def test_a_moment_may_be_drawn_and_is_the_same_with_the_same_seed() -> None:
    drawn = [FaultTrigger(Interruption(within=1_000_000, seed=seed)).seconds for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0 <= drawn[0] <= 1_000_000


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Capacity("ml.g5.xlarge", times=0), "times must be at least 1, or None until it is mended, got 0"),
        (lambda: Interruption("("), "at must be a regular expression of a line, like 'step 20 ', got '('"),
        (lambda: LostHost(within=-1), "within must be 0 or more seconds, like 60, got -1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(make: object, said: str) -> None:
    with pytest.raises(ValueError) as error:
        make()  # type: ignore[operator]
    assert str(error.value).startswith(said)


def test_what_is_mended_must_be_there() -> None:
    with pytest.raises(LookupError, match="there is no fault 'Capacity-1'; there are none"):
        Faults().mend("Capacity-1")
