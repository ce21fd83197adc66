"""The benchmark of synthesis compares nothing unless both of its apps write the same resources."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "synth.py"


@pytest.mark.soak  # of a benchmark
def test_the_app_in_plain_aws_cdk_lib_writes_the_resources_of_ours() -> None:
    specification = importlib.util.spec_from_file_location("synth_benchmark", BENCHMARK)
    assert specification is not None
    assert specification.loader is not None
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    benchmark.check_that_both_write_the_same()  # which raises SystemExit with the resources that differ
