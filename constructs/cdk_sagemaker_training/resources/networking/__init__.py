"""The network of training jobs: its VPC, endpoints and addresses."""
