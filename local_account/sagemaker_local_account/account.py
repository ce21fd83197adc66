"""The local account: moto's server in this process, on loopback, with request authentication and training jobs that run.

    with LocalAccount(state=Path(".local-account")) as account:
        subprocess.run(["cdk", "deploy"], env=account.environment())

moto's state is in module globals, so a process has one account at a time, and each account begins empty. Its resources are in
memory, except for the state folder (mode 0700): the log, images, the jobs' folders, and `account.json` (mode 0600), with which
another terminal finds a running account.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gc
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sagemaker_local_account.core.clock import CLOCK, Clock
from sagemaker_local_account.core.fidelity import ASSUMPTIONS
from sagemaker_local_account.core.state import (
    CONFIG,
    DEFAULT_STATE,
    REGION,
    AccountError,
    RunningAccount,
    describe,
    environment_of,
    lock,
    make_private,
    write_commands,
)
from sagemaker_local_account.faults import Faults
from sagemaker_local_account.http.call_log import CallLog
from sagemaker_local_account.iam.authentication import SigV4Authentication
from sagemaker_local_account.runtime import leftovers
from sagemaker_local_account.runtime.limits import Limits
from sagemaker_local_account.runtime.spec import Fidelity

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

    from sagemaker_local_account.web.site import Site

_log = logging.getLogger(__name__)
_running = threading.Lock()
_UNWINDING_SECONDS = 1.0
_END_SECONDS = 0.1  # in which the server sees that it shall end


class LocalAccount:
    """An AWS account on this machine.

    While it runs, this process's AWS_* variables are removed.

    ``faults`` are the injected faults (`faults.py`). ``lost`` is, after the start, what was lost when the previous account on the
    folder was killed; None where it was not.

    Args:
        state: the state folder, made with mode 0700; by default `./.local-account`.
        port: the port on 127.0.0.1; 0 for a free one.
        devices: accelerators per instance type instead of the type's own, such as {"ml.p4d.24xlarge": 2}; also for instance types
            that the account lacks.
        fidelity: "strict" sets host names as on AWS's machines, which do not resolve; "relaxed" sets "algo-1" and so on.
        host_seed: deals the numbers of hosts, algo-1 and on, to instance groups, as the service does at random; None for a
            seed of each job, its name. `jobs.host_seed` sets it later. Relaxed fidelity keeps the groups' order without one.
        limits: the memory, processes and disk of each host of a job (docs/local-account.md).
        enforce_iam: evaluate the permissions of roles and users (docs/permissions.md); without it every call is allowed.
        scp: files with a service control policy for each level of the organization that the account is in; a level whose policy
            only denies has FullAWSAccess too.
        rates: throttle calls at the rates of a new AWS account (docs/many-jobs.md).
        regions: such as ["eu-west-1", "us-east-1"]; the first is the default of clients. Requests for other regions are rejected.
        web: serve the web page, whose address is ``description.web_url``.
    """

    def __init__(
        self,
        *,
        state: Path | str = DEFAULT_STATE,
        port: int = 0,
        devices: Mapping[str, int] | None = None,
        fidelity: Fidelity = "strict",
        host_seed: int | None = None,
        limits: Limits | None = None,
        enforce_iam: bool = True,
        scp: Sequence[Path | str] = (),
        rates: bool = False,
        regions: Sequence[str] = (REGION,),
        web: bool = False,
    ) -> None:
        self.state = Path(state).absolute()
        self.lost: str | None = None
        self.faults = Faults()
        self._port = port
        self._devices = dict(devices or {})
        self._fidelity = fidelity
        self._host_seed = host_seed
        self._limits = limits or Limits()
        self._enforce_iam = enforce_iam
        self._rates = rates
        self._web = web
        # Imported here, with botocore, which `local-account run` in a second terminal does not need.
        from sagemaker_local_account.aws.iam.organization import levels_of
        from sagemaker_local_account.iam.regions import validated

        self._organization = levels_of(scp)
        self._regions = validated(regions)
        self._lock: IO[str] | None = None
        self._server: BaseWSGIServer | None = None
        self._site: Site | None = None
        self._thread: threading.Thread | None = None
        self._log_handler: logging.Handler | None = None
        self._set_aside: dict[str, str] = {}
        self._description: RunningAccount | None = None
        self._described = False
        self._services: Any = None
        self._threads_before: frozenset[threading.Thread] = frozenset()

    @property
    def description(self) -> RunningAccount:
        """The process, port, root keys and regions of the running account; raises AccountError before its start."""
        if self._description is None:
            raise AccountError("the account is not running: call start(), or use it in a with statement")
        return self._description

    @property
    def clock(self) -> Clock:
        """The account's clock, which `advance(seconds)` advances."""
        return CLOCK

    @property
    def jobs(self) -> Any:
        """The `TrainingJobs` of the first region; see `jobs_in` for others."""
        return self.jobs_in(self.description.region)

    def jobs_in(self, region: str) -> Any:
        """Returns the `TrainingJobs` of a region."""
        return self._services.jobs[region]

    @property
    def endpoint_url(self) -> str:
        """`http://localhost:PORT`, for AWS_ENDPOINT_URL."""
        return self.description.endpoint_url

    def environment(self) -> dict[str, str]:
        """Returns the environment for a command that uses this account; see `environment_of`."""
        return environment_of(self.description, self.state)

    def permissions(self) -> dict[str, list[dict[str, Any]]]:
        """Returns which statements of each role's and user's policies were used since the start: by ARN, a row for each.

        A row has ``policy``, ``statement`` (its Sid or number), ``actions`` and ``resources``, each with what was called by it,
        ``used``, and ``needed``: whether no other statement allows one of these calls.
        """
        return dict(self._services.authorizer.use_of_permissions())

    def start(self) -> LocalAccount:
        """Starts the account; returns when it answers requests.

        Raises:
            AccountError: the folder is in use or cannot be written, the port cannot be bound, or another account is running in
            this
                process.
        """
        make_private(self.state)
        try:
            self._lock = lock(self.state)
        except OSError as error:
            raise AccountError(f"the state folder {self.state} cannot be used: {error}") from error
        if not _running.acquire(blocking=False):
            self._lock.close()
            raise AccountError("another LocalAccount is running in this process; close it first")
        try:
            self._start()
        except OSError as error:
            self.close()
            raise AccountError(f"the state folder {self.state} cannot be used: {error}") from error
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        # moto and the account's own clients read these: an inherited profile or endpoint must not lead to another account. They
        # are restored when the account is closed.
        ours = ("AWS_", "MOTO_PORT")
        self._set_aside = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(ours)}
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            os.environ[name] = str(self.state / CONFIG)

        from sagemaker_local_account.core import patches
        from sagemaker_local_account.http import server

        patches.undo_all()
        CLOCK.reset()
        ASSUMPTIONS.forget()
        self._threads_before = frozenset(threading.enumerate())
        self._log_handler = server.log_to(self.state / "account.log")
        self.lost = leftovers.losses(self.state)
        if self.lost is not None:
            _log.warning("%s", self.lost)
        leftovers.clear_written(self.state)
        listener = server.listen(self._port)
        port = listener.getsockname()[1]
        self._description = RunningAccount(
            pid=os.getpid(),
            port=port,
            access_key_id="AKIA" + base64.b32encode(secrets.token_bytes(10)).decode(),
            secret_access_key=secrets.token_urlsafe(30),
            regions=self._regions,
        )
        # The port that moto's interpreter and Lambda call back; 5000 if unset.
        os.environ["MOTO_PORT"] = str(port)
        # Imported here: moto takes a second and 150 MB, and `local-account run` in a second terminal does not need it. Garbage
        # collection among its tables of instance types, of which nothing becomes garbage, takes half a second more.
        collects = gc.isenabled()
        gc.disable()
        try:
            from sagemaker_local_account.services import Services
        finally:
            if collects:
                gc.enable()

        try:
            self._services = Services(
                self._description,
                state=self.state,
                faults=self.faults,
                devices=self._devices,
                fidelity=self._fidelity,
                host_seed=self._host_seed,
                limits=self._limits,
                enforce_iam=self._enforce_iam,
                organization=self._organization,
                rates=self._rates,
                environment=self.environment,
            )
        except BaseException:
            listener.close()
            raise
        authenticated = SigV4Authentication(
            self._services.app, port=port, issued=self._services.issued, region=self._description.region
        )
        calls = CallLog(authenticated, caller_of=self._services.caller_of, log=self.state / "account.log")
        self._server = server.make(listener, calls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_END_SECONDS,), name="local-account", daemon=True
        )
        self._thread.start()
        if self._web:
            from sagemaker_local_account.web.site import Site

            self._site = Site(self._services.content())
            self._description = dataclasses.replace(self._description, web_url=self._site.url)
        write_commands(self.state)
        describe(self.state, self._description)
        self._described = True

    def close(self) -> None:
        """Ends all jobs, builds and executions, closes the ports, and releases the state folder."""
        if self._site is not None:
            self._site.close()
            self._site = None
        if self._services is not None:
            self._services.close()
            self._services = None
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._description is not None:
            from sagemaker_local_account.aws.stepfunctions import backend
            from sagemaker_local_account.core import patches

            backend.stop_all()
            if not _still_running(self._threads_before):
                patches.undo_all()  # else the next account does so: running threads depend on them
            if self._described:  # else the file is that of an account that was killed
                (self.state / "account.json").unlink(missing_ok=True)
                self._described = False
            os.environ.pop("MOTO_PORT", None)
            self._description = None
        if self._log_handler is not None:
            from sagemaker_local_account.http import server

            server.stop_log(self._log_handler)
            self._log_handler = None
        if self._lock is not None:
            for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
                os.environ.pop(name, None)
            os.environ.update(self._set_aside)
            self._lock.close()
            self._lock = None
            _running.release()

    def __enter__(self) -> LocalAccount:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _still_running(before: frozenset[threading.Thread]) -> bool:
    """Whether a thread of the account still runs after a second, except those that wait for a client's next request."""
    ours = {*threading.enumerate()} - before - {threading.current_thread()}
    late = [thread for thread in ours if not thread.name.endswith("(process_request_thread)")]
    deadline = time.monotonic() + _UNWINDING_SECONDS
    for thread in late:
        while thread.ident is None and time.monotonic() < deadline:
            time.sleep(0.001)  # enumerate() includes threads that are being started, which cannot be joined
        with contextlib.suppress(RuntimeError):
            thread.join(max(deadline - time.monotonic(), 0))
    return any(thread.is_alive() for thread in late)
