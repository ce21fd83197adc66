"""An account that holds every call against its policies, bootstrapped, for the tests of a module. A process has one at a time."""

from collections.abc import Iterator
from contextlib import closing
from threading import Event, Thread

import aws_cdk as cdk
import pytest
from aws_account import AwsAccount
from counting import Counted, Counting
from deployed import Deployed, wait_until
from on_aws import OnAws

from sagemaker_local_account.account import LocalAccount

IN_ORDER = 654  # a seed that deals two to six hosts to their groups in order, so that tests can name them


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """``REGIONS`` of the module are its regions; ``RATES``: it throttles calls as AWS does."""
    state = tmp_path_factory.mktemp("account")
    if request.config.getoption("--aws"):
        with closing(OnAws(AwsAccount(state))) as on_aws:
            yield on_aws
        return
    regions = getattr(request.module, "REGIONS", ("us-east-1",))
    rates = getattr(request.module, "RATES", False)
    with LocalAccount(state=state, rates=rates, regions=regions, host_seed=IN_ORDER) as account:
        deployed = Deployed(account)
        deployed.bootstrap()
        yield deployed


@pytest.fixture
def no_job_left(deployed: Deployed) -> Iterator[None]:
    """What holds after each drill."""
    yield
    wait_until(lambda: not deployed.running_jobs())


@pytest.fixture(scope="module")
def counted(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """Workflows whose jobs count, for drills of faults."""
    return Counted(deployed, deployed.deploy(Counting(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly"))))))


@pytest.fixture
def faster(counted: Counted) -> Iterator[None]:
    """The account's clock, ten times as fast; at the end no fault is left."""
    over = Event()

    def advance() -> None:
        while not over.wait(0.5):
            counted.account.clock.advance(4.5)

    thread = Thread(target=advance)
    thread.start()
    yield
    over.set()
    thread.join()
    counted.mend()
