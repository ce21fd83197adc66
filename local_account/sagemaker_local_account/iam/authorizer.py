"""Authorization of requests by IAM policies (but for `local-account --no-enforce-iam`).

moto evaluates no conditions and, except for S3 and a few other services, no resources, so that least-privilege policies fail in
it. Here every request is mapped to IAM calls (`api_calls.py`), and each call is evaluated against the caller's policies,
permissions boundary and session policy, and against the resource's policy (`policies.py`). The root user is allowed everything.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core import error_responses
from sagemaker_local_account.core.location import Location, region_of
from sagemaker_local_account.core.request_body import body_of
from sagemaker_local_account.iam import api_calls
from sagemaker_local_account.iam.authentication import REGION
from sagemaker_local_account.iam.explanation import explanation
from sagemaker_local_account.iam.permission_use import PermissionUse
from sagemaker_local_account.iam.policies import (
    OF_RESOURCE_TAGS,
    Call,
    Document,
    UnsupportedCondition,
    effect_of,
    principals,
)
from sagemaker_local_account.iam.regions import WITHOUT_REGION
from sagemaker_local_account.iam.service_authorization import UNKNOWN, ServiceAuthorization

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """The principal of a request.

    Args:
        arn: the ARN of the user, of the role's session, or of the root.
        identity: the ARN of the user or role itself.
        kind: the value of aws:PrincipalType: "Account", "AssumedRole" or "User".
        policies: its identity-based policies: inline ones by name, managed ones by ARN.
        boundary: its permissions boundary; None without one.
        session: its session policies, inline and managed; None without one.
        organization: the service control policies of each level of the organization, from the root to the account.
    """

    arn: str
    identity: str
    kind: str
    policies: Mapping[str, Document] = field(default_factory=dict)
    boundary: Sequence[Document] | None = None
    session: Sequence[Document] | None = None
    organization: Sequence[Sequence[Document]] = ()

    @property
    def is_root(self) -> bool:
        """Whether it is the account's root user."""
        return self.kind == "Account"


MANAGED = "managed_policies"  # the attribute of moto's AssumedRole with the documents of its managed session policies
_ON_TRUST = frozenset({"sts:AssumeRole", "sts:TagSession", "sts:SetSourceIdentity"})  # by the trust policy of the role


class AccessDenied(Exception):
    """A call is not allowed; the message has AWS's wording."""

    def __init__(self, caller: Caller, call: Call, why: str) -> None:
        super().__init__(
            f"User: {caller.arn} is not authorized to perform: {call.action} on resource: {call.resource} {why}"
        )
        self.call = call


class MalformedRequest(Exception):
    """A request has members of other types than its service's model, which is answered before it is authorized."""


