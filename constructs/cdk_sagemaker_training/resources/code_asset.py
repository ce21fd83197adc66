"""Uploads a folder of training code in the form that SageMaker's toolkit unpacks."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from aws_cdk import AssetHashType, Stage
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.code import SETTINGS, STARTER, TrainingCode
from cdk_sagemaker_training.packaged import training_code_path


def code_asset(scope: Construct, code: TrainingCode) -> s3_assets.Asset:
    """Make an asset of a folder, a `sourcedir.tar.gz`; CDK's own archives are zip files, which the toolkit does not unpack.

    Returns:
        The asset, whose hash depends on the files' paths, contents and mode alone.
    """
    archive = _archive(code)
    digest = hashlib.sha256(archive).hexdigest()
    # In the assembly, since `cdk synth --no-staging` refers to the file where it is.
    file = Path(Stage.of(scope).asset_outdir, f"sourcedir-{digest}.tar.gz")  # type: ignore[union-attr]
    file.write_bytes(gzip.compress(archive, mtime=0))
    # The hash is of the files, since the bytes of gzip differ between versions of zlib.
    return s3_assets.Asset(scope, "Code", path=str(file), asset_hash=digest, asset_hash_type=AssetHashType.CUSTOM)


def archives_beside(asset: s3_assets.Asset) -> str:
    """Return the pattern of the keys of an archive and of others beside it.

    A job may read all of them, as who may read CDK's assets may read all of their bucket: "we give permissions on all files in
    the bucket since we don't want to accidentally revoke permission on old versions when deploying a new version" (aws-s3-assets,
    Asset.grantRead). The next attempt of an execution from before the code was edited reads the code from then.
    """
    key = asset.s3_object_key
    if is_unresolved(key):
        return key
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}*{name[name.find('.') :]}"


def _archive(code: TrainingCode) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in code.files():
            source = Path(code.directory) / path
            entry = tarfile.TarInfo(path.as_posix())
            entry.size = source.stat().st_size
            entry.mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
            with source.open("rb") as file:
                archive.addfile(entry, file)
        for name, text in _starter(code).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def _starter(code: TrainingCode) -> dict[str, bytes]:
    """The files that start the script in place of the toolkit, by name; none where that does."""
    if not code.starter:
        return {}
    of_script = {"script": code.entry_point, "form": code.arguments, "flags": [*code.flags]}
    settings = of_script if code.command is None else {"command": code.command}
    program = Path(training_code_path(), "entrypoint", STARTER)
    return {STARTER: program.read_bytes(), SETTINGS: json.dumps(settings).encode()}
