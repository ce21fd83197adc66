"""One account, bootstrapped, for the tests of the whole path."""

from collections.abc import Iterator

import pytest
from deployed import Deployed

from sagemaker_local_account.account import LocalAccount


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        deployed = Deployed(account)
        deployed.cdk("bootstrap", "aws://123456789012/us-east-1")
        yield deployed
