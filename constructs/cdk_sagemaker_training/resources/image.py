"""The container image of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from aws_cdk import Annotations, IgnoreMode, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.image_uri import (
    IN_ECR,
    Repositories,
    is_image_uri,
    is_repository_name,
    repositories_of,
)
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import unlisted_if
from cdk_sagemaker_training.facts.containers import (
    Container,
    Framework,
    account_in,
    account_of,
    aws_container,
    check_repository,
    is_aws_account,
    neuron_container,
    repository_in,
    training_compiler_container,
)
from cdk_sagemaker_training.facts.images import Contents, check_provides, check_tag, contents_of
from cdk_sagemaker_training.props.prop import GRANTED, IN_INPUT, Known, Prop
from cdk_sagemaker_training.props.prop_types import checked

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_ecr_assets as ecr_assets
    from aws_cdk import aws_kms as kms
    from deploy_time_build import ContainerImageBuild

    from training_jobs.lint.dockerfile import Dockerfile

_UNKNOWN = (
    "image_uri does not contain the full name of a repository at synthesis, so jobs get permission to pull from every repository "
    "that matches, in the stack's account and region if it does not contain these either; use one repository, like "
    "TrainingImage.from_ecr_repository(stack, 'Image', ecr.Repository.from_repository_name(stack, 'Jobs', 'jobs'), '1')"
)

_WAYS = ("from_asset", "from_codebuild", "from_dlc", "from_ecr_repository", "from_uri")
_EXAMPLE = "TrainingImage.from_asset(self, 'Image', 'training_code', file='heterogeneous/Dockerfile')"
_BUILT = Known("synth", "since the image is built, or chosen, from it")
_BASE = Prop(known=_BUILT, example="'pytorch-training:2.6.0-gpu-py312'")
_PROVIDES = Prop(known=_BUILT, rule=check_provides, example="{'pytorch': '2.6', 'cuda': '12.6', 'horovod': ''}")


class TrainingImage(Construct):
    """The container image of a job: built from a Dockerfile during deployment, or an existing one; made by its ``from_...``.

    Attributes:
        image_uri: URI of the image, as in CreateTrainingJob; contains tokens.
        repository: The image's repository; None for a registry other than ECR, or if it is unknown at synthesis.
        base: `repository:tag` of the image that it is built from, or of itself if it is one of AWS's; None if unknown.
        is_container: Whether it is one of AWS's containers itself, in which there is no training script.
        platform: The platform that it is built for, like ``"linux/amd64"``; None for an existing image.
        provides: What it has by ``provides=``, versions by name.
        asset: CDK's asset of ``from_asset``; None otherwise.
        build: deploy-time-build's construct of ``from_codebuild``; None otherwise.
        dockerfile: What its Dockerfile says; None for an existing image.
    """

    asset: ecr_assets.DockerImageAsset | None = None
    build: ContainerImageBuild | None = None
    base: str | None
    is_container: bool = False
    platform: str | None = None
    provides: Mapping[str, str] = MappingProxyType({})
    repository: ecr.IRepository | None
    image_uri: str
    _repositories: Repositories | None = None  # set if the image may be in one of several
    dockerfile: Dockerfile | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to be called; the static methods make images.

        Args:
            *args: Anything.
            **kwargs: Anything.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"TrainingImage is made by TrainingImage.{', '.join(_WAYS)}, like {_EXAMPLE}")

    @staticmethod
    @checked
    def from_asset(
        scope: Construct,
        id: str,
        directory: Annotated[str, Prop(known=_BUILT, example="'training_code'")],
        *,
        file: Annotated[str, Prop(known=_BUILT, example="'heterogeneous/Dockerfile'")] = "Dockerfile",
        build_args: Annotated[Mapping[str, str] | None, Prop(known=_BUILT, example="{'VERSION': '2'}")] = None,
        platform: ecr_assets.Platform | None = None,
        cache: bool = True,
        provides: Annotated[Mapping[str, str] | None, _PROVIDES] = None,
    ) -> TrainingImage:
        """Build the image of a directory with Docker, on the machine that deploys.

        Only files that the Dockerfile copies are part of the image's hash, so changes to other files do not rebuild it. The image
        is pushed to the repository of the bootstrap stack. A FROM in AWS's accounts, such as
        ``763104351884.dkr.ecr.us-east-1.amazonaws.com/``, needs a log-in of Docker; the same images are in
        ``public.ecr.aws/deep-learning-containers/`` without. They have 10 GB and more to pull and push: ``from_codebuild`` does
        that in AWS.

        Args:
            scope: The parent construct.
            id: The construct id.
            directory: The build context.
            file: Path of the Dockerfile relative to ``directory``.
            build_args: Values of the Dockerfile's ARGs. They can be read from the image, so they must not be secrets.
            platform: Platform of the image; by default linux/amd64, the platform of SageMaker's training instances.
            cache: Whether layers of earlier builds are reused.
            provides: What the image has beside its base, versions by name, or empty text where they do not matter: ``pytorch``,
                ``tensorflow``, ``cuda``, ``horovod``, ``open-mpi``, ``smddp``, ``smp-v1``, ``smp-v2``, ``neuron``. What runs
                in it is checked against both. Default: what its FROM has; where nothing is known nothing is checked.

        Raises:
            ValueError: The directory lacks the Dockerfile or a file that it copies, or a FROM names an unknown repository or tag
                of AWS's containers.
        """
        from aws_cdk import aws_ecr_assets as ecr_assets

        image = _Image(scope, id, provides)
        source, _ = image._read(directory, file, build_args or {}, platform)
        image.asset = ecr_assets.DockerImageAsset(
            image,
            "Asset",
            **{**source, "build_args": source["build_args"] or None},
            cache_disabled=None if cache else True,
            ignore_mode=IgnoreMode.DOCKER,
        )
        image.repository = image.asset.repository
        image.image_uri = image.asset.image_uri
        return image

    @staticmethod
    @checked
    def from_codebuild(
        scope: Construct,
        id: str,
        directory: Annotated[str, Prop(known=_BUILT, example="'training_code'")],
        *,
        file: Annotated[str, Prop(known=_BUILT, example="'heterogeneous/Dockerfile'")] = "Dockerfile",
        build_args: Annotated[Mapping[str, str] | None, Prop(known=_BUILT, example="{'VERSION': '2'}")] = None,
        platform: ecr_assets.Platform | None = None,
        cache: bool = True,
        repository: ecr.IRepository | None = None,
        removal_policy: RemovalPolicy | None = None,
        encryption_key: kms.IKey | None = None,
        max_images: Annotated[int | None, Prop(known=_BUILT, example="10")] = None,
        vpc: ec2.IVpc | None = None,
        provides: Annotated[Mapping[str, str] | None, _PROVIDES] = None,
    ) -> TrainingImage:
        """Build the image of a directory in AWS, with CodeBuild, from the uploaded source.

        It needs the package ``cdk-sagemaker-training[codebuild]``. Only files that the Dockerfile copies are part of the source,
        so changes to other files do not rebuild it. The build logs in to the registries of its FROMs in ECR, such as those of
        AWS's containers, and may pull these images.

        Args:
            scope: The parent construct.
            id: The construct id.
            directory: The build context.
            file: As of ``from_asset``.
            build_args: As of ``from_asset``.
            platform: As of ``from_asset``.
            cache: Whether layers of earlier builds are reused, if they ran on the same machine.
            repository: Where the image is pushed; by default a new repository, scanned on push, with immutable tags.
            removal_policy: Removal policy of the new repository; RETAIN by default. DESTROY also deletes its images.
            encryption_key: Encryption key of the new repository; AES-256 by default.
            max_images: Number of images that the new repository keeps, from 1 to 1000; 10 by default.
            vpc: The VPC in whose private subnets CodeBuild's project and the function that starts it run; both must reach AWS's
                services, and the build the registries. Default: outside a VPC.
            provides: As of ``from_asset``.

        Raises:
            ValueError: As of ``from_asset``; the package deploy-time-build is missing, or a prop of a new repository is set
                beside ``repository``.
        """
        from cdk_sagemaker_training.resources.codebuild import build_in_codebuild, check_installed, image_repository

        check_installed()
        of_repository = {"removal_policy": removal_policy, "encryption_key": encryption_key, "max_images": max_images}
        for name, value in of_repository.items():
            if repository is not None and value is not None:
                rule = "be left out with an existing repository"
                raise must(f"{name}", rule, f"{name}=None", f"it with repository={repository.node.path!r}")
        image = _Image(scope, id, provides)
        source, parents = image._read(directory, file, build_args or {}, platform)
        image.repository = repository or image_repository(
            image,
            "Repository",
            removal_policy=removal_policy or RemovalPolicy.RETAIN,
            encryption_key=encryption_key,
            max_images=10 if max_images is None else max_images,
        )
        image.build = build_in_codebuild(
            image, "Build", source=source, cache=cache, repository=image.repository, parents=parents, vpc=vpc
        )
        image.image_uri = image.build.image_uri
        return image

    @staticmethod
    @checked
    def from_dlc(
        scope: Construct,
        id: str,
        repository: Annotated[str, Prop(known=GRANTED, example="'pytorch-training'")],
        tag: Annotated[str, Prop(known=IN_INPUT, example="'2.6.0-gpu-py312'")],
        *,
        account_id: Annotated[str | None, Prop(known=GRANTED, example="'763104351884'")] = None,
    ) -> TrainingImage:
        """Use one of AWS's Deep Learning Containers.

        Args:
            scope: The parent construct.
            id: The construct id.
            repository: Name of the repository, like ``"pytorch-training"``.
            tag: Tag of the image, like ``"2.6.0-gpu-py312"``.
            account_id: Registry account, which differs between regions; by default the account of the stack's region in the
                table of AWS's SDK, which includes GovCloud, China and the isolated partitions.

        Raises:
            ValueError: AWS has no such repository or tag, or the account of the stack's region is unknown.
        """
        stack, image = Stack.of(scope), _Image(scope, id)
        image.is_container = account_id is None or is_aws_account(account_id)
        if image.is_container:
            check_repository("repository", repository, repository)
            check_tag("tag", tag, unlisted_if(f"{repository}:{tag}", repository))
        account = account_id or account_in(stack)
        image._use(
            ecr.Repository.from_repository_attributes(
                image,
                "Repository",
                repository_arn=stack.format_arn(
                    service="ecr", account=account, resource="repository", resource_name=repository
                ),
                repository_name=repository,
            ),
            tag,
            unlisted_if(f"{repository}:{tag}", repository, tag),
        )
        return image

    @staticmethod
    @checked
    def from_training_compiler(
        scope: Construct,
        id: str,
        framework: Annotated[Framework, _BUILT],
        version: Annotated[str, Prop(known=_BUILT, example="'1.13.1'")],
    ) -> TrainingImage:
        """Use AWS's container with the Training Compiler.

        Args:
            scope: The parent construct.
            id: The construct id.
            framework: ``"pytorch"``, ``"huggingface-pytorch"``, ``"huggingface-tensorflow"`` or ``"tensorflow"``.
            version: Version of the framework, like ``"1.13.1"``; ``"1.13"`` selects the newest patch release.

        Raises:
            ValueError: There is no such container, or not in the stack's region.
        """
        container = training_compiler_container(framework, version)
        return TrainingImage._from_container(scope, id, container)

    @staticmethod
    @checked
    def from_neuron(scope: Construct, id: str) -> TrainingImage:
        """Use the last of AWS's public containers in which Trainium trains with PyTorch/XLA.

        Args:
            scope: The parent construct.
            id: The construct id.

        Raises:
            ValueError: The stack's region does not have it.
        """
        return TrainingImage._from_container(scope, id, neuron_container())

    @staticmethod
    @checked
    def from_ecr_repository(
        scope: Construct,
        id: str,
        repository: ecr.IRepository,
        tag: Annotated[str, Prop(known=IN_INPUT, example="'2.6.0-gpu-py312'")],
        *,
        base: Annotated[str | None, _BASE] = None,
        provides: Annotated[Mapping[str, str] | None, _PROVIDES] = None,
    ) -> TrainingImage:
        """Use an image in an ECR repository.

        Args:
            scope: The parent construct.
            id: The construct id.
            repository: The repository.
            tag: Tag of the image, or its digest like ``"sha256:..."``.
            base: `repository:tag` of the image that it was built from, like ``"pytorch-trcomp-training:1.13.1-gpu-py39"``, for
                jobs that need a certain one; None if unknown.
            provides: As of ``from_asset``.
        """
        image = _Image(scope, id, provides)
        image._use(repository, tag, base)
        return image

    @staticmethod
    @checked
    def from_uri(
        scope: Construct,
        id: str,
        image_uri: Annotated[
            str,
            Prop(
                known=Known("execution", "permissions are on each repository that it may name"),
                example="'123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1'",
            ),
        ],
        *,
        base: Annotated[str | None, _BASE] = None,
        provides: Annotated[Mapping[str, str] | None, _PROVIDES] = None,
    ) -> TrainingImage:
        """Use an image by its URI, of any account and region.

        ``grant_pull`` grants the repository in the URI. If the URI does not contain it, as with a CloudFormation parameter, it
        grants every repository of the stack's account and region, and synthesis warns; ``from_ecr_repository`` grants one.
        Nothing is granted for a registry other than ECR, from which SageMaker pulls within a VPC only (TrainingImageConfig).

        Args:
            scope: The parent construct.
            id: The construct id.
            image_uri: The URI, like ``"123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"``; may contain tokens or be one.
            base: `repository:tag` of the image that it was built from; None if unknown.
            provides: As of ``from_asset``.

        Raises:
            ValueError: ``image_uri`` has no registry, or names an unknown repository or tag of AWS's containers.
        """
        if not is_image_uri(image_uri):
            rule = "be an image with its registry"
            raise must("image_uri", rule, "'123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1'", repr(image_uri))
        if (in_ecr := IN_ECR.match(image_uri)) and not is_repository_name(in_ecr["repository"]):
            rule = "have a repository in lower case"
            raise must("image_uri", rule, "'123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1'", repr(image_uri))
        container = aws_container(image_uri)
        if container is not None:
            check_repository("image_uri", image_uri, repository_in(container))
            check_tag("image_uri", image_uri, container)
        image = _Image(scope, id, provides)
        listed = None if container is None else unlisted_if(container, image_uri)
        image.base, image.image_uri, image.repository = base or listed, image_uri, None
        image.is_container = container is not None
        found = repositories_of(Stack.of(scope), image_uri)
        if found is not None and found.name is not None:
            image.repository = ecr.Repository.from_repository_attributes(
                image, "Repository", repository_arn=found.arn, repository_name=found.name
            )
        elif found is not None:
            image._repositories = found
            Annotations.of(image).add_warning_v2("cdk-sagemaker-training:repository-unknown", _UNKNOWN)
        return image

    @staticmethod
    def _from_container(scope: Construct, id: str, container: Container) -> TrainingImage:
        account = account_of(container, Stack.of(scope).region)
        return TrainingImage.from_dlc(scope, id, container.repository, container.tag, account_id=account)

    def contents(self) -> Contents | None:
        """What is in the image, by ``provides`` and by its base; None if nothing is known."""
        return contents_of(self.base, self.provides)

    def check_files(self, files: Sequence[str]) -> None:
        """Check that an image which is built copies files of ``training_code_path()``; others are not known.

        Args:
            files: Paths relative to ``training_code_path()``.

        Raises:
            ValueError: A file is not copied by the Dockerfile.
        """
        if self.dockerfile is not None and files:
            from cdk_sagemaker_training.resources.dockerfile import check_copied

            for file in files:
                check_copied(self.dockerfile, file)

    def check_xla_has_cuda(self) -> None:
        """Check that neither tag nor requirements show that the image has no PyTorch/XLA with CUDA.

        Raises:
            ValueError: They show that it has none.
        """
        from cdk_sagemaker_training.resources.xla_image import check_xla_has_cuda

        check_xla_has_cuda(self.base, self.dockerfile)

    def grant_pull(self, grantee: iam.IGrantable) -> iam.Grant:
        """Grant permission to pull the image; workflows and tasks call this for the job's role.

        Args:
            grantee: The role or another grantee.

        Returns:
            CDK's grant, without success for a registry other than ECR, where there is nothing to grant.
        """
        if self.repository is not None:
            return self.repository.grant_pull(grantee)
        if self._repositories is not None:
            return self._repositories.grant_pull(grantee)
        return iam.Grant.drop(grantee, "pulling from a registry other than ECR")


class _Image(TrainingImage):
    """An image, as the static methods make it."""

    def __init__(self, scope: Construct, id: str, provides: Mapping[str, str] | None = None) -> None:
        Construct.__init__(self, scope, id)
        self.provides = MappingProxyType(dict(provides or {}))

    def _read(
        self, directory: str, file: str, build_args: Mapping[str, str], platform: ecr_assets.Platform | None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Read the Dockerfile; return what a build takes, and the images of its FROMs."""
        # Imported here because an image in a repository needs neither.
        from aws_cdk import aws_ecr_assets as ecr_assets

        from cdk_sagemaker_training.resources.dockerfile import check_sources, ignore_lines
        from training_jobs.lint.dockerfile import Dockerfile

        _check_dockerfile(directory, file)
        self.dockerfile = Dockerfile(Path(directory), file, build_args)
        check_sources(self.dockerfile)
        self.base = unlisted_if(self.dockerfile.image.parent.rsplit("/", 1)[-1], file)
        parents = self.dockerfile.pulled
        for parent in parents:
            if container := aws_container(parent):
                check_repository(f"each FROM of file {file!r}", file, repository_in(container))
                check_tag(f"each FROM of file {file!r}", file, container)
        platform = platform or ecr_assets.Platform.LINUX_AMD64
        self.platform = platform.platform
        source: dict[str, Any] = {
            "directory": directory,
            "file": file,
            "build_args": dict(build_args),
            "platform": platform,
            "exclude": ignore_lines(self.dockerfile),
        }
        return source, parents

    def _use(self, repository: ecr.IRepository, tag: str, base: str | None) -> None:
        self.repository = repository
        self.base = base
        self.image_uri = repository.repository_uri_for_tag_or_digest(tag)


def _check_dockerfile(directory: str, file: str) -> None:
    if is_unresolved(directory) or not Path(directory).is_dir():
        raise must("directory", "be a folder with a Dockerfile", "'training_code'", repr(directory))
    if Path(directory, file).is_file():
        return
    below = sorted(str(path.relative_to(directory)) for path in Path(directory).glob("*/Dockerfile"))
    example = f"file={below[0]!r}" if below else "'training_code' with file='heterogeneous/Dockerfile'"
    raise must("directory", "contain the Dockerfile that file names", f"{example}", f"{directory!r} without {file!r}")
