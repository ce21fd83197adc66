"""The container image of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import IgnoreMode, Stack
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from cdk_sagemaker_training.containers import (
    Container,
    Framework,
    account_of,
    neuron_container,
    training_compiler_container,
)
from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import aws_ecr_assets as ecr_assets


class TrainingImage(Construct):
    """The image that every host of a job runs, built from a directory with a Dockerfile when the app is deployed.

    ``file`` is the Dockerfile, relative to ``directory``, which is the build context. Of that only what the Dockerfile copies
    is part of the image's hash, so that an edit beside it builds nothing anew. SageMaker's machines for training are
    linux/amd64, so that is ``platform`` unless said otherwise. ``build_args`` are the values of the Dockerfile's ARGs; they can
    be read from the image, so none may be a secret.

    ``image_uri`` is what a CreateTrainingJob request names, ``repository`` where the image lies, and ``asset`` what builds it.
    ``base`` is the `repository:tag` of what it is built from, or is itself, without the registry; None where that is not known.
    Raises ``ValueError`` for a directory without the Dockerfile, or without a file that the Dockerfile copies.
    """

    asset: ecr_assets.DockerImageAsset | None
    base: str | None

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        directory: str,
        file: str = "Dockerfile",
        build_args: Mapping[str, str] | None = None,
        platform: ecr_assets.Platform | None = None,
    ) -> None:
        # Here and not above, since an image that lies in a repository needs neither.
        from aws_cdk import aws_ecr_assets as ecr_assets

        from cdk_sagemaker_training.dockerfile import base_image, copied_sources, excluded_but

        super().__init__(scope, id)
        _check_dockerfile(directory, file)
        sources = copied_sources(Path(directory), file)
        self.base = base_image(Path(directory), file, build_args or {})
        self.asset = ecr_assets.DockerImageAsset(
            self,
            "Asset",
            directory=directory,
            file=file,
            build_args=dict(build_args or {}) or None,
            platform=platform or ecr_assets.Platform.LINUX_AMD64,
            ignore_mode=IgnoreMode.DOCKER,
            exclude=None if sources is None else excluded_but([file, *sources], Path(directory)),
        )
        self.repository: ecr.IRepository = self.asset.repository
        self.image_uri: str = self.asset.image_uri

    @staticmethod
    def from_dlc(
        scope: Construct, id: str, repository: str, tag: str, *, account_id: str | None = None
    ) -> TrainingImage:
        """One of AWS's Deep Learning Containers as it is, like ``"pytorch-training"`` with a tag like ``"2.6.0-gpu-py312"``.

        ``account_id`` is the account that holds them; it differs between regions, and by default is the one that CDK's
        region-info knows for the stack's region.
        """
        stack = Stack.of(scope)
        image = _ImageInRepository(scope, id)
        account = account_id or _account_of_dlc(stack)
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
            f"{repository}:{tag}",
        )
        return image

    @staticmethod
    def from_training_compiler(scope: Construct, id: str, framework: Framework, version: str) -> TrainingImage:
        """AWS's container with the Training Compiler for a framework and its version, like ``("pytorch", "1.13.1")``."""
        container = training_compiler_container(framework, version)
        return TrainingImage._from_container(scope, id, container)

    @staticmethod
    def from_neuron(scope: Construct, id: str) -> TrainingImage:
        """The last public container of AWS's in which Trainium trains with PyTorch/XLA."""
        return TrainingImage._from_container(scope, id, neuron_container())

    @staticmethod
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
    def _from_container(scope: Construct, id: str, container: Container) -> TrainingImage:
        account = account_of(container, Stack.of(scope).region)
        return TrainingImage.from_dlc(scope, id, container.repository, container.tag, account_id=account)

    def grant_pull(self, grantee: object) -> None:
        """Let ``grantee`` pull the image; what runs a job calls this for the job's role."""
        self.repository.grant_pull(grantee)  # type: ignore[arg-type]


class _ImageInRepository(TrainingImage):
    """An image that nothing here builds."""

    def __init__(self, scope: Construct, id: str) -> None:
        Construct.__init__(self, scope, id)
        self.asset = None

    def _use(self, repository: ecr.IRepository, tag: str, base: str | None) -> None:
        self.repository = repository
        self.base = base
        self.image_uri = repository.repository_uri_for_tag_or_digest(tag)


def _account_of_dlc(stack: Stack) -> str:
    from aws_cdk.region_info import FactName

    return stack.regional_fact(FactName.DLC_REPOSITORY_ACCOUNT)


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
