"""File systems in an account that enforces permissions: what jobs see of them, and which mounts fail, in whose words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, reasons
from running_account import Running
from shell_jobs import HOSTNAME, ShellJobs, channel

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.faults import FullDisk

EVENTS = {"Events": ["NEW", "CHANGED", "DELETED"]}
READ_ONLY = {
    "Version": "2012-10-17",
    "Statement": {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientRootAccess"],
        "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
    },
}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def att(name: str, attribute: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [name, attribute]}


def of(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def group(*peers: dict[str, Any]) -> dict[str, Any]:
    return of("EC2::SecurityGroup", VpcId=ref("Vpc"), GroupDescription="any", SecurityGroupIngress=list(peers))


def lustre(*after: str, **configuration: Any) -> dict[str, Any]:
    """A file system that is made after some resources."""
    made = of(
        "FSx::FileSystem",
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[ref("Subnet")],
        SecurityGroupIds=[att("Door", "GroupId")],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", **configuration},
    )
    return {**made, "DependsOn": list(after)}


def between_servers(protocol: str = "tcp", first: int = 988, last: int = 1023) -> dict[str, Any]:
    """The rule by which the servers of a file system reach each other."""
    door = att("Door", "GroupId")
    ports = {"IpProtocol": protocol, "FromPort": first, "ToPort": last}
    return of("EC2::SecurityGroupIngress", GroupId=door, SourceSecurityGroupId=door, **ports)


def link(file_system: str, prefix: str, **properties: Any) -> dict[str, Any]:
    uri = {"Fn::Sub": f"s3://${{Bucket}}/{prefix}"}
    return of("FSx::DataRepositoryAssociation", FileSystemId=ref(file_system), DataRepositoryPath=uri, **properties)


def resources(**efs: Any) -> dict[str, Any]:
    from_hosts = {"IpProtocol": "tcp", "SourceSecurityGroupId": att("Hosts", "GroupId")}
    return {
        "Vpc": of("EC2::VPC", CidrBlock="10.9.0.0/16"),
        "Subnet": of("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.9.0.0/24"),
        "Hosts": group(),
        "Strangers": group(),
        "Door": group(
            {**from_hosts, "FromPort": 988, "ToPort": 1023}, {**from_hosts, "FromPort": 2049, "ToPort": 2049}
        ),
        "Bucket": of("S3::Bucket"),
        "Servers": between_servers(),
        "Lustre": lustre("Servers"),
        "Link": link(
            "Lustre", "data/", FileSystemPath="/", S3={"AutoImportPolicy": EVENTS, "AutoExportPolicy": EVENTS}
        ),
        "Efs": of("EFS::FileSystem", **efs),
        "Target": of(
            "EFS::MountTarget",
            FileSystemId=ref("Efs"),
            SubnetId=ref("Subnet"),
            SecurityGroups=[att("Door", "GroupId")],
        ),
        "Alone": of("EFS::FileSystem"),
    }


OUTPUTS = {
    **{name: {"Value": ref(name)} for name in ("Subnet", "Bucket", "Lustre", "Efs", "Alone")},
    **{name: {"Value": att(name, "GroupId")} for name in ("Hosts", "Strangers")},
    "MountName": {"Value": att("Lustre", "LustreMountName")},
}


class Files:
    """An account with a file system of each kind, a network, and jobs on them."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.jobs = ShellJobs(running.account.environment(), running.account.state)
        self.made = deploy(running, "files", resources(), Outputs=OUTPUTS)
        self.folder = running.account.state / "file-systems"
        self._count = 0

    def source(self, name: str, path: str = "/", mode: str = "rw", **other: str) -> dict[str, Any]:
        """A FileSystemDataSource of one of the stack's; of Lustre ``path`` follows the mount name."""
        on_lustre = name == "Lustre"
        return {
            "FileSystemId": self.made[name],
            "FileSystemType": "FSxLustre" if on_lustre else "EFS",
            "FileSystemAccessMode": mode,
            "DirectoryPath": f"/{self.made['MountName']}{path}" if on_lustre else path,
            **other,
        }

    def create(self, program: str, source: dict[str, Any], hosts: int = 1, **members: Any) -> str:
        self._count += 1
        network = {"Subnets": [self.made["Subnet"]], "SecurityGroupIds": [self.made["Hosts"]]}
        given = {"ChannelName": "files", "DataSource": {"FileSystemDataSource": source}}
        request = {"InputDataConfig": [given], "VpcConfig": network, **members}
        request = {name: value for name, value in request.items() if value is not None}
        return self.jobs.create(f"files-{self._count}", f"cd /opt/ml/input/data/files; {program}", hosts, **request)

    def run(self, program: str, source: dict[str, Any], hosts: int = 1) -> dict[str, list[str]]:
        """What the hosts of a job said, which did what it should."""
        name = self.create(program, source, hosts)
        assert self.jobs.statuses([name]) == ["Completed"]
        return self.jobs.said(name)

    def failure(self, source: dict[str, Any], **members: Any) -> str:
        return self.jobs.statuses([self.create("true", source, **members)])[0]

    def refused(self, source: dict[str, Any], **members: Any) -> str:
        with pytest.raises(ClientError) as error:
            self.create("true", source, **members)
        assert error.value.response["Error"]["Code"] == "ValidationException"
        return str(error.value)

    def put(self, key: str, body: bytes) -> None:
        self.jobs.s3.put_object(Bucket=self.made["Bucket"], Key=key, Body=body)

    def objects(self, prefix: str) -> set[str]:
        listed = self.jobs.s3.list_objects_v2(Bucket=self.made["Bucket"], Prefix=prefix)
        return {entry["Key"] for entry in listed.get("Contents", [])}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Files(Running(account))


