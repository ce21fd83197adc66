"""The account itself: moto's server in this process, on loopback, behind the gate, with training jobs that run.

    with LocalAccount(state=Path(".local-account")) as account:
        subprocess.run(["cdk", "deploy"], env=account.environment())

moto keeps its services in module globals, so a process holds one account at a time; a closed account leaves them empty
for the next. Everything is in memory except what lies in the state folder (mode 0700): the log, the images, the jobs'
working folders, and `account.json` (mode 0600), by which another terminal finds a running account.
"""

from __future__ import annotations

import base64
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from . import answers
from .faults import Faults
from .gate import Gate, IssuedKey
from .state import (
    ACCOUNT_ID,
    DEFAULT_STATE,
    REGION,
    AccountError,
    RunningAccount,
    describe,
    environment_of,
    lock,
    make_private,
    write_docker_command,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from werkzeug.serving import BaseWSGIServer

_log = logging.getLogger(__name__)
_running = threading.Lock()


class LocalAccount:
    """An AWS account on this machine.

    While it runs, this process's own AWS_* variables are set aside.

    Args:
        state: the account's folder, made with mode 0700; `./.local-account` unless said.
        port: where it listens on 127.0.0.1; 0 takes a free port.
        devices: accelerators per instance type that jobs see instead of the type's own, such as {"ml.p4d.24xlarge": 2}.
        enforce_iam: evaluate the permissions of every role and user, as AWS does; docs/permissions.md has which.

    ``faults`` are what shall go wrong; see `faults.py`.
    """

    def __init__(
        self,
        *,
        state: Path = DEFAULT_STATE,
        port: int = 0,
        devices: Mapping[str, int] | None = None,
        enforce_iam: bool = False,
    ) -> None:
        self.state = state.absolute()
        self.faults = Faults()
        self._port = port
        self._devices = dict(devices or {})
        self._enforce_iam = enforce_iam
        self._lock: IO[str] | None = None
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._log_handler: logging.Handler | None = None
        self._set_aside: dict[str, str] = {}
        self._description: RunningAccount | None = None
        self._clock: Any = None
        self.jobs: Any = None
        self.builds: Any = None

    @property
    def description(self) -> RunningAccount:
        if self._description is None:
            raise AccountError("the account is not running: call start(), or use it in a with statement")
        return self._description

    @property
    def endpoint_url(self) -> str:
        """`http://localhost:PORT`, for AWS_ENDPOINT_URL."""
        return self.description.endpoint_url

    def environment(self) -> dict[str, str]:
        """The whole environment for a command that shall use this account; see `environment_of`."""
        return environment_of(self.description, self.state)

    def start(self) -> LocalAccount:
        """Begin to listen; return once requests are answered."""
        make_private(self.state)
        self._lock = lock(self.state)
        if not _running.acquire(blocking=False):
            self._lock.close()
            raise AccountError("another LocalAccount is running in this process; close it first")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        # moto and the account's own clients read these: an inherited profile or endpoint must not lead elsewhere. They are
        # back when the account is closed.
        self._set_aside = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("AWS_")}
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            os.environ[name] = str(self.state / "aws-config")

        from . import server

        self._log_handler = server.log_to(self.state / "account.log")
        listener = server.listen(self._port)
        port = listener.getsockname()[1]
        self._description = RunningAccount(
            pid=os.getpid(),
            port=port,
            access_key_id="AKIA" + base64.b32encode(secrets.token_bytes(10)).decode(),
            secret_access_key=secrets.token_urlsafe(30),
        )
        # moto's interpreter and its Lambda call back to this port; 5000 if unset.
        os.environ["MOTO_PORT"] = str(port)
        try:
            app = self._application()
        except BaseException:
            listener.close()
            raise
        self._server = server.make(listener, Gate(app, port=port, issued=self._issued))
        self._thread = threading.Thread(target=self._server.serve_forever, name="local-account", daemon=True)
        self._thread.start()
        describe(self.state, self._description)
        write_docker_command(self.state)

    def _application(self) -> Any:
        # Imported here: moto takes a second and 150 MB that `local-account run` in a second terminal does not need.
        from moto.core.config import default_user_config
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        from . import (
            build_resources,
            clients,
            cloudformation,
            cloudwatch,
            event_targets,
            events,
            keys,
            log_events,
            notifications,
            server,
            sessions,
            simulation,
            stepfunctions,
        )
        from .api_calls import Place
        from .build import Surroundings
        from .codebuild import CodeBuild
        from .codebuild_api import CODEBUILD_TARGET, ECR_PUBLIC_TARGET, codebuild_api, ecr_public_api
        from .control import TARGET_PREFIX as OF_ACCOUNT
        from .control import Control
        from .gate import KEY, SERVICE
        from .images import ImageStore
        from .permissions import Caller, Enforced, Permissions
        from .responses import BUCKET, Responses
        from .sagemaker_api import TARGET_PREFIX as OF_SAGEMAKER
        from .sagemaker_api import sagemaker_api
        from .training_jobs import TrainingJobs

        default_user_config["stepfunctions"] = {"execute_state_machine": True}
        default_user_config["iam"] = {"load_aws_managed_policies": True}
        _forget_everything()
        root_key_id = self.description.access_key_id
        sessions.install(root_key_id)
        permissions = Permissions(Place(ACCOUNT_ID, REGION), enforced=self._enforce_iam)
        keys_of = sessions.Sessions(permissions)
        made = clients.Clients(self.endpoint_url)

        def of_states(service: str, region: str, role_arn: str, machine_arn: str) -> Any:
            keys = keys_of.of(role_arn, stepfunctions.SERVICE, machine_arn)
            return made.client(service, region, keys, clients.OF_STATES)

        stepfunctions.install(of_states, permissions)
        cloudformation.install()
        cloudwatch.install()
        notifications.install(permissions)
        event_targets.install(permissions)
        keys.install()
        log_events.install()
        simulation.install(permissions)
        self.jobs = TrainingJobs(
            state=self.state,
            endpoint_url=self.endpoint_url,
            region=REGION,
            account_id=ACCOUNT_ID,
            root=lambda service: made.client(service, REGION, self._root_keys(), clients.OF_JOBS),
            clients=made,
            sessions=keys_of,
            permissions=permissions,
            images=ImageStore(self.state),
            on_change=events.training_job_changed,
            devices=self._devices,
            faults=self.faults,
        )
        self._clock = cloudwatch.Clock()
        self.builds = CodeBuild(
            Surroundings(
                self.state / "builds", self.endpoint_url, self._root_keys(), made, keys_of, environment=self.environment
            )
        )
        responses = Responses(made.client("s3", REGION, self._root_keys(), clients.OF_BUILDS))
        build_resources.install(self.builds, responses)
        apis: dict[str, Any] = {
            OF_ACCOUNT: Control(self.faults, is_root=lambda environ: environ[KEY] == root_key_id),
            OF_SAGEMAKER: sagemaker_api(self.jobs, self.faults),
            CODEBUILD_TARGET: codebuild_api(self.builds),
            ECR_PUBLIC_TARGET: ecr_public_api(),
        }
        moto = DomainDispatcherApplication(create_backend_app)

        def caller_of(environ: WSGIEnvironment) -> tuple[Caller, str]:
            return permissions.caller(environ[KEY], root_key_id), environ[SERVICE]

        def route(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            target, dot, _ = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
            try:
                if environ["PATH_INFO"].startswith(f"/{BUCKET}/"):
                    return responses(environ, start_response)
                app = apis.get(target + dot, moto)
                if environ[SERVICE] == "s3":
                    return self.faults.slowly(app, environ, start_response)
                answer: Iterable[bytes] = app(environ, start_response)
            except NotImplementedError as error:
                # moto's word for an operation that it lacks. A 500 would be tried again by every client.
                message = f"the local account does not have this operation: {error}"
                return answers.error(environ, start_response, "400 Bad Request", "UnknownOperationException", message)
            except Exception:
                _log.exception("%s %s", environ["REQUEST_METHOD"], environ["REQUEST_URI"])
                return server.internal_failure(environ, start_response, self.state / "account.log")
            return answer

        return Enforced(route, permissions, caller_of)

    def _root_keys(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.description.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.description.secret_access_key,
        }

    def _issued(self, access_key_id: str) -> IssuedKey | None:
        description = self.description
        if access_key_id == description.access_key_id:
            return IssuedKey(access_key_id, description.secret_access_key)
        from moto.iam.models import iam_backends
        from moto.sts.models import sts_backends

        role = sts_backends[ACCOUNT_ID]["aws"].get_assumed_role_from_access_key(access_key_id)
        if role is not None:
            return IssuedKey(access_key_id, role.secret_access_key, role.session_token)
        key = iam_backends[ACCOUNT_ID]["aws"].access_keys.get(access_key_id)
        if key is None or key.status != "Active":
            return None
        return IssuedKey(access_key_id, key.secret_access_key)

    def close(self) -> None:
        """End every job and execution, stop listening, and give the state folder free."""
        if self.builds is not None:
            self.builds.close()
            self.builds = None
        if self.jobs is not None:
            self.jobs.close()
            self.jobs = None
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._description is not None:
            from . import stepfunctions

            stepfunctions.stop_all()
            (self.state / "account.json").unlink(missing_ok=True)
            os.environ.pop("MOTO_PORT", None)
            self._description = None
        if self._log_handler is not None:
            from . import server

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


def _forget_everything() -> None:
    """Empty moto's services of what an earlier account of this process left in them."""
    from moto.core.base_backend import BackendDict
    from moto.core.model_instances import reset_model_data

    BackendDict.reset()
    reset_model_data()
