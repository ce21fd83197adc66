"""Secrets Manager: secrets, in CloudFormation."""
