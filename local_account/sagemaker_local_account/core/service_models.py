"""botocore's models of AWS's services, parsed once for the process: SageMaker's alone takes a third of a second."""

from __future__ import annotations

from functools import cache

from botocore.loaders import Loader
from botocore.model import ServiceModel


@cache
def loader() -> Loader:
    """What reads botocore's data, and keeps it."""
    return Loader()


@cache
def service_model(service: str) -> ServiceModel:
    """A service's operations and shapes.

    Args:
        service: botocore's name of the service.

    Raises:
        botocore.exceptions.UnknownServiceError: botocore has no such service.
    """
    return ServiceModel(loader().load_service_model(service, "service-2"), service)
