"""The principal of the jobs of several workflows, each with a role of its own."""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import aws_iam as iam
from constructs import DependencyGroup


@jsii.implements(iam.IPrincipal)
class JobsPrincipal:
    """Adds to the policy of each of several principals, as a grant to each of them would."""

    def __init__(self, principals: Sequence[iam.IPrincipal]) -> None:
        """Create the principal.

        Args:
            principals: The principals, at least one.
        """
        self._principals = list(principals)

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal itself."""
        return self

    @property
    @jsii.member(jsii_name="assumeRoleAction")
    def assume_role_action(self) -> str:
        """The action by which the principals are assumed."""
        return self._principals[0].assume_role_action

    @property
    @jsii.member(jsii_name="policyFragment")
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        """The principals in the policy of a resource."""
        arns = [arn for principal in self._principals for arn in principal.policy_fragment.principal_json["AWS"]]
        return iam.PrincipalPolicyFragment({"AWS": arns})

    @property
    @jsii.member(jsii_name="principalAccount")
    def principal_account(self) -> str | None:
        """The principals' account."""
        return self._principals[0].principal_account

    @jsii.member(jsii_name="addToPrincipalPolicy")
    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        """Add a statement to the policy of each principal.

        Returns:
            Whether it was added to all of them, and what to depend on.
        """
        added = [principal.add_to_principal_policy(statement) for principal in self._principals]
        policies = [result.policy_dependable for result in added if result.policy_dependable is not None]
        return iam.AddToPrincipalPolicyResult(
            statement_added=all(result.statement_added for result in added),
            policy_dependable=DependencyGroup(*policies),
        )
