"""The operations of AWS Batch by the last part of their path, and actions by the kind of their resource.

The resource is a stack, a repository, a role or a key (source: IAM's Service Authorization Reference).

Other actions of these services, such as ``iam:GetUser`` and ``kms:CreateKey``, have another resource type or none.
"""

from __future__ import annotations

BATCH_OPERATIONS = {
    name.lower(): name
    for name in (
        *("CreateJobQueue", "CreateQuotaShare", "CreateSchedulingPolicy", "CreateServiceEnvironment"),
        *("DeleteJobQueue", "DeleteQuotaShare", "DeleteSchedulingPolicy", "DeleteServiceEnvironment"),
        *("DescribeQuotaShare", "ListQuotaShares", "UpdateQuotaShare"),
        *("DescribeJobQueues", "DescribeSchedulingPolicies", "DescribeServiceEnvironments"),
        *("DescribeServiceJob", "ListServiceJobs", "SubmitServiceJob", "TerminateServiceJob"),
    )
}
# The operations of EventBridge Scheduler by the method and the first part of their path (service model).
SCHEDULER_OPERATIONS = {
    ("DELETE", "schedules"): "DeleteSchedule",
    ("GET", "schedules"): "GetSchedule",
    ("POST", "schedules"): "CreateSchedule",
    ("PUT", "schedules"): "UpdateSchedule",
    ("DELETE", "schedule-groups"): "DeleteScheduleGroup",
    ("GET", "schedule-groups"): "GetScheduleGroup",
    ("POST", "schedule-groups"): "CreateScheduleGroup",
}
_STACKS = """
CancelUpdateStack ContinueUpdateRollback CreateChangeSet CreateStack CreateStackRefactor DeleteChangeSet DeleteStack
DescribeChangeSet DescribeChangeSetHooks DescribeEvents DescribeStackEvents DescribeStackRefactor DescribeStackResource
DescribeStackResourceDrifts DescribeStackResources DescribeStacks DetectStackDrift DetectStackResourceDrift ExecuteChangeSet
ExecuteStackRefactor GetStackPolicy GetTemplate ListChangeSets ListHookResults ListStackRefactorActions ListStackRefactors
ListStackResources RecordHandlerProgress RollbackStack SetStackPolicy SignalResource TagResource UntagResource UpdateStack
UpdateTerminationProtection
"""
_REPOSITORIES = """
BatchCheckLayerAvailability BatchDeleteImage BatchGetImage BatchGetRepositoryScanningConfiguration BatchImportUpstreamImage
CompleteLayerUpload CreateRepository DeleteLifecyclePolicy DeleteRepository DeleteRepositoryPolicy
DescribeImageReplicationStatus DescribeImageScanFindings DescribeImageSigningStatus DescribeImages DescribeRepositories
GetDownloadUrlForLayer GetImageCopyStatus GetLifecyclePolicy GetLifecyclePolicyPreview GetRepositoryPolicy
InitiateLayerUpload ListImages ListTagsForResource PutImage PutImageScanningConfiguration PutImageTagMutability
PutLifecyclePolicy ReplicateImage SetRepositoryPolicy StartImageScan StartLifecyclePolicyPreview TagResource UntagResource
UpdateImageStorageClass UploadLayerPart
"""
_ROLES = """
AttachRolePolicy CreateRole CreateServiceLinkedRole DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy
DeleteServiceLinkedRole DetachRolePolicy GenerateServiceLastAccessedDetails GetContextKeysForPrincipalPolicy GetRole
GetRolePolicy GetServiceLinkedRoleDeletionStatus ListAttachedRolePolicies ListInstanceProfilesForRole
ListPoliciesGrantingServiceAccess ListRolePolicies ListRoleTags PassRole PutRolePermissionsBoundary PutRolePolicy
SimulatePrincipalPolicy TagRole UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription
"""
_KEYS = """
CancelKeyDeletion CreateAlias CreateGrant Decrypt DeleteAlias DeleteImportedKeyMaterial DeriveSharedSecret DescribeKey
DisableKey DisableKeyRotation EnableKey EnableKeyRotation Encrypt GenerateDataKey GenerateDataKeyPair
GenerateDataKeyPairWithoutPlaintext GenerateDataKeyWithoutPlaintext GenerateMac GetKeyPolicy GetKeyRotationStatus
GetParametersForImport GetPublicKey ImportKeyMaterial ListGrants ListKeyPolicies ListKeyRotations ListResourceTags
PutKeyPolicy ReEncryptFrom ReEncryptTo ReplicateKey RetireGrant RevokeGrant RotateKeyOnDemand ScheduleKeyDeletion Sign
SynchronizeMultiRegionKey TagResource UntagResource UpdateAlias UpdateKeyDescription UpdatePrimaryRegion Verify VerifyMac
"""
ON_STACKS, ON_REPOSITORIES, ON_ROLES, ON_KEYS = (text.split() for text in (_STACKS, _REPOSITORIES, _ROLES, _KEYS))
