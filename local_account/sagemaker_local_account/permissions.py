"""Whether the account lets a caller do what it asks for (`local-account --enforce-iam`).

moto evaluates neither conditions nor, but for S3 and a few more, resources, so that least privilege would look wrong in it.
Here every request is taken apart into IAM calls (`api_calls.py`), and each is held against the caller's policies, its
permissions boundary and session policy, and the policy of the resource (`policies.py`). The account's root may do
everything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import answers, api_calls, resource_policies
from .api_calls import Place
from .gate import REGION
from .policies import Call, Document, NotEvaluated, principals, verdict
from .regions import WITHOUT_REGION
from .resource_policies import region_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


@dataclass(frozen=True)
class Caller:
    """Who signed a request. ``identity``: the role's or user's own ARN, of which ``arn`` may be a session."""

    arn: str
    identity: str
    kind: str
    policies: Sequence[Document] = ()
    boundary: Sequence[Document] | None = None
    session: Sequence[Document] | None = None

    @property
    def is_root(self) -> bool:
        return self.kind == "Account"


class AccessDenied(Exception):
    """A call is not allowed; the text is AWS's own."""

    def __init__(self, caller: Caller, call: Call, why: str) -> None:
        super().__init__(
            f"User: {caller.arn} is not authorized to perform: {call.action} on resource: {call.resource} {why}"
        )
        self.call = call


class Permissions:
    """The permissions of one account. Without ``enforced`` everything is allowed.

    ``place`` has the region of calls that name none.
    """

    def __init__(self, place: Place, *, enforced: bool) -> None:
        self._place = place
        self.enforced = enforced

    def check(self, caller: Caller, call: Call, region: str = "") -> None:
        """Raise `AccessDenied` unless the caller may do this, in the region of the resource unless another is said."""
        if not self.enforced or caller.is_root:
            return
        region = region or region_of(call.resource) or self._place.region
        call = replace(call, context={**self._context_of(caller, region), **call.context})
        for one in [call, *resource_policies.calls_with(call, self._place)]:
            self._check_one(caller, one)

    def check_request(self, caller: Caller, service: str, environ: WSGIEnvironment) -> None:
        """Raise `AccessDenied` unless the caller may make this request of a service."""
        if caller.is_root:
            return
        # Global services are in us-east-1 (IAM's guide, aws:RequestedRegion).
        region = "us-east-1" if service in WITHOUT_REGION - {"sts"} else environ[REGION]
        for call in api_calls.calls_of(environ, service, replace(self._place, region=environ[REGION])):
            if call.action != "sts:GetCallerIdentity":  # who one is may always be asked
                self.check(caller, call, region)

    def role(self, arn: str, session: str) -> Caller:
        """A role as a service acts under it. Raises LookupError where there is none."""
        from moto.iam.exceptions import NotFoundException
        from moto.iam.models import iam_backends

        iam = iam_backends[self._place.account]["aws"]
        account = f"{arn}:::::".split(":")[4]
        if account not in ("", self._place.account):
            raise LookupError(f"the role {arn!r} is of another account; the local account is {self._place.account}")
        try:
            role = iam.get_role_by_arn(arn)
        except NotFoundException:
            raise LookupError(f"the account has no role {arn!r}") from None
        boundary = role.permissions_boundary_arn
        return Caller(
            arn=f"arn:aws:sts::{self._place.account}:assumed-role/{role.name}/{session}",
            identity=role.arn,
            kind="AssumedRole",
            policies=_documents_of(role),
            boundary=[json.loads(_document(iam.get_policy(boundary)))] if boundary else None,
        )

    def caller(self, access_key_id: str, root_key_id: str) -> Caller:
        """Whose key that is."""
        from moto.iam.models import iam_backends
        from moto.sts.models import sts_backends

        if access_key_id == root_key_id:
            root = f"arn:aws:iam::{self._place.account}:root"
            return Caller(root, root, "Account")
        session = sts_backends[self._place.account]["aws"].get_assumed_role_from_access_key(access_key_id)
        if session is not None:
            try:
                caller = self.role(session.role_arn, session.session_name)
            except LookupError:  # deleted since: nothing allows it anything any more
                return Caller(session.arn, session.role_arn, "AssumedRole")
            return replace(caller, session=[json.loads(session.policy)] if session.policy else None)
        return self.user(iam_backends[self._place.account]["aws"].access_keys[access_key_id].user_name)

    def user(self, name: str) -> Caller:
        """An IAM user, with what its groups allow it. Raises LookupError where there is none."""
        from moto.iam.exceptions import NoSuchEntity
        from moto.iam.models import iam_backends

        iam = iam_backends[self._place.account]["aws"]
        try:
            user = iam.get_user(name)
        except NoSuchEntity:
            raise LookupError(f"the account has no user {name!r}") from None
        groups = iam.get_groups_for_user(user.name)
        return Caller(
            user.arn, user.arn, "User", [*_documents_of(user), *(d for g in groups for d in _documents_of(g))]
        )

    def principal(self, arn: str) -> Caller:
        """The role or user of an ARN. Raises LookupError where there is none."""
        _, _, kind_and_path = arn.rpartition(":")
        kind, _, path = kind_and_path.partition("/")
        return self.user(path.rpartition("/")[2]) if kind == "user" else self.role(arn, "simulation")

    def check_trust(self, role_arn: str, service: str, source_arn: str) -> None:
        """Raise LookupError unless a role is there and its trust policy lets the service take it on for ``source_arn``."""
        from moto.iam.models import iam_backends

        self.role(role_arn, service)
        role = iam_backends[self._place.account]["aws"].get_role_by_arn(role_arn)
        call = Call(
            "sts:AssumeRole",
            role_arn,
            {"aws:sourceaccount": (self._place.account,), "aws:sourcearn": (source_arn,)},
        )
        trust = json.loads(role.assume_role_policy_document)
        try:
            allowed = verdict([trust], call, lambda named: ("Service", service) in principals(named)) == "Allow"
        except NotEvaluated as error:
            raise LookupError(f"{error} in the trust policy of {role_arn} is not evaluated here") from None
        if not allowed:
            raise LookupError(f"the trust policy of {role_arn} does not let {service} assume it")

    def check_service(self, service: str, call: Call, source_arn: str) -> None:
        """Raise LookupError unless the resource's policy lets a service do this on behalf of ``source_arn``."""
        if not self.enforced:
            return
        source = {"aws:sourceaccount": (self._place.account,), "aws:sourcearn": (source_arn,)}
        call = replace(call, context={**source, "aws:securetransport": ("true",), **call.context})
        policy = resource_policies.of(call.resource, self._place)
        documents = [] if policy is None else [policy]
        try:
            allowed = verdict(documents, call, lambda named: ("Service", service) in principals(named)) == "Allow"
        except NotEvaluated as error:
            raise LookupError(f"{error} in the policy of {call.resource} is not evaluated here") from None
        if not allowed:
            raise LookupError(f"the policy of {call.resource} does not let {service} do {call.action}")

    def _context_of(self, caller: Caller, region: str) -> dict[str, tuple[str, ...]]:
        now = time.time()
        return {
            "aws:currenttime": (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),),
            "aws:epochtime": (str(int(now)),),
            "aws:principalaccount": (self._place.account,),
            "aws:principalarn": (caller.identity,),
            "aws:principaltype": (caller.kind,),
            "aws:requestedregion": (region,),
            "aws:resourceaccount": (self._place.account,),
            "aws:viaawsservice": ("false",),
            "kms:calleraccount": (self._place.account,),
            "s3:resourceaccount": (self._place.account,),
            # The way over loopback counts as secure: on AWS's endpoints the same client uses TLS.
            "aws:securetransport": ("true",),
            "aws:sourceowner": (self._place.account,),
        }

    def _check_one(self, caller: Caller, call: Call) -> None:
        try:
            why = self._why_not(caller, call)
        except NotEvaluated as error:
            why = f"because {error}, which one of the policies uses, is not evaluated by the local account"
        if why:
            raise AccessDenied(caller, call, why)

    def _why_not(self, caller: Caller, call: Call) -> str | None:
        because = f"allows the {call.action} action"
        policy = resource_policies.of(call.resource, self._place)
        of_resource = [] if policy is None else [policy]
        own = verdict(caller.policies, call)
        theirs = verdict(of_resource, call, lambda named: _names(named, caller, account_too=True))
        for effect, kind in ((own, "an identity-based policy"), (theirs, "a resource-based policy")):
            if effect == "Deny":
                return f"with an explicit deny in {kind}"
        if call.resource.startswith("arn:aws:kms:") and theirs is None:
            # A key's policy counts first; by naming the account it may leave the decision to the account's own policies.
            return f"because no resource-based policy {because}"
        directly = verdict(of_resource, call, lambda named: _names(named, caller, account_too=False))
        if own is None and directly is None:
            no_resource = " (the local account knows no resource of it)" if _unknown_resource(call) else ""
            return f"because no identity-based policy {because}{no_resource}"
        for documents, kind in ((caller.boundary, "permissions boundary"), (caller.session, "session policy")):
            if documents is not None and verdict(documents, call) != "Allow":
                return f"because no {kind} {because}"
        return None


