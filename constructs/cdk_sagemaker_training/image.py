"""The container image of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aws_cdk import IgnoreMode, RemovalPolicy, Stack, Validations
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from cdk_sagemaker_training.builders import Builder, check_left_out, chosen_builder
from cdk_sagemaker_training.containers import (
    Container,
    Framework,
    account_in,
    account_of,
    check_repository,
    is_of_aws,
    neuron_container,
    own_container,
    repository_in,
    training_compiler_container,
)
from cdk_sagemaker_training.image_uri import Repositories, is_image_uri, repositories_of
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import marked

if TYPE_CHECKING:
    from aws_cdk import aws_ecr_assets as ecr_assets
    from aws_cdk import aws_kms as kms
    from deploy_time_build import ContainerImageBuild

_UNKNOWN = (
    "image_uri does not hold the name of one repository when the app is synthesized, so jobs may pull from every repository that "
    "it may be in, of the stack's account and region where it does not hold these either; name one, like "
    "TrainingImage.from_ecr_repository(stack, 'Image', ecr.Repository.from_repository_name(stack, 'Jobs', 'jobs'), '1')"
)


class TrainingImage(Construct):
    """The image that every host of a job runs, built from a directory with a Dockerfile when the app is deployed.

    ``file`` is the Dockerfile, relative to ``directory``, which is the build context. Of that only what the Dockerfile copies
    is part of the image's hash, so that an edit beside it builds nothing anew. SageMaker's machines for training are
    linux/amd64, so that is ``platform`` unless said otherwise. ``build_args`` are the values of the Dockerfile's ARGs; they can
    be read from the image, so none may be a secret.

    - ``builder`` is ``"docker"``, on the machine that deploys, or ``"codebuild"``, in AWS from the uploaded source. None takes
      the latter for a FROM of one of AWS's containers, which weigh 10 GB and more to pull and to push. It takes the package
      ``cdk-sagemaker-training[codebuild]``. Docker needs a log-in for a FROM in an account of AWS's, such as
      ``763104351884.dkr.ecr.us-east-1.amazonaws.com/``, which CodeBuild does by itself; the same tags lie without one in
      ``public.ecr.aws/deep-learning-containers/``.
    - ``repository`` is where CodeBuild puts the image, by default a new one: encrypted (with ``encryption_key``, else AES-256),
      scanned on push, with immutable tags, holding the newest ``max_images`` (10). ``removal_policy`` is the new one's, RETAIN
      unless said; with DESTROY it goes with its images. Docker pushes to the repository of the bootstrap stack.
    - ``cache`` False builds each layer anew.

    ``image_uri`` is what a CreateTrainingJob request names, ``repository`` where the image lies, and ``asset`` (of Docker) or
    ``build`` (of CodeBuild) what builds it. ``base`` is the `repository:tag` of what it is built from, or is itself, without the
    registry; None where that is not known. Raises ``ValueError`` for a directory without the Dockerfile, or without a file that
    the Dockerfile copies.
    """

    asset: ecr_assets.DockerImageAsset | None = None
    build: ContainerImageBuild | None = None
    base: str | None
    repository: ecr.IRepository | None
    image_uri: str
    _repositories: Repositories | None = None  # where the image lies in one of several

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        directory: str,
        file: str = "Dockerfile",
        build_args: Mapping[str, str] | None = None,
        platform: ecr_assets.Platform | None = None,
        builder: Builder | None = None,
        cache: bool = True,
        repository: ecr.IRepository | None = None,
        removal_policy: RemovalPolicy | None = None,
        encryption_key: kms.IKey | None = None,
        max_images: int | None = None,
    ) -> None:
        # Here and not above, since an image that lies in a repository needs neither.
        from aws_cdk import aws_ecr_assets as ecr_assets

        from cdk_sagemaker_training.dockerfile import base_image, copied_sources, excluded_but, parent_images

        super().__init__(scope, id)
        _check_dockerfile(directory, file)
        sources = copied_sources(Path(directory), file)
        self.base = marked(base_image(Path(directory), file, build_args or {}), file)
        parents = parent_images(Path(directory), file, build_args or {})
        for parent in parents:
            if container := own_container(parent):
                check_repository(f"each FROM of file {file!r}", file, repository_in(container))
        source: dict[str, Any] = {
            "directory": directory,
            "file": file,
            "build_args": dict(build_args or {}),
            "platform": platform or ecr_assets.Platform.LINUX_AMD64,
            "exclude": None if sources is None else excluded_but([file, *sources], Path(directory)),
        }
        own = {"removal_policy": removal_policy, "encryption_key": encryption_key, "max_images": max_images}
        if chosen_builder(builder, parents) == "docker":
            check_left_out({"repository": repository, **own}, "builder='codebuild'", "builder='docker'")
            self._build_with_docker(source, cache)
        else:
            if repository is not None:
                check_left_out(own, "repository=None", f"repository={repository.node.path!r}")
            self._build_in_codebuild(source, cache, parents, repository, own)

    def _build_with_docker(self, source: dict[str, Any], cache: bool) -> None:
        from aws_cdk import aws_ecr_assets as ecr_assets

        self.asset = ecr_assets.DockerImageAsset(
            self,
            "Asset",
            **{**source, "build_args": source["build_args"] or None},
            cache_disabled=None if cache else True,
            ignore_mode=IgnoreMode.DOCKER,
        )
        self.repository = self.asset.repository
        self.image_uri = self.asset.image_uri

    def _build_in_codebuild(
        self,
        source: dict[str, Any],
        cache: bool,
        parents: tuple[str, ...],
        repository: ecr.IRepository | None,
        own: Mapping[str, Any],
    ) -> None:
        from cdk_sagemaker_training.codebuild import build_in_codebuild, repository_of_images

        holder = repository or repository_of_images(
            self,
            "Repository",
            removal_policy=own["removal_policy"] or RemovalPolicy.RETAIN,
            encryption_key=own["encryption_key"],
            max_images=10 if own["max_images"] is None else own["max_images"],
        )
        self.repository = holder
        self.build = build_in_codebuild(self, "Build", **source, cache=cache, repository=holder, parents=parents)
        self.image_uri = self.build.image_uri

    @staticmethod
    @checked
    def from_dlc(
        scope: Construct, id: str, repository: str, tag: str, *, account_id: str | None = None
    ) -> TrainingImage:
        """One of AWS's Deep Learning Containers as it is, like ``"pytorch-training"`` with a tag like ``"2.6.0-gpu-py312"``.

        ``account_id`` is the account that holds them; it differs between regions, and by default is the one in the table of
        AWS's SDK for the stack's region, GovCloud, China and the isolated partitions included.
        """
        if account_id is None or is_of_aws(account_id):
            check_repository("repository", repository, repository)
        stack = Stack.of(scope)
        image = _ImageInRepository(scope, id)
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
            marked(f"{repository}:{tag}", repository, tag),
        )
        return image

    @staticmethod
    @checked
    def from_training_compiler(scope: Construct, id: str, framework: Framework, version: str) -> TrainingImage:
        """AWS's container with the Training Compiler for a framework and its version, like ``("pytorch", "1.13.1")``."""
        container = training_compiler_container(framework, version)
        return TrainingImage._from_container(scope, id, container)

    @staticmethod
    @checked
    def from_neuron(scope: Construct, id: str) -> TrainingImage:
        """The last public container of AWS's in which Trainium trains with PyTorch/XLA."""
        return TrainingImage._from_container(scope, id, neuron_container())

    @staticmethod
    @checked
    def from_ecr_repository(
        scope: Construct, id: str, repository: ecr.IRepository, tag: str, *, base: str | None = None
    ) -> TrainingImage:
        """An image that lies in a repository already, by its tag, or by its digest, like ``"sha256:..."``.

        ``base`` says which image it was built from, like ``"pytorch-trcomp-training:1.13.1-gpu-py39"``, where a job asks.
        """
        image = _ImageInRepository(scope, id)
        image._use(repository, tag, base)
        return image

    @staticmethod
    @checked
    def from_uri(scope: Construct, id: str, image_uri: str, *, base: str | None = None) -> TrainingImage:
        """An image by its URI, like ``"123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"``, of any account and region.

        Parts of it may be tokens, such as the stack's account and region, and so may the whole: a parameter, an import, the URI
        of an image asset. What may pull it may pull from the repository that it names. Where the text does not hold that, as
        with a parameter, it may pull from every repository of the stack's account and region, and a warning says so: with
        ``from_ecr_repository`` it is one. ``repository`` is None then. It also is, and nothing is granted, for a registry other
        than ECR, of which SageMaker pulls within a VPC only (TrainingImageConfig). ``base`` is as in ``from_ecr_repository``.
        """
        if not is_image_uri(image_uri):
            raise ValueError(
                "image_uri must be an image with its registry, "
                f"like '123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1', got {image_uri!r}"
            )
        container = own_container(image_uri)
        if container is not None:
            check_repository("image_uri", image_uri, repository_in(container))
        image = _ImageInRepository(scope, id)
        own = None if container is None else marked(container, image_uri)
        image.base, image.image_uri, image.repository = base or own, image_uri, None
        found = repositories_of(Stack.of(scope), image_uri)
        if found is not None and found.name is not None:
            image.repository = ecr.Repository.from_repository_attributes(
                image, "Repository", repository_arn=found.arn, repository_name=found.name
            )
        elif found is not None:
            image._repositories = found
            Validations.of(image).add_warning("cdk-sagemaker-training:repository-unknown", _UNKNOWN)
        return image

    @staticmethod
    def _from_container(scope: Construct, id: str, container: Container) -> TrainingImage:
        account = account_of(container, Stack.of(scope).region)
        return TrainingImage.from_dlc(scope, id, container.repository, container.tag, account_id=account)

    def grant_pull(self, grantee: object) -> None:
        """Let ``grantee`` pull the image; what runs a job calls this for the job's role."""
        if self.repository is not None:
            self.repository.grant_pull(grantee)  # type: ignore[arg-type]
        elif self._repositories is not None:
            self._repositories.grant_pull(grantee)  # type: ignore[arg-type]


class _ImageInRepository(TrainingImage):
    """An image that nothing here builds."""

    def __init__(self, scope: Construct, id: str) -> None:
        Construct.__init__(self, scope, id)

    def _use(self, repository: ecr.IRepository, tag: str, base: str | None) -> None:
        self.repository = repository
        self.base = base
        self.image_uri = repository.repository_uri_for_tag_or_digest(tag)


def _check_dockerfile(directory: str, file: str) -> None:
    if is_unresolved(directory) or not Path(directory).is_dir():
        raise ValueError(f"directory must be a folder with a Dockerfile, like 'training_code', got {directory!r}")
    if Path(directory, file).is_file():
        return
    below = sorted(str(path.relative_to(directory)) for path in Path(directory).glob("*/Dockerfile"))
    example = f"file={below[0]!r}" if below else "'training_code' with file='heterogeneous/Dockerfile'"
    raise ValueError(
        f"directory must hold the Dockerfile that file names, like {example}, got {directory!r} without {file!r}"
    )
