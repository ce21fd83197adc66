"""Dollars an hour of machines: the user's table, and AWS's Price List."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PRICE_LIST_REGION = "us-east-1"  # of the API's endpoint; the prices are those of regionCode


def read_prices(file: Path) -> dict[str, float]:
    """Return dollars an hour by instance type.

    Args:
        file: A JSON object of types and dollars; members that begin with ``_``, such as the source, are left out.

    Raises:
        ValueError: The file cannot be read, or a price is no number above 0.
    """
    try:
        content: Any = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"the prices must be a JSON file, like prices.json, got {str(file)!r}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f'{file} must hold an object, like {{"ml.g5.xlarge": 1.408}}')
    prices = {str(kind): price for kind, price in content.items() if not str(kind).startswith("_")}
    for kind, price in prices.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or price <= 0:
            raise ValueError(f"the price of {kind} must be dollars an hour, like 1.408, got {price!r}")
    return prices


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


def on_demand_price(products: Iterable[str | Mapping[str, Any]]) -> float | None:
    """Return dollars an hour of the first product that has an on-demand price.

    Args:
        products: The answer's ``PriceList``: a JSON text each ("GetProducts", API reference of AWS Billing), with
            ``terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD``.
    """
    for product in products:
        content = json.loads(product) if isinstance(product, str) else product
        for term in content.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term.get("priceDimensions", {}).values():
                dollars = float(dimension.get("pricePerUnit", {}).get("USD", 0))
                if dollars > 0:
                    return dollars
    return None