def test_all_hosts_of_a_job_have_the_same_folder(files: Files) -> None:
    said = files.run(
        HOSTNAME + "touch $(hostname); until [ -e algo-1 -a -e algo-2 ]; do sleep 0.1; done; echo met",
        files.source("Efs"),
        2,
    )
    assert said == {"algo-1": ["met"], "algo-2": ["met"]}


def test_the_folder_in_the_accounts_state_is_the_file_system(files: Files) -> None:
    folder = files.folder / files.made["Efs"]
    (folder / "mine").mkdir()
    (folder / "mine" / "a.txt").write_text("a\n")
    assert files.run("cat a.txt; echo b > b.txt", files.source("Efs", "/mine")) == {"algo-1": ["a"]}
    assert (folder / "mine" / "b.txt").read_text() == "b\n"


def test_a_host_with_a_small_disk_has_its_file_systems_beside_it(files: Files) -> None:
    name = f"files-{files._count + 1}"
    files.running.account.faults.add(FullDisk("algo-1", 1, job=name))
    write = "head -c 3000000 /dev/zero > large; stat -c %s large; rm large"
    assert files.run(write, files.source("Efs")) == {"algo-1": ["3000000"]}


def test_a_jobs_link_leads_nowhere_out_of_the_file_system(files: Files) -> None:
    files.run("ln -s /etc out; ln -s ../../.. up", files.source("Efs"))
    assert "No such file or directory" in files.failure(files.source("Efs", "/out"))
    assert "up" in files.run("ls", files.source("Efs", "/up"))["algo-1"]


def test_what_a_job_changes_goes_to_the_bucket_of_a_link_that_exports(files: Files) -> None:
    files.put("data/images/1", b"one")
    files.put("data/images/2", b"two")
    files.put("data/images", b"a file here is a folder there")
    files.run("rm 1; echo more >> 2; echo three > 3", files.source("Lustre", "/images"))
    assert files.objects("data/images") == {"data/images", "data/images/2", "data/images/3"}
    body = files.jobs.s3.get_object(Bucket=files.made["Bucket"], Key="data/images/2")["Body"].read()
    assert body == b"twomore\n"


def test_a_changed_object_is_a_changed_file(files: Files) -> None:
    files.put("data/changing", b"before")
    assert files.run("cat changing", files.source("Lustre", mode="ro")) == {"algo-1": ["before"]}
    files.put("data/changing", b"after")
    assert files.run("cat changing", files.source("Lustre", mode="ro")) == {"algo-1": ["after"]}


def test_a_directory_that_is_not_there_is_not_mounted(files: Files) -> None:
    source = files.source("Efs", "/none")
    assert files.failure(source).startswith(
        f"ClientError: Unable to mount file system: {files.made['Efs']}, directory path: /none. No such file or directory"
    )


def test_a_path_without_the_mount_name_is_not_mounted(files: Files) -> None:
    said = files.failure(files.source("Lustre", DirectoryPath="/fsx/images"))
    assert "Is 'fsx' the correct filesystem name?" in said
    assert f"like '/{files.made['MountName']}/images'" in said


@pytest.mark.parametrize(("name", "port"), [("Lustre", 988), ("Efs", 2049)])
def test_hosts_that_security_groups_do_not_let_in_do_not_reach_a_file_system(
    files: Files, name: str, port: int
) -> None:
    network = {"Subnets": [files.made["Subnet"]], "SecurityGroupIds": [files.made["Strangers"]]}
    said = files.failure(files.source(name), VpcConfig=network)
    assert "File system connection timed out. Please ensure that mount target IP address" in said
    assert f"allows {files.made['Strangers']} on port {port}" in said


def test_an_efs_without_a_mount_target_is_not_reached(files: Files) -> None:
    assert "the file system has no mount target" in files.failure(files.source("Alone"))


def test_a_policy_of_efs_holds_for_jobs_as_for_clients_without_a_role(files: Files) -> None:
    deploy(files.running, "files", resources(FileSystemPolicy=READ_ONLY), Outputs=OUTPUTS)
    assert files.run("echo read", files.source("Efs", mode="ro")) == {"algo-1": ["read"]}
    said = files.failure(files.source("Efs", mode="rw"))
    assert "access denied by server" in said
    assert "elasticfilesystem:ClientWrite" in said
    deploy(files.running, "files", resources(), Outputs=OUTPUTS)


def test_a_job_without_a_network_is_refused(files: Files) -> None:
    assert "VpcConfig must be specified" in files.refused(files.source("Efs"), VpcConfig=None)


