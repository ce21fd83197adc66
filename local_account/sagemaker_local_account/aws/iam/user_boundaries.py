"""Permissions boundaries of users, which moto does not keep: it creates a user without the boundary that the request has."""

from __future__ import annotations

from typing import Any

from moto.iam.models import IAMBackend, iam_backends
from moto.iam.responses import IamResponse

from sagemaker_local_account.core.patches import add, patch

_moto_create_user = IamResponse.create_user


def install() -> None:
    """Has moto keep the boundary of CreateUser, and gives it the operations that set and remove one."""

    def create_user(self: IamResponse) -> Any:
        boundary = self._get_param("PermissionsBoundary")
        if boundary:
            _backend(self).get_policy(boundary)  # of one that is not there, AWS's error
        made = _moto_create_user(self)
        _set(self, boundary)
        return made

    def put_user_permissions_boundary(self: IamResponse) -> str:
        boundary = self._get_param("PermissionsBoundary")
        _backend(self).get_policy(boundary)
        _set(self, boundary)
        return _empty("PutUserPermissionsBoundary")

    def delete_user_permissions_boundary(self: IamResponse) -> str:
        _set(self, None)
        return _empty("DeleteUserPermissionsBoundary")

    patch(IamResponse, "create_user", create_user, "self")
    add(IamResponse, "put_user_permissions_boundary", put_user_permissions_boundary)
    add(IamResponse, "delete_user_permissions_boundary", delete_user_permissions_boundary)


def _backend(response: IamResponse) -> IAMBackend:
    return iam_backends[response.current_account]["aws"]


def _set(response: IamResponse, boundary: str | None) -> None:
    user: Any = _backend(response).get_user(response._get_param("UserName"))
    user.permissions_boundary_arn = boundary


def _empty(operation: str) -> str:
    return (
        f"<{operation}Response><ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></{operation}Response>"
    )