class Authorizer:
    """Evaluates the permissions of one account's principals.

    Args:
        location: the account, and the region of calls whose resource names none.
        services: what the requests of each service are authorized by, by signing names.
        tags_of: returns the tags of the resource of an ARN; None for one whose tags are not known here.
        organization: the service control policies of each level of the organization that the account is in.
        enforced: False allows every call.
    """

    def __init__(
        self,
        location: Location,
        services: Mapping[str, ServiceAuthorization],
        tags_of: Callable[[str], Mapping[str, str] | None],
        *,
        organization: Sequence[Sequence[Document]] = (),
        enforced: bool,
    ) -> None:
        self._organization = organization
        self._location = location
        self._services = services
        self._by_prefix = {of.prefix: of for of in services.values()}
        self._tags_of = tags_of
        self.enforced = enforced
        self._use = PermissionUse()
        self._last_denied: tuple[Caller, Call] | None = None

    def check(self, caller: Caller, call: Call, region: str = "") -> None:
        """Raises `AccessDenied` unless the caller is allowed the call; ``region`` is by default that of the resource."""
        if not self.enforced or caller.is_root:
            return
        call = self._in_context(caller, call, region)
        for one in [call, *self._implied(call)]:
            self._check_one(caller, one)

    def check_request(self, caller: Caller, service: str, environ: WSGIEnvironment) -> None:
        """Raises `AccessDenied` unless the caller is allowed every call of a request, or `MalformedRequest`."""
        if caller.is_root:
            return
        # Global services are in us-east-1 (IAM's guide, aws:RequestedRegion).
        region = "us-east-1" if service in WITHOUT_REGION - {"sts"} else environ[REGION]
        location = replace(self._location, region=environ[REGION])
        try:
            calls = api_calls.calls_of(environ, service, location, self._services)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise MalformedRequest("a member of the request has another type than in the service's model") from error
        if service == "sts" and calls[0].action != "sts:AssumeRole" and b"PolicyArns.member" in body_of(environ):
            raise AccessDenied(
                caller, calls[0], "because PolicyArns of a session are not evaluated by the local account"
            )
        for call in calls:
            if call.action not in ("sts:GetCallerIdentity", "sts:GetSessionToken"):  # need none (IAM's guide)
                self.check(caller, call, region)

    def role(self, arn: str, session: str) -> Caller:
        """Returns the caller for a session of a role.

        Raises:
            LookupError: the account has no such role.
        """
        from moto.iam.exceptions import NotFoundException
        from moto.iam.models import iam_backends

        iam = iam_backends[self._location.account]["aws"]
        account = f"{arn}:::::".split(":")[4]
        if account not in ("", self._location.account):
            raise LookupError(f"the role {arn!r} is of another account; the local account is {self._location.account}")
        try:
            role = iam.get_role_by_arn(arn)
        except NotFoundException:
            raise LookupError(f"the account has no role {arn!r}") from None
        boundary = role.permissions_boundary_arn
        return Caller(
            arn=f"arn:aws:sts::{self._location.account}:assumed-role/{role.name}/{session}",
            identity=role.arn,
            kind="AssumedRole",
            policies=_named_documents_of(role),
            boundary=[json.loads(document_of(iam.get_policy(boundary)))] if boundary else None,
            organization=self._organization,
        )

    def caller(self, access_key_id: str, root_key_id: str) -> Caller:
        """Returns the caller of an access key: the root, a role's session or a user."""
        from moto.iam.models import iam_backends
        from moto.sts.models import sts_backends

        if access_key_id == root_key_id:
            root = f"arn:aws:iam::{self._location.account}:root"
            return Caller(root, root, "Account")
        session = sts_backends[self._location.account]["aws"].get_assumed_role_from_access_key(access_key_id)
        if session is not None:
            try:
                caller = self.role(session.role_arn, session.session_name)
            except LookupError:  # the role was deleted since
                return Caller(session.arn, session.role_arn, "AssumedRole")  # without policies, so nothing is allowed
            given = [*filter(None, [session.policy]), *getattr(session, MANAGED, ())]
            return replace(caller, session=[json.loads(text) for text in given] or None)
        return self.user(iam_backends[self._location.account]["aws"].access_keys[access_key_id].user_name)

    def user(self, name: str) -> Caller:
        """Returns the caller for an IAM user, with its own policies and those of its groups.

        Raises:
            LookupError: the account has no such user.
        """
        from moto.iam.exceptions import NoSuchEntity
        from moto.iam.models import iam_backends

        iam = iam_backends[self._location.account]["aws"]
        try:
            user = iam.get_user(name)
        except NoSuchEntity:
            raise LookupError(f"the account has no user {name!r}") from None
        groups = iam.get_groups_for_user(user.name)
        boundary = getattr(user, "permissions_boundary_arn", None)
        return Caller(
            user.arn,
            user.arn,
            "User",
            {
                **_named_documents_of(user),
                **{f"{g.name}: {name}": it for g in groups for name, it in _named_documents_of(g).items()},
            },
            boundary=[json.loads(document_of(iam.get_policy(boundary)))] if boundary else None,
            organization=self._organization,
        )

    def principal(self, arn: str) -> Caller:
        """Returns the caller for the ARN of a role or user.

        Raises:
            LookupError: the account has no such role or user.
        """
        _, _, kind_and_path = arn.rpartition(":")
        kind, _, path = kind_and_path.partition("/")
        return self.user(path.rpartition("/")[2]) if kind == "user" else self.role(arn, "simulation")

    def check_trust(self, role_arn: str, service: str, source_arn: str) -> None:
        """Raises LookupError unless the role exists and its trust policy allows the service to assume it for ``source_arn``."""
        self.role(role_arn, service)
        source = {"aws:sourceaccount": (self._location.account,), "aws:sourcearn": (source_arn,)}
        call, trust = Call("sts:AssumeRole", role_arn, source), self._trust(role_arn)
        try:
            documents = [trust] if trust else []
            names = [service, *self._regional(service)]
            allowed = any(effect_of(documents, call, _of_service(name)) == "Allow" for name in names)
        except UnsupportedCondition as error:
            raise LookupError(f"{error} in the trust policy of {role_arn} is not evaluated here") from None
        if not allowed:
            raise LookupError(f"the trust policy of {role_arn} does not let {service} assume it")

    def _regional(self, service: str) -> list[str]:
        """The other principal of a service, as Step Functions says: "the global service principal" or "the regional one"."""
        return [f"states.{self._location.region}.amazonaws.com"] if service == "states.amazonaws.com" else []

    def check_service(self, service: str, call: Call, source_arn: str) -> None:
        """Raises LookupError unless the policies of the resource, and of its key, allow a service the call for ``source_arn``."""
        if not self.enforced:
            return
        source = {"aws:sourceaccount": (self._location.account,), "aws:sourcearn": (source_arn,)}
        call = replace(call, context={**source, "aws:securetransport": ("true",), **call.context})
        for one in [call, *self._implied(call)]:
            self._check_one_of_service(service, one)

    def _check_one_of_service(self, service: str, call: Call) -> None:
        policy = self._resource_policy(call.resource)
        documents = [] if policy is None else [policy]
        try:
            allowed = effect_of(documents, call, _of_service(service, or_everyone=True)) == "Allow"
        except UnsupportedCondition as error:
            raise LookupError(f"{error} in the policy of {call.resource} is not evaluated here") from None
        if not allowed:
            raise LookupError(f"the policy of {call.resource} does not allow {service} the action {call.action}")

    def _resource_tags(self, call: Call) -> dict[str, tuple[str, ...]]:
        tags = self._tags_of(call.resource)
        if tags is None:
            return {}
        return {OF_RESOURCE_TAGS: (), **{f"{OF_RESOURCE_TAGS}{key.lower()}": (value,) for key, value in tags.items()}}

    def _in_context(self, caller: Caller, call: Call, region: str = "") -> Call:
        """The call with all condition keys; ``region`` is by default that of the resource."""
        region = region or region_of(call.resource) or self._location.region
        context = {**self._context_of(caller, region), **self._resource_tags(call), **call.context}
        return replace(call, context=context)

    def _context_of(self, caller: Caller, region: str) -> dict[str, tuple[str, ...]]:
        now = time.time()
        return {
            "aws:currenttime": (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),),
            "aws:epochtime": (str(int(now)),),
            "aws:principalaccount": (self._location.account,),
            "aws:principalarn": (caller.identity,),
            "aws:principaltype": (caller.kind,),
            "aws:requestedregion": (region,),
            "aws:resourceaccount": (self._location.account,),
            "aws:viaawsservice": ("false",),
            "kms:calleraccount": (self._location.account,),
            "s3:resourceaccount": (self._location.account,),
            # Loopback counts as secure transport: on AWS's endpoints the same client uses TLS.
            "aws:securetransport": ("true",),
            "aws:sourceowner": (self._location.account,),
        }

    def _check_one(self, caller: Caller, call: Call) -> None:
        why = self._why_denied(caller, call)
        if why:
            self._last_denied = caller, call
            raise AccessDenied(caller, call, why)
        if call.action not in _ON_TRUST:
            self._use.record(caller.identity, caller.policies.values(), call)

    def _why_denied(self, caller: Caller, call: Call) -> str | None:
        policy = self._policy_of(call)
        try:
            return why_denied(caller, call, [] if policy is None else [policy])
        except UnsupportedCondition as error:
            return f"because {error}, which one of the policies uses, is not evaluated by the local account"

    def _policy_of(self, call: Call) -> Document | None:
        return self._trust(call.resource) if call.action in _ON_TRUST else self._resource_policy(call.resource)

    def _trust(self, arn: str) -> Document | None:
        """The trust policy of a role; None for a role that is not there."""
        from moto.iam.exceptions import NotFoundException
        from moto.iam.models import iam_backends

        try:
            document = iam_backends[self._location.account]["aws"].get_role_by_arn(arn).assume_role_policy_document
        except NotFoundException:
            return None
        return json.loads(document) if isinstance(document, str) else document

    def _resource_policy(self, arn: str) -> Document | None:
        """The policy of a resource, or of the bucket of an object; None without one."""
        policy_of = self._by_prefix.get(f"{arn}::".split(":")[2], UNKNOWN).policy_of
        if policy_of is None:
            return None
        found = policy_of(arn, replace(self._location, region=region_of(arn) or self._location.region))
        return json.loads(found) if isinstance(found, str | bytes) else found

    def _implied(self, call: Call) -> list[Call]:
        return self._by_prefix.get(call.action.partition(":")[0], UNKNOWN).implied(call, self._location)

    def use_of_permissions(self) -> dict[str, list[dict[str, Any]]]:
        """Returns for the ARN of each role, and of each user with a policy, the rows of `PermissionUse.report`."""
        from moto.iam.models import iam_backends

        iam = iam_backends[self._location.account]["aws"]
        holders = [*iam.roles.values(), *iam.users.values()]
        rows = {holder.arn: self._use.report(holder.arn, _named_documents_of(holder)) for holder in holders}
        return {arn: found for arn, found in rows.items() if found or ":role/" in arn}

    def explain(self, call: Mapping[str, Any] | None) -> dict[str, Any]:
        """Explains the decision on a call, by the policies as they are now.

        Args:
            call: its ``principal``, the name of a role or the ARN of a role or user, ``action``, ``resource``, and ``context``,
                the values of condition keys. None for the last call that was denied.

        Raises:
            LookupError: the account has no such principal, or nothing was denied.
        """
        if call is None:
            if self._last_denied is None:
                raise LookupError("no call was denied since the account started")
            caller, made = self._last_denied
            caller = replace(self.principal(caller.identity), session=caller.session)
        else:
            arn = call["principal"]
            caller = self.principal(
                arn if arn.startswith("arn:") else f"arn:aws:iam::{self._location.account}:role/{arn}"
            )
            given = {key.lower(): (value,) for key, value in call.get("context", {}).items()}
            prefix, _, action = call["action"].partition(":")
            unknown = not call.get("resource") and action not in self._by_prefix.get(prefix, UNKNOWN).without_resource
            made = self._in_context(caller, Call(call["action"], call.get("resource") or "*", given, unknown))
        named = dict(caller.policies)
        policy = self._policy_of(made)
        named |= {} if policy is None else {f"the policy of {made.resource}": policy}
        named |= {f"permissions boundary {number}": it for number, it in enumerate(caller.boundary or (), 1)}
        for n, level in enumerate(caller.organization, 1):
            named |= {f"service control policy {number} of level {n}": it for number, it in enumerate(level, 1)}
        named |= {f"session policy {number}": it for number, it in enumerate(caller.session or (), 1)}
        return {"principal": caller.identity, **explanation(named, made, self._why_denied(caller, made))}


