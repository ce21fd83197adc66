"""S3: objects in files, and buckets in CloudFormation."""
