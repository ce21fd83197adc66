"""The resources that a request names, imported into the stack once each."""

from __future__ import annotations

import re
from typing import Any

from training_jobs.adopt.python_source import Call, Name

_ACCESS_POINT = re.compile(r"s3://(?P<arn>arn:[a-z-]+:s3:[a-z0-9-]+:\d{12}:accesspoint/[^/]+)/(?P<key>.*)", re.DOTALL)
_S3 = re.compile(r"s3://(?P<bucket>[^/]+)(?P<slash>/?)(?P<key>.*)", re.DOTALL)
_STACK = Name("stack")


class Existing:
    """The variables of resources that are there already, in the order in which they are first used.

    Attributes:
        variables: The call that makes each, by the variable's name.
    """

    def __init__(self, account: str, region: str, partition: str) -> None:
        """Begin without any.

        Args:
            account: The account's number.
            region: The region.
            partition: Such as ``"aws"``.
        """
        self.variables: dict[str, Call] = {}
        self._arn = f"arn:{partition}:{{}}:{region}:{account}:{{}}"
        self._region = region

    def _declared(self, variable: str, function: str, *arguments: Any, **keywords: Any) -> Name:
        """The variable of a resource, a new one unless the same call made one before."""
        number = 1
        while True:
            name = variable if number == 1 else f"{variable}_{number}"
            id = "".join(word.capitalize() for word in name.split("_"))
            call = Call(function, (_STACK, id, *arguments), keywords)
            if self.variables.setdefault(name, call) == call:
                return Name(name)
            number += 1

    def role(self, arn: str) -> Name:
        """Return the job's role, whose policies stay as they are."""
        return self._declared("role", "iam.Role.from_role_arn", arn, mutable=False)

    def image(self, uri: str) -> Name:
        """Return an image, by its URI."""
        return self._declared("image", "TrainingImage.from_uri", uri)

    def place(self, uri: str) -> tuple[Any, str | None]:
        """Return the bucket or access point of an S3 URI, and the rest of it, None for none.

        Raises:
            ValueError: It is no S3 URI.
        """
        point = _ACCESS_POINT.fullmatch(uri)
        if point is not None:
            return Call("S3AccessPoint", (point["arn"],)), point["key"] or None
        found = _S3.fullmatch(uri)
        if found is None:
            raise ValueError(f"an S3 URI must be like 's3://bucket/images/', got {uri!r}")
        return self._declared("bucket", "s3.Bucket.from_bucket_name", found["bucket"]), found["key"] or None

    def prefix(self, uri: str) -> Call:
        """Return the S3Prefix of a URI.

        Raises:
            ValueError: It is no S3 URI.
        """
        bucket, key = self.place(uri)
        return Call("S3Prefix", (bucket,) if key is None else (bucket, key))

    def key(self, id: str) -> tuple[Name, str]:
        """Return a KMS key, and the ARN that a request has for it.

        Args:
            id: Its ARN, its id, its alias, or the ARN of that.
        """
        arn = id if id.startswith("arn:") else self._arn.format("kms", id if id.startswith("alias/") else f"key/{id}")
        if ":alias/" in arn:
            return self._declared("key", "kms.Alias.from_alias_name", arn.rpartition(":")[2]), arn
        return self._declared("key", "kms.Key.from_key_arn", arn), arn

    def function(self, arn: str) -> Name:
        """Return a Lambda function."""
        return self._declared("function", "lambda_.Function.from_function_arn", arn)

    def security_group(self, id: str) -> Name:
        """Return a security group, whose rules stay as they are."""
        return self._declared("security_group", "ec2.SecurityGroup.from_security_group_id", id, mutable=False)

    def network(self, subnets: list[str], groups: list[str], vpc_id: str, zones: list[str]) -> Name:
        """Return a network.

        Args:
            subnets: Their ids.
            groups: Ids of the security groups.
            vpc_id: The VPC.
            zones: The zone of each subnet.
        """
        vpc = self._declared(
            "vpc",
            "ec2.Vpc.from_vpc_attributes",
            vpc_id=vpc_id,
            availability_zones=zones,
            private_subnet_ids=subnets,
        )
        found = [self.security_group(id) for id in groups]
        return self._declared("network", "TrainingNetwork", vpc=vpc, security_groups=found)

    def file_system(self, kind: str, id: str, security_group: str) -> Name:
        """Return a file system.

        Args:
            kind: ``"EFS"`` or ``"FSxLustre"``.
            id: Its id.
            security_group: One of the job's.
        """
        group = self.security_group(security_group)
        if kind == "EFS":
            return self._declared(
                "efs_file_system", "efs.FileSystem.from_file_system_attributes", file_system_id=id, security_group=group
            )
        return self._declared(
            "lustre_file_system",
            "fsx.LustreFileSystem.from_lustre_file_system_attributes",
            dns_name=f"{id}.fsx.{self._region}.amazonaws.com",
            file_system_id=id,
            security_group=group,
        )