def why_denied(caller: Caller, call: Call, of_resource: Sequence[Document]) -> str | None:
    """Evaluates a call of a principal of the account on a resource of the account: a function of its arguments.

    Args:
        caller: the principal with its policies.
        call: the call with its context.
        of_resource: the policy of the resource, or for a role that is assumed its trust policy; empty without one.

    Returns:
        Why it is denied, in AWS's words; None where it is allowed.

    Raises:
        UnsupportedCondition: the decision depends on what is not implemented.
    """
    because = f"allows the {call.action} action"
    assumes = call.action in _ON_TRUST
    own = effect_of(caller.policies.values(), call)
    theirs = effect_of(of_resource, call, lambda statement: _names(statement, caller, account_too=True))
    levels = [effect_of(level, call) for level in caller.organization]
    every = (*((level, "a service control policy") for level in levels), (own, "an identity-based policy"))
    for effect, kind in (*every, (theirs, "a resource-based policy")):
        if effect == "Deny":
            return f"with an explicit deny in {kind}"
    if None in levels:  # each level must allow the action ("SCP evaluation")
        return f"because no service control policy {because}"
    if theirs is None and (assumes or call.resource.startswith("arn:aws:kms:")):
        # The policy of a key, and a role's trust, must allow the call, or delegate to the account's identity-based policies.
        return f"because no resource-based policy {because}"
    directly = effect_of(of_resource, call, lambda statement: _names(statement, caller, account_too=False))
    if own is None and directly is None:
        no_resource = (
            " (the local account evaluates it without a resource)" if call.unknown and call.resource == "*" else ""
        )
        return f"because no identity-based policy {because}{no_resource}"
    # "Within an account, an implicit deny in a permissions boundary does not limit the permissions granted to an IAM user by a
    # resource-based policy", nor those of a role's session by its own ARN, but those of the role ("Permissions boundaries for IAM
    # entities"; measured in "Demonstration that AWS IAM policy evaluation docs are incorrect").
    passes = (
        caller.boundary is not None
        and effect_of(of_resource, call, lambda statement: _is_named(statement, caller)) == "Allow"
    )
    for documents, kind, granted in (
        (caller.boundary, "permissions boundary", passes),
        (caller.session, "session policy", False),
    ):
        effect = "Allow" if documents is None else effect_of(documents, call)
        if effect == "Deny":
            return f"with an explicit deny in a {kind}"
        if effect is None and not granted:
            return f"because no {kind} {because}"
    return None


