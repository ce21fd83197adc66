"""Dollars an hour of machines: the user's table, AWS's Price List, and a dated snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from training_jobs.facts.instance_facts import instance_facts
from training_jobs.planning.measurement import Measurement

_A_YEAR = 365
SNAPSHOT = Path(__file__).parent / "prices.json"
PRICE_LIST_REGION = "us-east-1"  # of the API's endpoint; the prices are those of regionCode


@dataclass(frozen=True)
class Price:
    """What an hour of a machine costs.

    Attributes:
        dollars: Of an hour.
        source: Where the price is from, with its date where that is known.
    """

    dollars: float
    source: str


def snapshot_prices(measurement: Measurement) -> dict[str, Price]:
    """Return the prices of ``prices.json``, which names its source and date, of types that can be in a plan.

    Args:
        measurement: Of the training; types with accelerators on which no step was measured are left out.
    """
    about, prices = _table(SNAPSHOT)
    source = f"snapshot of {about['_date']}, {about['_region']}, on demand ({about['_source']})"
    found = {}
    for kind, dollars in prices.items():
        facts = instance_facts(kind)
        if facts is not None and (facts.kind is None or {kind, facts.name} & set(measurement.step_seconds)):
            found[kind] = Price(dollars, source)
    return found


def snapshot_price(instance_type: str) -> float | None:
    """Return the dollars an hour of a type in ``prices.json``, on demand; None if it is not there.

    Args:
        instance_type: The type.
    """
    return _table(SNAPSHOT)[1].get(instance_type)


def table_prices(file: Path) -> dict[str, Price]:
    """Return the prices of the user's table, with its members ``_source`` and ``_date`` where it has them.

    Args:
        file: As for ``read_prices``.

    Raises:
        ValueError: As of ``read_prices``.
    """
    members, prices = _table(file)
    about = ", ".join(str(members[name]) for name in ("_source", "_date") if name in members)
    return {kind: Price(dollars, f"{file.name} ({about})" if about else file.name) for kind, dollars in prices.items()}


def read_prices(file: Path) -> dict[str, float]:
    """Return dollars an hour by instance type.

    Args:
        file: A JSON object of types and dollars; members that begin with ``_``, such as the source, are left out.

    Raises:
        ValueError: The file cannot be read, or a price is no number above 0.
    """
    return _table(file)[1]


def _table(file: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """The members of a file of prices that say what it is, and the prices."""
    try:
        content: Any = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"the prices must be a JSON file, like prices.json, got {str(file)!r}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f'{file} must hold an object, like {{"ml.g5.xlarge": 1.408}}')
    about = {name: value for name, value in content.items() if name.startswith("_")}
    prices = {kind: price for kind, price in content.items() if kind not in about}
    for kind, price in prices.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or price <= 0:
            raise ValueError(f"the price of {kind} must be dollars an hour, like 1.408, got {price!r}")
    return about, prices


def price_filters(instance_type: str, region: str) -> list[dict[str, str]]:
    """Return the filters of the Price List API's GetProducts for a type's training jobs.

    The attributes' names are those of AWS's own client for hosting prices (aws-solutions, SageMaker inference benchmarking:
    ``PricingClient``), with ``platoinstancetype`` of training.

    Args:
        instance_type: The type.
        region: The region whose price is meant.
    """
    wanted = {
        "productFamily": "ML Instance",
        "regionCode": region,
        "instanceName": instance_type,
        "platoinstancetype": "Training",
    }
    return [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]


def on_demand_price(products: Iterable[str | Mapping[str, Any]]) -> Price | None:
    """Return the price of the first product that has one on demand.

    Args:
        products: The answer's ``PriceList``: a JSON text each ("GetProducts", API reference of AWS Billing), with
            ``publicationDate`` and ``terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD``.
    """
    for product in products:
        content = json.loads(product) if isinstance(product, str) else product
        published = str(content.get("publicationDate", ""))[:10]
        source = f"AWS's Price List, published {published}" if published else "AWS's Price List"
        for term in content.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term.get("priceDimensions", {}).values():
                dollars = float(dimension.get("pricePerUnit", {}).get("USD", 0))
                if dollars > 0:
                    return Price(dollars, source)
    return None


def age_lines(prices: Mapping[str, Price], today: date) -> list[str]:
    """Return a warning for each source whose date is more than a year ago.

    Args:
        prices: By type.
        today: The day.
    """
    lines = []
    for source in dict.fromkeys(price.source for price in prices.values()):
        found = re.search(r"\d{4}-\d\d-\d\d", source)
        if found and (days := (today - date.fromisoformat(found[0])).days) > _A_YEAR:
            lines.append(
                f"warning: the prices of {found[0]} are {days // 30} months old, and AWS has lowered some since: "
                "--price-list TYPE reads today's, --prices FILE and --price TYPE=DOLLARS take yours"
            )
    return lines


def price_lines(prices: Mapping[str, Price]) -> list[str]:
    """Return a line for each source, with the types whose prices are from it.

    Args:
        prices: By type.
    """
    kinds: dict[str, list[str]] = {}
    for kind, price in prices.items():
        kinds.setdefault(price.source, []).append(f"{kind} ${price.dollars:g}")
    return [f"prices an hour, {source}: {', '.join(sorted(named))}" for source, named in kinds.items()]
