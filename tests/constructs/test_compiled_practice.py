from typing import Any

import pytest
from stacks import reads

from cdk_sagemaker_training import rescaled_learning_rate, suggested_batch_sizes
from cdk_sagemaker_training.jobs.compiled_practice import _rows


def test_a_batch_of_four_times_the_size_takes_four_times_the_learning_rate() -> None:
    assert rescaled_learning_rate(0.001, batch_size=64, new_batch_size=256) == pytest.approx(0.004)


def test_by_the_square_root_it_takes_twice_the_learning_rate() -> None:
    assert rescaled_learning_rate(0.001, batch_size=64, new_batch_size=256, rule="square-root") == pytest.approx(0.002)


def test_a_batch_that_has_to_shrink_takes_a_smaller_learning_rate() -> None:
    assert rescaled_learning_rate(0.001, batch_size=64, new_batch_size=16, rule="square-root") == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"rule": "cubic"}, "rule must be one of 'linear', 'square-root' ... got 'cubic'"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1 ... got 0"),
        ({"new_batch_size": -1}, "new_batch_size must be a whole number of at least 1 ... got -1"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0 ... got -1"),
    ],
)
def test_what_no_rule_can_rescale_is_refused(props: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        rescaled_learning_rate(**{"learning_rate": 0.001, "batch_size": 64, "new_batch_size": 256, **props})
    assert reads(str(raised.value), message)


def test_aws_tested_gpt2_with_these_batch_sizes_on_a_machine() -> None:
    [tested] = [
        row
        for row in suggested_batch_sizes("gpt2", instance_type="ml.g5.4xlarge", sequence_length=128)
        if row.framework == "PyTorch 1.13.1"
    ]
    assert (tested.native, tested.compiled, tested.precision) == (84, 240, "float16")


def test_nothing_is_suggested_of_a_model_that_aws_did_not_test() -> None:
    assert suggested_batch_sizes("llama") == []


def test_a_compiler_does_not_always_make_room() -> None:
    assert len(_rows()) == 235
    assert len([row for row in _rows() if row.native and row.compiled < row.native]) == 57
