"""EC2: networks, in CloudFormation."""
