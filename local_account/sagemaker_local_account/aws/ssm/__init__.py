"""SSM: parameters, in CloudFormation."""