class IamEnforcement:
    """WSGI middleware that answers AccessDenied to requests that IAM policies do not allow."""

    def __init__(
        self, app: WSGIApplication, authorizer: Authorizer, caller_of: Callable[[WSGIEnvironment], tuple[Caller, str]]
    ) -> None:
        self._app = app
        self._authorizer = authorizer
        self._caller_of = caller_of

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application behind it, or answers AccessDenied."""
        if self._authorizer.enforced:
            caller, service = self._caller_of(environ)
            try:
                self._authorizer.check_request(caller, service, environ)
            except AccessDenied as denied:
                return error_responses.access_denied(environ, start_response, service, str(denied))
            except MalformedRequest as malformed:
                _log.warning("%s: %s", environ.get(error_responses.REQUEST_ID), malformed, exc_info=malformed)
                return error_responses.error(
                    environ, start_response, "400 Bad Request", "SerializationException", str(malformed)
                )
        return self._app(environ, start_response)


def _named_documents_of(holder: Any) -> dict[str, Document]:
    """The inline policies of moto's role, user or group by name, and the managed ones by ARN."""
    managed = {arn: document_of(policy) for arn, policy in holder.managed_policies.items()}
    named = {**holder.policies, **managed}
    return {name: json.loads(text) if isinstance(text, str) else text for name, text in named.items()}


