"""An account that holds every call against its policies, bootstrapped, for the tests of a module. A process has one at a time."""

from collections.abc import Iterator

import pytest
from deployed import Deployed

from sagemaker_local_account.account import LocalAccount


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with LocalAccount(state=tmp_path_factory.mktemp("account"), enforce_iam=True) as account:
        deployed = Deployed(account)
        deployed.cdk("bootstrap", "aws://123456789012/us-east-1")
        yield deployed
