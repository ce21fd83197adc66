"""Step times, costs and choices of `training_jobs.planning`, and the command `plan`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import boto3
import pytest

from training_jobs import TrainingError
from training_jobs.cli.main import main
from training_jobs.client.workflows import check_name
from training_jobs.facts.instance_facts import instance_facts
from training_jobs.planning import step_time as model
from training_jobs.planning.configurations import Market, best, plan
from training_jobs.planning.construct_call import construct_call
from training_jobs.planning.measurement import Measurement, measurement_json, read_measurement
from training_jobs.planning.picture import picture
from training_jobs.planning.prices import (
    SNAPSHOT,
    Price,
    age_lines,
    on_demand_price,
    price_filters,
    read_prices,
    snapshot_prices,
    table_prices,
)
from training_jobs.planning.scaling import LearningRate, network_bound_from, scaling_advice
from training_jobs.planning.step_time import Configuration, Machines, step_time

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from planned_article import ROWS
finally:
    sys.path.pop(0)  # the benchmarks' names are not to be those of other tests' modules

P4D, C5 = "ml.p4d.24xlarge", "ml.c5.18xlarge"
RESNET = Measurement(128, 0.018, 12_288, {"NVIDIA A100": 0.0864}, gradient_bytes=1e8)
PRICES = {P4D: 37.688, C5: 3.672}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_tables_of_awss_article_follow_from_their_rows_without_data_hosts(row: Any) -> None:
    alone, beside = row.predicted(None), row.predicted(row.data)
    assert alone.step.seconds == pytest.approx(row.alone_seconds)
    assert beside.step.seconds == pytest.approx(row.published_seconds, rel=0.05)
    assert 100 * alone.step_dollars == pytest.approx(row.alone_cents, rel=0.05)
    assert 100 * beside.step_dollars == pytest.approx(row.published_cents, rel=0.05)
    assert 100 * (1 - beside.step_dollars / alone.step_dollars) == pytest.approx(row.published_saved, abs=1)


@pytest.mark.parametrize(
    ("measurement", "configuration", "bound", "seconds"),
    [
        (RESNET, Configuration(Machines(P4D)), "data_cpu", 1024 * 0.018 / 96),
        (RESNET, Configuration(Machines(P4D), Machines(C5, 4)), "accelerator", 0.0864),
        (
            replace(RESNET, preprocess_seconds=1e-4, sample_bytes=1e7),
            Configuration(Machines(P4D), Machines(C5, 4)),
            "network",
            1024 * 1e7 * (288 / 336) * 8 / 100e9,
        ),
        (replace(RESNET, gradient_bytes=4e10), Configuration(Machines(P4D, 2), Machines(C5, 4)), "gradients", 0.8),
        (
            replace(RESNET, preprocess_seconds=1.0, sample_bytes=3e7),
            Configuration(Machines("ml.g5.xlarge"), Machines(C5, 8)),
            "look_ahead",
            (1.2 * 128 + 128 * 3e7 / 1e9 * (8 / 10 + 0.16 + 0.20)) / 2,
        ),
    ],
    ids=["data_cpu", "accelerator", "network", "gradients", "look_ahead"],
)
def test_a_step_takes_as_long_as_its_slowest_part(
    measurement: Measurement, configuration: Configuration, bound: str, seconds: float
) -> None:
    measurement = replace(measurement, step_seconds={**measurement.step_seconds, "NVIDIA A10G": 0.1})
    step = step_time(measurement, configuration)
    assert step is not None
    assert (step.bound, step.seconds) == (bound, pytest.approx(seconds))
    assert max(step.limits.values()) == step.seconds


@pytest.mark.soak
def test_drawn_configurations_take_what_was_predicted_of_them_within_5_percent() -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks" / "planning.py"  # it draws by the clock, and prints the seed
    done = subprocess.run([sys.executable, str(benchmark), "--draw", "20"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_limits_of_the_data_service_are_its_own() -> None:
    service = Path(__file__).parents[2] / "training_code" / "data_service"  # read, since importing it imports torch
    assert f"\nLEAST_AHEAD = {model.LEAST_AHEAD} " in (service / "requester.py").read_text()
    assert "\nLOOK_AHEAD = 8 * 2**30 " in (service / "reader.py").read_text()
    assert model.LOOK_AHEAD == 8 * 2**30


def test_data_hosts_are_added_while_they_shorten_the_step() -> None:
    rows = plan(RESNET, Market(PRICES, most_training=1), local_share=1).rows
    steps = {0 if row.configuration.data is None else row.configuration.data.count: row.step.seconds for row in rows}
    assert sorted(steps) == [0, 1, 2]
    assert all(steps[more] < steps[fewer] for fewer, more in pairwise(sorted(steps)))


def test_no_row_of_the_front_is_slower_and_dearer_than_another() -> None:
    found = plan(RESNET, Market(PRICES, spot=0.4))
    assert 1 < len(found.front) < len(found.rows)
    for one in found.front:
        better = [
            it
            for it in found.rows
            if it.samples_a_second > one.samples_a_second
            and it.step_dollars / it.global_batch < one.step_dollars / one.global_batch
        ]
        assert not better


def test_the_best_has_the_fewest_machines_of_the_cheapest() -> None:
    rows = plan(RESNET, Market(PRICES), local_share=1).rows
    chosen = best(rows)
    assert chosen is not None
    assert chosen.configuration == Configuration(Machines(P4D), Machines(C5, 2))
    in_time = best(rows, samples=1e9, within_hours=chosen.hours(1e9) / 2)
    assert in_time is not None
    assert in_time.configuration.train.count == 4
    assert best(rows, samples=1e9, within_hours=0.001) is None


def test_machines_that_the_account_or_the_memory_does_not_allow_are_left_out_with_the_reason() -> None:
    market = Market(PRICES, quotas={(P4D, False): 1, (C5, False): 1}, most_training=2)
    found = plan(replace(RESNET, preprocess_seconds=0.1), market)
    assert {one.configuration.train.count for one in found.rows} == {1}
    assert "the quota ml.c5.18xlarge for training job usage is 1, needed 2" in {one.refused for one in found.refused}
    full = plan(replace(RESNET, peak_memory_gib=41.0), Market(PRICES))
    assert not full.rows
    assert "takes 41 GiB of an accelerator, and one of ml.p4d.24xlarge has 40" in full.refused[0].refused


def test_several_machines_train_only_where_the_size_of_the_gradients_is_known() -> None:
    rows = plan(replace(RESNET, gradient_bytes=None), Market(PRICES)).rows
    assert {row.configuration.train.count for row in rows} == {1}


def test_the_code_makes_the_configurations_job() -> None:
    import cdk_sagemaker_training as library

    spot = Configuration(Machines(P4D), Machines(C5, 2), spot=True)
    text = construct_call(spot)
    names = {name: getattr(library, name) for name in library.__all__} | {
        "Duration": SimpleNamespace(hours=lambda hours: 3600 * hours)
    }
    made = eval(f"dict({text})", names)
    assert made["job"].groups["data_group"] == library.InstanceGroup(C5, 2)
    assert made["job"].train.group == library.InstanceGroup(P4D)
    assert made["spot"].max_wait == 86_400
    assert (
        construct_call(Configuration(Machines("ml.g5.xlarge"))) == 'job=DataParallelJob(InstanceGroup("ml.g5.xlarge")),'
    )


def test_the_picture_is_an_svg_with_a_point_for_each_row() -> None:
    found = plan(RESNET, Market(PRICES))
    root = ElementTree.fromstring(picture(found))
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == len(found.rows)


def test_a_measurement_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(measurement_json(RESNET)))
    assert read_measurement(file) == RESNET


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "must be a JSON file, like measured.json"),
        ("[]", "must hold an object"),
        ('{"batch_size": 8}', "must hold preprocess_seconds"),
        (
            '{"batch_size": 0, "preprocess_seconds": 1, "sample_bytes": 1}',
            "batch_size must be samples above 0, like 256, got 0",
        ),
        ('{"batch_size": 1, "preprocess_seconds": 1, "sample_bytes": 1, "speed": 2}', "got 'speed'"),
    ],
)
def test_a_wrong_measurement_is_an_error_that_says_what_is_wrong(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "measured.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=words.replace("[", r"\[")):
        read_measurement(file)


def test_prices_are_a_table_that_may_name_its_source(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"_source": "the pricing page", "ml.g5.xlarge": 1.408}')
    assert read_prices(file) == {"ml.g5.xlarge": 1.408}
    file.write_text('{"ml.g5.xlarge": "1.4"}')
    with pytest.raises(
        ValueError, match=r"the price of ml\.g5\.xlarge must be dollars an hour, like 1\.408, got '1\.4'"
    ):
        read_prices(file)


def test_a_price_of_the_users_table_names_its_file_and_what_the_file_says_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"_source": "our contract", "_date": "2026-01-02", "ml.g5.xlarge": 1.2}')
    assert table_prices(file) == {"ml.g5.xlarge": Price(1.2, "prices.json (our contract, 2026-01-02)")}
    file.write_text('{"ml.g5.xlarge": 1.2}')
    assert table_prices(file)["ml.g5.xlarge"].source == "prices.json"


def test_the_snapshot_has_prices_of_what_was_measured_and_of_data_hosts_with_its_date() -> None:
    prices = snapshot_prices(RESNET)
    assert prices[P4D].dollars == 37.688
    assert {kind.split(".")[1] for kind in prices} == {"p4d", "c5", "c7i", "m5"}
    assert prices[C5].source.startswith("snapshot of 2025-01-26, us-east-1")
    assert all(instance_facts(kind) for kind in read_prices(SNAPSHOT))


# In the form of AWS's documentation ("GetProducts", sample response; attributes as AWS's own client filters them); the answer of
# a real account was not recorded.
PRODUCT = {
    "publicationDate": "2026-08-11T17:02:11Z",
    "product": {
        "productFamily": "ML Instance",
        "attributes": {"instanceName": "ml.g5.xlarge", "platoinstancetype": "Training", "regionCode": "us-east-1"},
        "sku": "ABC",
    },
    "terms": {
        "OnDemand": {
            "ABC.JRTCKXETXF": {
                "priceDimensions": {
                    "ABC.JRTCKXETXF.6YS6EN2CT7": {"unit": "Hrs", "pricePerUnit": {"USD": "1.4080000000"}}
                }
            }
        }
    },
}


def test_the_price_list_has_a_price_in_the_form_of_awss_documentation() -> None:
    assert on_demand_price([json.dumps({"terms": {}}), json.dumps(PRODUCT)]) == Price(
        1.408, "AWS's Price List, published 2026-08-11"
    )
    assert on_demand_price([]) is None
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"} in price_filters(
        "ml.g5.xlarge", "eu-west-1"
    )


Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Typed:
    """The command `plan` on a measurement."""
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(measurement_json(RESNET)))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["training-jobs", "plan", str(file), *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_the_command_prints_rows_and_the_best_as_code(typed: Typed, tmp_path: Path) -> None:
    given = ["--price", f"{P4D}=37.688", "--price", f"{C5}=3.672", "--local-share", "1"]
    code, out, _ = typed(*given, "--price", "ml.g5.xlarge=1.408", "--svg", str(tmp_path / "plan.svg"))
    assert code == 0
    assert "best: 1 p4d.24xlarge + 2 c5.18xlarge\nbound by the accelerators" in out
    assert "prices an hour, --price: ml.c5.18xlarge $3.672, ml.g5.xlarge $1.408, ml.p4d.24xlarge $37.688" in out
    assert 'groups={"data_group": InstanceGroup("ml.c5.18xlarge", 2)},' in out
    assert "left out: ml.g5.xlarge: no step was measured on its accelerator" in out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    code, out, _ = typed(*given, "--samples", "1000", "--epochs", "2", "--json")
    found = json.loads(out)
    assert found["best"]["data"] == {"instance_type": C5, "count": 2}
    assert found["best"]["dollars"] == pytest.approx(2 * found["best"]["step_dollars"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--step", "ml.p3.2xlarge=-1"], "step_seconds['ml.p3.2xlarge'] must be seconds above 0"),
        (["--price", "ml.g5.xlarge"], "must be TYPE=DOLLARS"),
        (["--price", "ml.g5.xlarge=1.4"], "a type on whose accelerator a step was measured"),
        (["--price", f"{P4D}=1", "--within", "3"], "needs --samples"),
        (["--price", f"{P4D}=1", "--spot", "4"], "spot must be the share of the price"),
    ],
)
def test_a_wrong_command_line_is_an_error_that_says_what_is_wrong(typed: Typed, words: list[str], error: str) -> None:
    code, _, printed = typed(*words)
    assert code == 2
    assert error in " ".join(printed.split())


def test_a_script_to_measure_must_be_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training-jobs", "measure", "nowhere.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "must be a file, like train.py, got 'nowhere.py'" in capsys.readouterr().err


def test_what_does_not_end_in_time_is_no_plan(typed: Typed) -> None:
    code, _, printed = typed("--price", f"{P4D}=1", "--samples", "1000000000", "--within", "0.001")
    assert (code, printed) == (1, "nothing of this can be rented in time\n")


def test_prices_and_quotas_are_looked_up_in_the_account(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = [
        {"QuotaName": f"{P4D} for training job usage", "Value": 1.0},
        {"QuotaName": f"{P4D} for endpoint usage", "Value": 9.0},
    ]
    answers = {"get_products": {"PriceList": [json.dumps(PRODUCT)]}, "list_service_quotas": {"Quotas": quotas}}
    called: list[tuple[str, str]] = []

    def client(session: Any, service: str, **details: Any) -> Any:
        called.append((service, details["region_name"]))
        return SimpleNamespace(
            get_paginator=lambda name: SimpleNamespace(paginate=lambda **more: [answers[name]]),
        )

    monkeypatch.setattr(boto3.Session, "client", client)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    code, out, printed = typed("--price-list", P4D, "--quotas", "--json")
    assert (code, printed) == (0, "")
    assert {row["train"]["count"] for row in json.loads(out)["rows"]} == {1}
    assert called == [("pricing", "us-east-1"), ("service-quotas", "eu-west-1")]
    price = {"dollars": 1.408, "source": "AWS's Price List, published 2026-08-11, eu-west-1"}
    assert json.loads(out)["prices"] == {P4D: price}


def test_without_prices_the_snapshot_is_used_and_under_given_ones_on_request(typed: Typed) -> None:
    code, out, _ = typed()
    assert code == 0
    assert "prices an hour, snapshot of 2025-01-26, us-east-1" in out
    code, out, _ = typed("--snapshot", "--price", f"{P4D}=20", "--json")
    prices = json.loads(out)["prices"]
    assert prices[P4D] == {"dollars": 20.0, "source": "--price"}
    assert prices[C5]["source"].startswith("snapshot of ")


def test_rows_have_the_learning_rate_of_their_batch(typed: Typed) -> None:
    _, out, _ = typed("--price", f"{P4D}=37.688", "--learning-rate", "0.1", "--json")
    rates = {
        row["global_batch"]: (row["learning_rate_factor"], row["learning_rate"]) for row in json.loads(out)["rows"]
    }
    assert rates[1024] == (8, pytest.approx(0.8))
    _, out, _ = typed("--price", f"{P4D}=37.688", "--optimizer", "adam")
    assert f"x {math.sqrt(8):.4g}" in out


def test_the_advice_says_from_how_many_machines_on_gradients_bound_the_step() -> None:
    measurement = replace(RESNET, preprocess_seconds=1e-4, gradient_bytes=3e9)
    rows = plan(measurement, Market({P4D: 37.688}, most_training=8)).rows
    # 2 (n - 1) / n x 24 Gbit / 400 Gbit/s: 0.08 s of 3 machines, 0.09 s of 4, the accelerators' 0.0864 s between them.
    assert {network_bound_from(row, measurement) for row in rows} == {4}
    assert {row.configuration.train.count for row in rows if row.step.bound == "gradients"} == {4, 8}
    small = replace(measurement, gradient_bytes=1e8)
    assert network_bound_from(plan(small, Market(PRICES)).rows[0], small) is None


def test_the_advice_is_data_parallel_where_a_step_fits_an_accelerator_and_model_parallel_where_not() -> None:
    def lines(gib: float) -> list[str]:
        measurement = replace(RESNET, peak_memory_gib=gib)
        found = plan(measurement, Market(PRICES))
        return scaling_advice(found, best(found.rows), measurement, LearningRate(128))

    fits = lines(11.5)
    assert fits[0].startswith("data parallel: a step takes 11.5 of an accelerator's 40 GiB")
    assert "batches are 8 times the measured one: learning rate x 8 (sgd), after a warm-up" in fits
    (does_not,) = lines(90)
    assert does_not.startswith("model parallel: a step takes 90 GiB, more than each type's accelerator has")


@pytest.mark.parametrize("name", ["run(1)", "it's", "a b", "50€", "क्ष", "x" * 81, ""])
def test_a_name_of_an_execution_that_no_job_could_have_as_a_tag_is_refused(name: str) -> None:
    with pytest.raises(
        TrainingError, match=r"^name must be 1 to 80 letters, digits and '_\.=\+-@', .* like 'monday-2'"
    ):
        check_name(name)


@pytest.mark.parametrize("name", ["monday-2", "größe_1.5", "me@home=1+1"])
def test_a_name_of_an_execution_that_jobs_have_as_a_tag_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("source", "today", "warned"),
    [
        ("snapshot of 2025-01-26, us-east-1", date(2026, 11, 27), "the prices of 2025-01-26 are 22 months old"),
        ("snapshot of 2025-01-26, us-east-1", date(2026, 1, 26), ""),
        ("AWS's Price List, published 2026-11-01", date(2026, 11, 27), ""),
        ("--price", date(2026, 11, 27), ""),
    ],
)
def test_prices_of_more_than_a_year_ago_are_warned_of(source: str, today: date, warned: str) -> None:
    lines = age_lines({"ml.g5.xlarge": Price(1.4, source), "ml.g5.2xlarge": Price(1.5, source)}, today)
    assert len(lines) == bool(warned)
    assert all(warned in line for line in lines)
