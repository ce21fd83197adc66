"""What the requests of one service are authorized by, which each service's `authorization.py` has.

Source: the Service Authorization Reference, against which tests hold the names. A call that is not listed is evaluated on "*": a
statement that names resources does not allow it, and the error message gives that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

Members = Mapping[str, Any]


@dataclass(frozen=True)
class ServiceAuthorization:
    """What the requests of one service are authorized by.

    Args:
        prefix: of its IAM actions.
        resources: the last part of the ARN of the resource of each action. `{Name}` is the request's member of that name,
            `{a|b}` those of them that are set, `{Name.form}` the member in a form of `api_calls.FORMS`; an ARN stays.
        without_resource: actions that have no resource type.
        passed_roles: the member by which an operation passes a role, and the service it is passed to: iam:PassRole.
        actions: the actions that have another name than their operation.
        calls: the IAM calls of a request, of a service whose requests name no operation.
        members: the members of a request as `resources` and `passed_roles` name them.
        resources_of: the ARNs of an action's resources, where they do not follow from a template; None where they do.
        context: the values of an action's condition keys, of those that the account evaluates; None for one that is not set.
        further: the other calls that an operation requires, by its first call and its members; of `by_parts` all of them.
        implied: what the service calls for the caller, with its permissions.
        policy_of: the policy of a resource, by its ARN.
    """

    prefix: str
    resources: Mapping[str, str] = field(default_factory=dict)
    without_resource: Collection[str] = frozenset()
    passed_roles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)
    calls: Callable[[WSGIEnvironment], list[Call]] | None = None
    members: Callable[[Members], Members] = lambda members: members
    resources_of: Callable[[str, Members, Location], list[str] | None] = lambda action, members, location: None
    context: Callable[[str, Members], Mapping[str, Any]] = lambda action, members: {}
    further: Callable[[Call, Members, Location], Iterable[Call]] = lambda call, members, location: ()
    by_parts: Collection[str] = frozenset()
    implied: Callable[[Call, Location], list[Call]] = lambda call, location: []
    policy_of: Callable[[str, Location], Any] | None = None


UNKNOWN = ServiceAuthorization("")