def document_of(policy: Any) -> str:
    """Returns the document of a managed policy's default version."""
    return next(version.document for version in policy.versions if version.version_id == policy.default_version_id)


def _of_service(service: str, *, or_everyone: bool = False) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a statement is about a service, by its Principal or NotPrincipal.

    A policy that allows everyone allows services too: recorded on AWS in LocalStack's test_object_created_put (S3 to SQS).
    """
    about = {("Service", service), *([("AWS", "*")] if or_everyone else [])}

    def is_about(statement: Mapping[str, Any]) -> bool:
        if "NotPrincipal" in statement:
            return ("Service", service) not in principals(statement["NotPrincipal"])
        return not about.isdisjoint(principals(statement.get("Principal")))

    return is_about


def _names(statement: Mapping[str, Any], caller: Caller, *, account_too: bool) -> bool:
    """Whether a statement is about the caller, or with ``account_too`` its account, which delegates to identity policies.

    A NotPrincipal is about all but whom it names, and naming the account does not exempt its users ("NotPrincipal": the example
    denies "all principals except for" the user, whose account it names too). It "will always deny any IAM principal that has a
    permissions boundary policy attached, regardless of the values specified in the NotPrincipal element".
    """
    own = {caller.arn, caller.identity}
    if "NotPrincipal" in statement:
        exempt = any(kind == "AWS" and name in own for kind, name in principals(statement["NotPrincipal"]))
        return caller.boundary is not None or not exempt
    account = caller.arn.split(":")[4]
    of_account = {account, f"arn:aws:iam::{account}:root"} if account_too else set()
    named = principals(statement.get("Principal"))
    return any(kind == "AWS" and name in {*own, "*", *of_account} for kind, name in named)


def _is_named(statement: Mapping[str, Any], caller: Caller) -> bool:
    """Whether a statement's Principal has the ARN of a user, or that of the role's session rather than the role's."""
    return "NotPrincipal" not in statement and ("AWS", caller.arn) in principals(statement.get("Principal"))
