"""The services of one account behind one WSGI application: moto's, and those of this package in the places of some."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.core.base_backend import BackendDict
from moto.core.config import default_user_config
from moto.core.model_instances import reset_model_data
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends
from werkzeug.wsgi import get_input_stream

from . import (
    answers,
    atomic_files,
    build_resources,
    clients,
    cloudformation,
    cloudwatch,
    custom_resources,
    event_targets,
    events,
    functions,
    keys,
    leftovers,
    log_events,
    lustre_resources,
    moto_limits,
    notifications,
    s3_files,
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
from .dispatch import MotoServices, UnknownService
from .faults import Faults
from .file_systems import FileSystems
from .gate import KEY, REGION, SERVICE, IssuedKey
from .images import ImageStore
from .limits import Limits
from .patches import patch_item
from .permissions import Caller, Enforced, Permissions
from .regions import Regional
from .responses import BUCKET, Responses
from .sagemaker_api import TARGET_PREFIX as OF_SAGEMAKER
from .sagemaker_api import sagemaker_api
from .spec import Fidelity
from .state import RunningAccount
from .training_jobs import TrainingJobs

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class Services:
    """All services of an account. moto has one set of them in a process, which this empties and takes.

    ``app`` answers requests that the gate let pass; ``environment`` is that of the account's clients outside.
    """

    def __init__(
        self,
        account: RunningAccount,
        *,
        state: Path,
        faults: Faults,
        devices: Mapping[str, int],
        fidelity: Fidelity,
        limits: Limits,
        enforce_iam: bool,
        environment: Callable[[], Mapping[str, str]],
    ) -> None:
        patch_item(default_user_config, "stepfunctions", {"execute_state_machine": True})
        patch_item(default_user_config, "iam", {"load_aws_managed_policies": True})
        BackendDict.reset()
        reset_model_data()
        self._account, self._state, self._faults = account, state, faults
        first = Place(account.account_id, account.region)
        self._permissions = Permissions(first, enforced=enforce_iam)
        self._sessions = sessions.Sessions(self._permissions)
        self._clients = clients.Clients(account.endpoint_url)
        self._root_keys = {
            "AWS_ACCESS_KEY_ID": account.access_key_id,
            "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        }
        self._complete_moto()
        file_systems = FileSystems(
            state / leftovers.FILE_SYSTEMS,
            account.account_id,
            self._permissions,
            self._clients.client("s3", account.region, self._root_keys, clients.OF_JOBS),
        )
        images = ImageStore(state)
        for former in (state / leftovers.JOBS).glob("*/"):  # a folder of jobs for each region
            leftovers.clear(former)
        self.jobs = {
            region: TrainingJobs(
                folder=state / leftovers.JOBS / region,
                endpoint_url=account.endpoint_url,
                place=Place(account.account_id, region),
                root=functools.partial(self._client_of_root, region),
                clients=self._clients,
                sessions=self._sessions,
                permissions=self._permissions,
                images=images,
                file_systems=file_systems,
                on_change=events.training_job_changed,
                devices=devices,
                fidelity=fidelity,
                limits=limits,
                faults=faults,
            )
            for region in account.regions
        }
        file_systems.open()  # now that no host of an earlier account runs any more
        lustre_resources.install(file_systems)
        self._clock = cloudwatch.Clock()
        leftovers.clear(state / leftovers.BUILDS)  # of an account that was killed
        self._builds = {
            region: CodeBuild(
                Surroundings(
                    Place(account.account_id, region),
                    state / leftovers.BUILDS,
                    account.endpoint_url,
                    self._root_keys,
                    self._clients,
                    self._sessions,
                    environment,
                )
            )
            for region in account.regions
        }
        self._responses = Responses(
            lambda region: self._clients.client("s3", region, self._root_keys, clients.OF_BUILDS)
        )
        build_resources.install(self._builds, self._responses)
        custom_resources.install(self._responses)
        functions.install(functions.Functions(state / leftovers.FUNCTIONS, self._clients, self._sessions, environment))
        # By the beginning of X-Amz-Target, those of each region by their region too; all else is moto's.
        self._apis: dict[str | tuple[str, str], Any] = {
            OF_ACCOUNT: Control(faults, is_root=lambda environ: environ[KEY] == account.access_key_id),
            ECR_PUBLIC_TARGET: ecr_public_api(),
            **{(OF_SAGEMAKER, region): sagemaker_api(jobs, faults) for region, jobs in self.jobs.items()},
            **{(CODEBUILD_TARGET, region): codebuild_api(builds) for region, builds in self._builds.items()},
        }
        self._moto = MotoServices()
        self.app = Regional(
            Enforced(self._route, self._permissions, self._caller_of), account.account_id, account.regions
        )

    def issued(self, access_key_id: str) -> IssuedKey | None:
        """A key that this account gave out: its root's, a role's session's, or an IAM user's that is active."""
        if access_key_id == self._account.access_key_id:
            return IssuedKey(access_key_id, self._account.secret_access_key)
        role = sts_backends[self._account.account_id]["aws"].get_assumed_role_from_access_key(access_key_id)
        if role is not None:
            return IssuedKey(access_key_id, role.secret_access_key, role.session_token)
        key = iam_backends[self._account.account_id]["aws"].access_keys.get(access_key_id)
        if key is None or key.status != "Active":
            return None
        return IssuedKey(access_key_id, key.secret_access_key)

    def caller_of(self, access_key_id: str) -> str:
        """The ARN of whose key that is, as CloudTrail has it in userIdentity: the root's, a role's session's or a user's."""
        if access_key_id == self._account.access_key_id:
            return f"arn:aws:iam::{self._account.account_id}:root"
        session = sts_backends[self._account.account_id]["aws"].get_assumed_role_from_access_key(access_key_id)
        if session is not None:
            return str(session.arn)
        key = iam_backends[self._account.account_id]["aws"].access_keys.get(access_key_id)
        return f"arn:aws:iam::{self._account.account_id}:user/{key.user_name}" if key is not None else "-"

    def close(self) -> None:
        """End every build and job, and what watches alarms."""
        for builds in self._builds.values():
            builds.close()
        for jobs in self.jobs.values():
            jobs.close()
        self._clock.close()

    def _client_of_root(self, region: str, service: str) -> Any:
        return self._clients.client(service, region, self._root_keys, clients.OF_JOBS)

    def _complete_moto(self) -> None:
        def of_states(service: str, region: str, role_arn: str, machine_arn: str) -> Any:
            role_keys = self._sessions.of(role_arn, stepfunctions.SERVICE, machine_arn)
            return self._clients.client(service, region, role_keys, clients.OF_STATES)

        s3_files.install(self._state / "s3")
        sessions.install(self._account.access_key_id)
        stepfunctions.install(of_states, self._permissions)
        cloudformation.install()
        cloudwatch.install()
        notifications.install(self._permissions)
        event_targets.install(self._permissions)
        keys.install()
        log_events.install()
        moto_limits.install()
        simulation.install(self._permissions)

    def _caller_of(self, environ: WSGIEnvironment) -> tuple[Caller, str]:
        return self._permissions.caller(environ[KEY], self._account.access_key_id), environ[SERVICE]

    def _route(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        target, dot, _ = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
        app = self._apis.get((target + dot, environ[REGION])) or self._apis.get(target + dot, self._moto)
        # It ends where the body ends, so that an error's answer may read what is left of a body that was read or was not.
        environ["wsgi.input"] = get_input_stream(environ)
        try:
            if environ["PATH_INFO"].startswith(f"/{BUCKET}"):
                return self._responses(environ, start_response)
            if environ[SERVICE] == "s3":
                return self._faults.slowly(app, environ, start_response)
            answer: Iterable[bytes] = app(environ, start_response)
        except UnknownService as error:
            return answers.error(environ, start_response, "400 Bad Request", "UnknownOperationException", str(error))
        except NotImplementedError as error:
            # moto's word for an operation that it lacks. A 500 would be tried again by every client.
            message = f"the local account does not have this operation: {error}"
            return answers.error(environ, start_response, "400 Bad Request", "UnknownOperationException", message)
        except Exception as error:
            if atomic_files.is_disk_full(error):
                return server.disk_full(environ, start_response, self._state, error)
            raise  # to `call_log.py`
        return answer
