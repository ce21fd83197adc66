"""CloudFormation's resource types, a module for each service."""