class Enforced:
    """A WSGI application behind which every request has been allowed by IAM."""

    def __init__(
        self, app: WSGIApplication, permissions: Permissions, caller_of: Callable[[WSGIEnvironment], tuple[Caller, str]]
    ) -> None:
        self._app = app
        self._permissions = permissions
        self._caller_of = caller_of

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._permissions.enforced:
            caller, service = self._caller_of(environ)
            try:
                self._permissions.check_request(caller, service, environ)
            except AccessDenied as denied:
                return answers.access_denied(environ, start_response, service, str(denied))
        return self._app(environ, start_response)


def _documents_of(holder: Any) -> list[Document]:
    """The inline and the managed policies of a role, user or group of moto's."""
    inline = holder.policies.values()
    managed = [_document(policy) for policy in holder.managed_policies.values()]
    return [json.loads(text) if isinstance(text, str) else text for text in [*inline, *managed]]


def _document(policy: Any) -> str:
    """The version of a managed policy that counts."""
    return next(version.document for version in policy.versions if version.version_id == policy.default_version_id)


def _names(named: Any, caller: Caller, *, account_too: bool) -> bool:
    """Whether a Principal names the caller; by its account only, it leaves the decision to the account's policies."""
    account = caller.arn.split(":")[4]
    of_account = (account, f"arn:aws:iam::{account}:root") if account_too else ()
    return any(
        kind == "AWS" and name in (caller.arn, caller.identity, "*", *of_account) for kind, name in principals(named)
    )


def _unknown_resource(call: Call) -> bool:
    return call.resource == "*" and call.action not in api_calls.WITHOUT_RESOURCE
