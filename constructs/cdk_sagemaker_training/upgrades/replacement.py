"""The properties whose change replaces a resource: it is deleted, and another is made with the same logical id."""

# `createOnlyProperties` of CloudFormation's resource schemas, of the types that the constructs make.
# https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html
CREATE_ONLY = {
    "AWS::Batch::JobQueue": {"JobQueueName", "JobQueueType"},
    "AWS::Batch::SchedulingPolicy": {"Name"},
    "AWS::Batch::ServiceEnvironment": {"ServiceEnvironmentName", "ServiceEnvironmentType"},
    "AWS::CodeBuild::Project": {"Name"},
    "AWS::CloudWatch::Alarm": {"AlarmName"},
    "AWS::EC2::SecurityGroup": {"GroupDescription", "GroupName", "VpcId"},
    "AWS::ECR::Repository": {"EncryptionConfiguration", "RepositoryName"},
    "AWS::EFS::FileSystem": {"AvailabilityZoneName", "Encrypted", "KmsKeyId", "PerformanceMode"},
    "AWS::FSx::DataRepositoryAssociation": {
        "BatchImportMetaDataOnCreate",
        "DataRepositoryPath",
        "FileSystemId",
        "FileSystemPath",
    },
    "AWS::FSx::FileSystem": {"BackupId", "FileSystemType", "KmsKeyId", "SecurityGroupIds", "SubnetIds"},
    "AWS::Events::Rule": {"Name"},
    "AWS::IAM::Role": {"Path", "RoleName"},
    "AWS::Lambda::Function": {"FunctionName", "PackageType", "TenancyConfig"},
    "AWS::Logs::LogGroup": {"LogGroupName"},
    "AWS::S3::Bucket": {"BucketName", "BucketNamePrefix", "BucketNamespace"},
    "AWS::SNS::Topic": {"FifoTopic", "TopicName"},
    "AWS::SQS::Queue": {"FifoQueue", "QueueName"},
    "AWS::SageMaker::ModelPackageGroup": {"ModelPackageGroupDescription", "ModelPackageGroupName"},
    "AWS::StepFunctions::StateMachine": {"StateMachineName", "StateMachineType"},
}