def test_a_file_system_that_is_not_there_is_refused(files: Files) -> None:
    missing = files.source("Efs", FileSystemId="fs-0123456789abcdef0")
    assert "File system 'fs-0123456789abcdef0' does not exist" in files.refused(missing)
    other = files.source("Efs", FileSystemType="FSxLustre")
    assert "has no FSx for Lustre file system with that id" in files.refused(other)


def test_a_channel_has_one_source(files: Files) -> None:
    both = {**channel("files", "s3://shell-bucket/a")["DataSource"], "FileSystemDataSource": files.source("Efs")}
    channels = [{"ChannelName": "files", "DataSource": both}]
    assert "must have one of S3DataSource, FileSystemDataSource" in files.refused({}, InputDataConfig=channels)


@pytest.mark.parametrize(
    ("rule", "after"),
    [
        (between_servers(), ()),
        (between_servers(first=1018), ("Servers",)),
        (between_servers(protocol="udp"), ("Servers",)),
    ],
)
def test_a_file_system_is_refused_before_its_servers_reach_each_other(
    files: Files, rule: dict[str, Any], after: tuple[str, ...]
) -> None:
    made = {name: resources()[name] for name in ("Vpc", "Subnet", "Hosts", "Door")}
    with pytest.raises(WaiterError):
        deploy(files.running, "early", {**made, "Servers": rule, "Lustre": lustre(*after)})
    assert "do not permit Lustre LNET network traffic on port 988" in reasons(files.running, "early")
    destroy(files.running, "early")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"LustreConfiguration": {"ImportPath": "s3://a"}}, "AWS::FSx::DataRepositoryAssociation only, got ImportPath"),
        ({"FileSystemType": "WINDOWS"}, "FileSystemType must be LUSTRE"),
        ({"SubnetIds": ["subnet-0", "subnet-1"]}, "SubnetIds must have exactly one subnet"),
        ({"SubnetIds": ["subnet-0"]}, "The subnet ID 'subnet-0' does not exist"),
    ],
)
def test_a_file_system_that_is_not_made_here_says_why(files: Files, properties: dict[str, Any], message: str) -> None:
    given = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [files.made["Subnet"]], **properties}
    with pytest.raises(WaiterError):
        deploy(files.running, "wrong", {"It": of("FSx::FileSystem", **given)})
    assert message in reasons(files.running, "wrong")
    destroy(files.running, "wrong")


def test_what_a_stack_changes_in_place_keeps_its_files(files: Files) -> None:
    files.run("echo kept > kept.txt", files.source("Lustre"))
    changed = resources(ThroughputMode="elastic")
    changed["Lustre"]["Properties"] |= {"StorageCapacity": 2400, "Tags": [{"Key": "a", "Value": "b"}]}
    changed["Link"]["Properties"]["S3"] = {"AutoImportPolicy": EVENTS}
    changed["Target"]["Properties"]["SecurityGroups"] = [att("Strangers", "GroupId")]
    assert deploy(files.running, "files", changed, Outputs=OUTPUTS) == files.made
    [found] = files.running.client("fsx").describe_file_systems(FileSystemIds=[files.made["Lustre"]])["FileSystems"]
    assert (found["StorageCapacity"], found["Tags"]) == (2400, [{"Key": "a", "Value": "b"}])
    assert files.run("cat kept.txt; touch unexported", files.source("Lustre")) == {"algo-1": ["kept"]}
    assert "data/unexported" not in files.objects("data/unexported")
    assert "connection timed out" in files.failure(files.source("Efs"))
    assert deploy(files.running, "files", resources(), Outputs=OUTPUTS) == files.made


def test_a_file_system_without_a_stack_is_a_folder_until_it_is_deleted(files: Files) -> None:
    fsx = files.running.client("fsx")
    made = fsx.create_file_system(FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[files.made["Subnet"]])
    assert made["FileSystem"]["LustreConfiguration"] == {"MountName": "fsx"}
    folder = files.folder / made["FileSystem"]["FileSystemId"]
    assert folder.is_dir()
    fsx.delete_file_system(FileSystemId=folder.name)
    assert not folder.exists()


def test_a_link_without_import_shows_nothing_of_what_was_there(files: Files) -> None:
    files.put("old/a", b"a")
    more = {
        "Other": lustre(),
        "Late": link("Other", "old/", FileSystemPath="/old", S3={"AutoImportPolicy": {"Events": ["NEW"]}}),
    }
    outputs = {**OUTPUTS, "Other": {"Value": ref("Other")}, "OtherName": {"Value": att("Other", "LustreMountName")}}
    made = deploy(files.running, "files", {**resources(), **more}, Outputs=outputs)
    files.put("old/b", b"b")
    path = {"FileSystemId": made["Other"], "DirectoryPath": f"/{made['OtherName']}/old"}
    assert files.run("ls", files.source("Lustre", **path)) == {"algo-1": ["b"]}
    deploy(files.running, "files", resources(), Outputs=OUTPUTS)
    assert made["Other"] not in {folder.name for folder in files.folder.iterdir()}
