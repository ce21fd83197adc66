"""Shared by all other folders: CDK tokens, checks of single props, image URIs, cdk-nag suppressions."""
