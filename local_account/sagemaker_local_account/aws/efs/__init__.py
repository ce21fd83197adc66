"""EFS: file systems, in CloudFormation."""
