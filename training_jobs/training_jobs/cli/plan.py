"""The command ``plan``: which machines to rent for a training that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from training_jobs.cli.context import AsJson, connect
from training_jobs.cli.output import figures, print_json, print_table

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.planning.configurations import Plan, Planned
    from training_jobs.planning.measurement import Measurement
    from training_jobs.planning.prices import Price
    from training_jobs.planning.scaling import LearningRate


def plan(
    context: typer.Context,
    measured: Annotated[Path, typer.Argument(metavar="MEASURED", help="The JSON of `training-jobs measure`.")],
    price: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=DOLLARS", help="Dollars an hour of a machine.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help='A JSON file of prices: {"ml.g5.xlarge": 1.408}.')] = None,
    price_list: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="A type whose price is looked up in AWS's Price List.")
    ] = None,
    snapshot: Annotated[
        bool,
        typer.Option("--snapshot", help="Use a dated snapshot for types without a price."),
    ] = False,
    step: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=SECONDS", help="A step on a type that was not measured.")
    ] = None,
    vcpu_speed: Annotated[
        list[str] | None, typer.Option(metavar="FAMILY=SPEED", help="Speed of a vCPU, relative to the measured one.")
    ] = None,
    local_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the training machines' vCPUs that prepare data.")
    ] = 0.5,
    spot: Annotated[float | None, typer.Option(help="Price of spot machines as a share, like 0.4.")] = None,
    quotas: Annotated[bool, typer.Option("--quotas", help="Leave out what the account's quotas do not allow.")] = False,
    most_training: Annotated[int, typer.Option(min=1, help="The most machines that train.")] = 4,
    most_data: Annotated[int, typer.Option(min=0, help="The most data hosts.")] = 8,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the measured batch; each row shows that of its own.")
    ] = None,
    optimizer: Annotated[
        Literal["sgd", "adam"], typer.Option(help="Adam's learning rate grows with the square root of the batch.")
    ] = "sgd",
    samples: Annotated[int | None, typer.Option(min=1, help="Samples of an epoch, for hours and dollars.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    within: Annotated[float | None, typer.Option(help="Hours in which the training must end; needs --samples.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture of all configurations there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bound and cost of every sensible configuration of machines, and print the best as code.

    The best has the fewest machines of those that cost at most 5 % more than the cheapest.
    """
    from dataclasses import replace

    from training_jobs.cli.cost_text import numbers_of, prices_of
    from training_jobs.planning.configurations import Market
    from training_jobs.planning.configurations import best as chosen
    from training_jobs.planning.configurations import plan as planned
    from training_jobs.planning.measurement import read_measurement
    from training_jobs.planning.picture import picture
    from training_jobs.planning.prices import Price, snapshot_prices, table_prices
    from training_jobs.planning.scaling import LearningRate

    if within is not None and samples is None:
        raise typer.BadParameter(
            "needs --samples, the samples of an epoch, like --samples 1281167", param_hint="--within"
        )
    try:
        measurement = read_measurement(measured)
        steps = {**measurement.step_seconds, **numbers_of(step, "--step", "TYPE=SECONDS, like ml.g5.xlarge=0.09")}
        measurement = replace(measurement, step_seconds=steps)
        known = {} if prices is None else table_prices(prices)
        known |= {kind: Price(dollars, "--price") for kind, dollars in prices_of(price).items()}
        if price_list:
            known = {**_price_list(context, price_list), **known}
        if snapshot or not known:
            known = {**snapshot_prices(measurement), **known}
        allowed = _quotas(connect(context)) if quotas else None
        found = planned(
            measurement,
            Market({kind: one.dollars for kind, one in known.items()}, spot, allowed, most_training, most_data),
            local_share=local_share,
            vcpu_speed=numbers_of(vcpu_speed, "--vcpu-speed", "FAMILY=SPEED, like c5=1.4"),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    total = None if samples is None else samples * epochs
    rate = LearningRate(measurement.batch_size, learning_rate, optimizer)
    best = chosen(found.rows, total or 0.0, math.inf if within is None else within)
    if svg is not None and found.rows:
        svg.write_text(picture(found))
    if as_json:
        print_json(_as_json(found, best, total, known, rate))
    else:
        _print(found, best, measurement, total, svg, known, rate)
    if best is None:
        raise typer.Exit(1)


def _print(
    found: Plan,
    best: Planned | None,
    measurement: Measurement,
    total: int | None,
    svg: Path | None,
    prices: Mapping[str, Price],
    rate: LearningRate,
) -> None:
    from training_jobs.planning.construct_call import construct_call
    from training_jobs.planning.picture import configuration_text
    from training_jobs.planning.prices import age_lines, price_lines
    from training_jobs.planning.scaling import scaling_advice

    headings = ["", "MACHINES", "STEP", "BOUND", "CENTS/STEP", "SAMPLES/S", "$/1M SAMPLES", "BATCH", "LEARNING RATE"]
    rows = []
    for one in found.rows:
        row = [
            f"{'>' if one is best else ' '}{'*' if one in found.front else ' '}",
            configuration_text(one.configuration),
            f"{figures(one.step.seconds * 1e3)} ms",
        ]
        row += [one.step.bound, figures(one.step_dollars * 100, 3), figures(one.samples_a_second)]
        row += [
            figures(one.dollars(1e6) if total is None else one.step_dollars / one.global_batch * 1e6),
            str(one.global_batch),
            rate.text(one.global_batch),
        ]
        rows.append(
            [*row, *([] if total is None else [f"{figures(one.hours(total), 3)} h", f"${one.dollars(total):,.2f}"])]
        )
    least = ["CENTS/STEP", "LEARNING RATE", "BATCH", "SAMPLES/S", "$/1M SAMPLES"]
    print_table(headings + ([] if total is None else ["HOURS", "DOLLARS"]), rows, cut="MACHINES", leave_out=least)
    if found.rows:
        typer.echo("> the one that is chosen; * none of the others is both faster and cheaper")
    for line in price_lines(prices):
        typer.echo(line)
    for line in age_lines(prices, datetime.now(UTC).date()):
        typer.echo(line, err=True)
    for one in found.refused:
        typer.echo(f"left out: {configuration_text(one.configuration)}: {one.refused}")
    for kind in found.unmeasured:
        typer.echo(f"left out: {kind}: no step was measured on its accelerator; --step {kind}=SECONDS")
    if measurement.gradient_bytes is None:
        typer.echo("left out: several machines that train: the measurement lacks gradient_bytes")
    if svg is not None and found.rows:
        typer.echo(f"picture: {svg}")
    advice = scaling_advice(found, best, measurement, rate)
    if best is None:
        typer.echo("\n".join(["nothing of this can be rented in time", *advice]), err=True)
        return
    typer.echo("\n".join(["", f"best: {configuration_text(best.configuration)}", *advice, ""]))
    typer.echo(construct_call(best.configuration))


def _as_json(
    found: Plan,
    best: Planned | None,
    total: int | None,
    prices: Mapping[str, Price],
    rate: LearningRate,
) -> dict[str, Any]:
    from training_jobs.planning.construct_call import construct_call

    def row(one: Planned) -> dict[str, Any]:
        machines = one.configuration
        groups = {"train": machines.train, "data": machines.data}
        return {
            **{name: it and {"instance_type": it.instance_type, "count": it.count} for name, it in groups.items()},
            "spot": machines.spot,
            "step_seconds": one.step.seconds,
            "bound": one.step.bound,
            "limits": dict(one.step.limits),
            "step_dollars": one.step_dollars,
            "samples_a_second": one.samples_a_second,
            "global_batch": one.global_batch,
            "learning_rate_factor": rate.factor(one.global_batch),
            "learning_rate": rate.measured and rate.measured * rate.factor(one.global_batch),
            "on_front": one in found.front,
            "hours": None if total is None else one.hours(total),
            "dollars": None if total is None else one.dollars(total),
            "refused": one.refused or None,
        }

    return {
        "rows": [row(one) for one in found.rows],
        "refused": [row(one) for one in found.refused],
        "unmeasured": list(found.unmeasured),
        "prices": {kind: {"dollars": one.dollars, "source": one.source} for kind, one in prices.items()},
        "best": best and row(best),
        "code": best and construct_call(best.configuration),
    }


def _price_list(context: typer.Context, types: Sequence[str]) -> dict[str, Price]:
    from dataclasses import replace

    from training_jobs.planning.prices import PRICE_LIST_REGION, on_demand_price, price_filters

    region = connect(context).region
    client = connect(context, PRICE_LIST_REGION).client("pricing")
    found = {}
    for kind in types:
        filters = price_filters(kind, region)
        pages = client.get_paginator("get_products").paginate(ServiceCode="AmazonSageMaker", Filters=filters)
        price = on_demand_price(text for page in pages for text in page["PriceList"])
        if price is None:
            raise ValueError(f"--price-list must be a type that AWS's Price List has in {region}, got {kind!r}")
        found[kind] = replace(price, source=f"{price.source}, {region}")
    return found


def _quotas(account: Account) -> Mapping[tuple[str, bool], int]:
    """Machines for training that the account may have, by type and by whether they are spot."""
    pages = account.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    allowed = {}
    for page in pages:
        for quota in page["Quotas"]:
            kind, _, use = quota["QuotaName"].partition(" for ")
            if use in ("training job usage", "spot training job usage"):
                allowed[kind, use.startswith("spot")] = int(quota["Value"])
    return allowed
