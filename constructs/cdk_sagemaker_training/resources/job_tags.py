"""Tags of training jobs that CDK's ``Tags.of(scope)`` adds: to a job as to any resource below ``scope``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import jsii
from aws_cdk import IResolvable, ITaggableV2, TagManager, TagType
from constructs import Construct, IValidation

from cdk_sagemaker_training.core.lazy import at_synthesis
from cdk_sagemaker_training.core.tokens import is_unresolved

_RESOURCE_TYPE = "AWS::SageMaker::TrainingJob"  # for include_resource_types and exclude_resource_types of a tag
# TagList, TagKey and TagValue of the service model; \w and \s stand for \p{L}, \p{N} and \p{Z}.
_MOST_TAGS = 50
_KEY = re.compile(r"(?!(?i:aws:))[\w\s.:/=+\-@]{1,128}")
_VALUE = re.compile(r"[\w\s.:/=+\-@]{0,256}")


@jsii.implements(ITaggableV2, IValidation)
class JobTags(Construct):
    """The tags that the jobs of a construct get from the scopes around it.

    Training jobs are no resources of a stack, so that CDK's tags would not reach them. This construct is taggable in their place;
    tags are known when the app is synthesized, after all aspects, and rendered only then.
    """

    def __init__(self, scope: Construct) -> None:
        """Create the construct, with the id "JobTags"."""
        super().__init__(scope, "JobTags")
        self._manager = TagManager(TagType.KEY_VALUE, _RESOURCE_TYPE)
        self._requested: set[str] = set()
        self.node.add_validation(self)

    @property
    @jsii.member(jsii_name="cdkTagManager")
    def cdk_tag_manager(self) -> TagManager:
        """What CDK's tags are added to."""
        return self._manager

    def listed(self, requested: Sequence[Mapping[str, str]]) -> IResolvable:
        """Return the member Tags of a CreateTrainingJob request, rendered at synthesis.

        Args:
            requested: The tags that the request has, in ASL's JSONPath: each a Key, and a Value or ``Value.$``. They win over
                tags of scopes with the same key.
        """
        self._requested |= {tag["Key"] for tag in requested}
        return at_synthesis(
            lambda: [*requested, *({"Key": key, "Value": value} for key, value in self._others().items())]
        )

    def mapped(self, requested: Mapping[str, str]) -> IResolvable:
        """Return the member Tags of AWS Batch's SubmitServiceJob, rendered at synthesis.

        Args:
            requested: The tags that the request has, in ASL's JSONPath, whose names may end in ``.$``. They win over tags of
                scopes with the same key.
        """
        self._requested |= {key.removesuffix(".$") for key in requested}
        return at_synthesis(lambda: {**requested, **self._others()})

    @jsii.member(jsii_name="validate")
    def validate(self) -> list[str]:
        """Return what SageMaker would refuse of the tags, which CDK reports as errors."""
        others = self._others()
        errors = [
            f"tags of a scope must have names of 1 to 128 letters, digits, spaces and '_.:/=+-@' that do not begin with 'aws:', "
            f"like 'team', got {key!r}"
            for key in others
            if not is_unresolved(key) and not _KEY.fullmatch(key)
        ]
        errors += [
            f"tags of a scope must have values of at most 256 letters, digits, spaces and '_.:/=+-@', like 'vision', "
            f"got {value!r}"
            for value in others.values()
            if not is_unresolved(value) and not _VALUE.fullmatch(value)
        ]
        if len(others) + len(self._requested) > _MOST_TAGS:
            errors.append(
                f"tags of a scope must be at most {_MOST_TAGS - len(self._requested)} beside the job's own "
                f"{len(self._requested)}, like 1, got {len(others)}"
            )
        return errors

    def _others(self) -> dict[str, str]:
        return {key: value for key, value in sorted(self._manager.tag_values().items()) if key not in self._requested}
