"""The services of one account behind one WSGI application: moto's, of which some are replaced by this package's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.core.base_backend import BackendDict
from moto.core.config import default_user_config
from moto.core.model_instances import reset_model_data
from moto.core.utils import utcnow
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends
from werkzeug.wsgi import get_input_stream

from sagemaker_local_account.aws.awslambda import event_sources, functions
from sagemaker_local_account.aws.awslambda.event_sources import EventSources
from sagemaker_local_account.aws.batch.service import Batch
from sagemaker_local_account.aws.cloudformation import custom_resources, engine
from sagemaker_local_account.aws.cloudformation.cloud_control import CLOUD_CONTROL_TARGET, cloud_control_api
from sagemaker_local_account.aws.cloudformation.custom_resource_responses import BUCKET, Responses
from sagemaker_local_account.aws.cloudwatch import alarm_scheduler as cloudwatch
from sagemaker_local_account.aws.codebuild.api import CODEBUILD_TARGET, ECR_PUBLIC_TARGET, ecr_public_api
from sagemaker_local_account.aws.codebuild.service import CodeBuildService
from sagemaker_local_account.aws.events import bus, invocations, targets
from sagemaker_local_account.aws.events.schedule_timer import ScheduleTimer
from sagemaker_local_account.aws.fsx import file_systems as fsx
from sagemaker_local_account.aws.fsx import resources as fsx_resources
from sagemaker_local_account.aws.iam import documents, managed_policies, policy_sizes, simulation, user_boundaries
from sagemaker_local_account.aws.kms import key_states
from sagemaker_local_account.aws.logs import log_events
from sagemaker_local_account.aws.registry import AUTHORIZATIONS, RESOURCES
from sagemaker_local_account.aws.s3 import form_policy
from sagemaker_local_account.aws.s3 import notifications as s3_notifications
from sagemaker_local_account.aws.s3 import objects as s3_files
from sagemaker_local_account.aws.sagemaker import resources as sagemaker_resources
from sagemaker_local_account.aws.sagemaker.api import TARGET_PREFIX as OF_SAGEMAKER
from sagemaker_local_account.aws.sagemaker.api import sagemaker_api
from sagemaker_local_account.aws.sagemaker.job_store import TrainingJobs
from sagemaker_local_account.aws.sagemaker.model_registry import ModelRegistry
from sagemaker_local_account.aws.scheduler import schedules as scheduler
from sagemaker_local_account.aws.sns import subscriptions as sns
from sagemaker_local_account.aws.stepfunctions import backend, sagemaker_tasks
from sagemaker_local_account.aws.sts import sessions as sts
from sagemaker_local_account.control_api import TARGET_PREFIX as OF_ACCOUNT
from sagemaker_local_account.control_api import Control
from sagemaker_local_account.core import atomic_files, clients, error_responses
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.patches import patch_item
from sagemaker_local_account.core.state import RunningAccount
from sagemaker_local_account.faults import Faults
from sagemaker_local_account.http import moto_failures, moto_limits, server
from sagemaker_local_account.http.call_names import OPERATION
from sagemaker_local_account.http.dispatch import MotoServices, UnknownService
from sagemaker_local_account.http.rates import RateLimits
from sagemaker_local_account.iam.authentication import KEY, REGION, SERVICE, AuthenticationError, IssuedKey
from sagemaker_local_account.iam.authorizer import Authorizer, Caller, IamEnforcement
from sagemaker_local_account.iam.policies import Document
from sagemaker_local_account.iam.regions import RegionCheck
from sagemaker_local_account.images.image_store import ImageStore
from sagemaker_local_account.runtime import leftovers
from sagemaker_local_account.runtime.limits import Limits
from sagemaker_local_account.runtime.spec import Fidelity
from sagemaker_local_account.storage.file_systems import FileSystems
from sagemaker_local_account.web.content import Content

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class Services:
    """The services of an account; moto's, of which a process has one set, are reset.

    ``app`` is the WSGI application for authenticated requests, and ``authorizer`` evaluates permissions.

    Args:
        account: the account's port, root keys and regions.
        state: the state folder.
        faults: the faults to inject.
        devices: accelerators per instance type, instead of the type's own.
        fidelity: how closely hosts resemble AWS's.
        host_seed: deals the numbers of hosts to instance groups; None for a seed of each job, its name.
        limits: the memory, processes and disk of hosts.
        enforce_iam: whether to evaluate permissions.
        organization: the service control policies of each level of the account's organization.
        rates: whether to throttle calls at all rates that AWS is known to have.
        environment: returns the environment of the account's clients.
    """

    def __init__(
        self,
        account: RunningAccount,
        *,
        state: Path,
        faults: Faults,
        devices: Mapping[str, int],
        fidelity: Fidelity,
        host_seed: int | None,
        limits: Limits,
        enforce_iam: bool,
        organization: Sequence[Sequence[Document]],
        rates: bool,
        environment: Callable[[], Mapping[str, str]],
    ) -> None:
        BackendDict.reset()  # before what follows, so that backends that are to go do not load the policies once more
        reset_model_data()
        patch_item(default_user_config, "stepfunctions", {"execute_state_machine": True})
        patch_item(default_user_config, "iam", {"load_aws_managed_policies": True})
        managed_policies.install()
        policy_sizes.install()
        documents.install()
        self._account, self._state, self._faults = account, state, faults
        self._rates = RateLimits(account.regions, all_rates=rates)
        first = Location(account.account_id, account.region)
        self.authorizer = Authorizer(
            first, AUTHORIZATIONS, self._tags_of, organization=organization, enforced=enforce_iam
        )
        self._sessions, self._tokens = sts.RoleSessions(self.authorizer), sts.SessionTokens()
        self._clients = clients.Clients(account.endpoint_url)
        self._root_keys = {
            "AWS_ACCESS_KEY_ID": account.access_key_id,
            "AWS_SECRET_ACCESS_KEY": account.secret_access_key,
        }
        self._deliveries = invocations.Deliveries()
        self._complete_moto()
        file_systems = FileSystems(
            state / leftovers.FILE_SYSTEMS,
            account.account_id,
            self.authorizer,
            self._clients.client("s3", account.region, self._root_keys, clients.OF_JOBS),
        )
        images = ImageStore(state)
        for former in (state / leftovers.JOBS).glob("*/"):  # a folder of jobs for each region
            leftovers.clear(former)
        self.jobs = {
            region: TrainingJobs(
                folder=state / leftovers.JOBS / region,
                endpoint_url=account.endpoint_url,
                location=Location(account.account_id, region),
                root=functools.partial(self._client_of_root, region),
                clients=self._clients,
                sessions=self._sessions,
                authorizer=self.authorizer,
                images=images,
                file_systems=file_systems,
                on_change=functools.partial(self._training_job_changed, region),
                devices=devices,
                fidelity=fidelity,
                host_seed=host_seed,
                limits=limits,
                faults=faults,
            )
            for region in account.regions
        }
        self._batch = Batch(account.account_id, self.jobs)
        file_systems.open()  # after all hosts of an earlier account have ended
        fsx.install(file_systems)
        bus.lose(faults)
        sagemaker_tasks.lose(faults)
        fsx_resources.install(file_systems)
        self._alarms = cloudwatch.AlarmScheduler()
        self._schedules = ScheduleTimer(targets.invoke_due, scheduler.invoke_due)
        self._responses = Responses(
            lambda region: self._clients.client("s3", region, self._root_keys, clients.OF_BUILDS)
        )
        self._builds = CodeBuildService(
            account, state, self._root_keys, self._clients, self._sessions, environment, self._responses
        )
        custom_resources.install(self._responses)
        self._functions = functions.Functions(
            state / leftovers.FUNCTIONS, self._clients, self._sessions, environment, self.authorizer
        )
        functions.install(self._functions)
        self._event_sources = EventSources(self._functions)
        event_sources.install(self._event_sources)
        registries = {region: ModelRegistry(account.account_id, region) for region in account.regions}
        sagemaker_resources.install(registries)
        # By the prefix of X-Amz-Target, or the name of a service without it, and of regional services the region; all others are
        # moto's.
        self._apis: dict[str | tuple[str, str], Any] = {
            OF_ACCOUNT: Control(faults, self.authorizer, is_root=lambda environ: environ[KEY] == account.access_key_id),
            ECR_PUBLIC_TARGET: ecr_public_api(),
            **{("batch", region): api for region, api in self._batch.apis.items()},
            **{(OF_SAGEMAKER, region): sagemaker_api(jobs, registries[region]) for region, jobs in self.jobs.items()},
            **{(CODEBUILD_TARGET, region): api for region, api in self._builds.apis.items()},
            **{
                (CLOUD_CONTROL_TARGET, region): cloud_control_api(Location(account.account_id, region))
                for region in account.regions
            },
        }
        self._moto = MotoServices()
        self.app = RegionCheck(
            IamEnforcement(self._route, self.authorizer, self._caller_of),
            account.account_id,
            account.regions,
            AUTHORIZATIONS,
        )

    def _tags_of(self, arn: str) -> Mapping[str, str] | None:
        """Returns the tags of a training job or a service job, none of one that does not exist; None for other resources."""
        _, _, _, region, _, resource, *_ = f"{arn}:::::".split(":")
        kind, _, name = resource.partition("/")
        if region in self.jobs and kind == "training-job":
            return self.jobs[region].tags_of(name)
        if region in self.jobs and kind == "service-job":
            return self._batch.tags_of(region, name)
        return None

    def issued(self, access_key_id: str) -> IssuedKey | None:
        """Returns a key of this account: the root's, a session's, or an active key of an IAM user; else None.

        Raises:
            AuthenticationError: the session has expired.
        """
        if access_key_id == self._account.access_key_id:
            return IssuedKey(access_key_id, self._account.secret_access_key)
        role = sts_backends[self._account.account_id]["aws"].get_assumed_role_from_access_key(access_key_id)
        session = role or self._tokens.get(access_key_id)
        if session is not None:
            if session.expiration < utcnow():
                raise AuthenticationError("ExpiredToken", "The security token included in the request is expired")
            principal_key = self._tokens.principal_key(access_key_id)
            return IssuedKey(principal_key, session.secret_access_key, session.session_token)
        key = iam_backends[self._account.account_id]["aws"].access_keys.get(access_key_id)
        if key is None or key.status != "Active":
            return None
        return IssuedKey(access_key_id, key.secret_access_key)

    def caller_of(self, access_key_id: str) -> str:
        """Returns the ARN of an access key's principal, as in CloudTrail's userIdentity; `-` for an unknown key."""
        if access_key_id == self._account.access_key_id:
            return f"arn:aws:iam::{self._account.account_id}:root"
        session = sts_backends[self._account.account_id]["aws"].get_assumed_role_from_access_key(access_key_id)
        if session is not None:
            return str(session.arn)
        key = iam_backends[self._account.account_id]["aws"].access_keys.get(access_key_id)
        return f"arn:aws:iam::{self._account.account_id}:user/{key.user_name}" if key is not None else "-"

    def content(self) -> Content:
        """Returns what the web page shows."""
        return Content(
            self._account.regions,
            lambda service, region: self._clients.client(service, region, self._root_keys, clients.OF_JOBS),
            self.jobs,
        )

    def close(self) -> None:
        """Ends all builds and jobs, the evaluation of alarms and the delivery of events."""
        self._builds.close()
        self._batch.close()
        for jobs in self.jobs.values():
            jobs.close()
        self._schedules.close()
        self._alarms.close()
        self._deliveries.close()
        self._event_sources.close()
        self._functions.close()

    def _training_job_changed(self, region: str, job: dict[str, Any]) -> None:
        bus.training_job_changed(job)
        self._batch.wake(region)

    def _client_of_root(self, region: str, service: str) -> Any:
        return self._clients.client(service, region, self._root_keys, clients.OF_JOBS)

    def _complete_moto(self) -> None:
        def of_states(service: str, region: str, role_arn: str, machine_arn: str) -> Any:
            role_keys = self._sessions.credentials(role_arn, backend.SERVICE, machine_arn)
            return self._clients.client(service, region, role_keys, clients.OF_STATES)

        s3_files.install(self._state / "s3")
        form_policy.install()
        s3_notifications.install(self.authorizer, self._deliveries)
        sts.install(self._account.access_key_id, self._tokens)
        backend.install(of_states, self.authorizer)
        engine.install(RESOURCES)
        cloudwatch.install()
        sns.install(self.authorizer)
        targets.install(self.authorizer, self._deliveries)
        scheduler.install(self.authorizer, self._deliveries)
        key_states.install()
        log_events.install()
        moto_limits.install()
        simulation.install(self.authorizer)
        user_boundaries.install()

    def _caller_of(self, environ: WSGIEnvironment) -> tuple[Caller, str]:
        return self.authorizer.caller(environ[KEY], self._account.access_key_id), environ[SERVICE]

    def _route(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        target, dot, _ = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
        named = target + dot or environ[SERVICE]
        app = self._apis.get((named, environ[REGION])) or self._apis.get(named, self._moto)
        # Limited to the body's length, so that an error response can read the rest of a partly read body.
        environ["wsgi.input"] = get_input_stream(environ)
        try:
            if environ["PATH_INFO"].startswith(f"/{BUCKET}"):
                return self._responses(environ, start_response)
            if environ[SERVICE] == "s3":
                return self._faults.delayed(app, environ, start_response)
            if not self._rates.take(environ[REGION], environ[SERVICE], environ[OPERATION]):
                return error_responses.throttled(environ, start_response)
            answer = self._faults.of_calls(
                lambda: (environ[OPERATION], self.caller_of(environ[KEY])), app, environ, start_response
            )
        except UnknownService as error:
            return error_responses.error(
                environ, start_response, "400 Bad Request", "UnknownOperationException", str(error)
            )
        except NotImplementedError as error:
            # moto's exception for an operation that it lacks. Clients would retry a 500.
            message = f"the local account does not support this operation: {error}"
            return error_responses.error(
                environ, start_response, "400 Bad Request", "UnknownOperationException", message
            )
        except RecursionError:
            # Of a document in the request; clients would retry a 500.
            message = "the request has a document that is nested too deeply"
            return error_responses.error(environ, start_response, "400 Bad Request", "ValidationException", message)
        except Exception as error:
            if atomic_files.is_disk_full(error):
                return server.disk_full(environ, start_response, self._state, error)
            if moto_failures.is_of_input(error):
                return moto_failures.answered(environ, start_response, environ[SERVICE], error)
            raise  # handled by CallLog
        return answer
