"""IAM's own API; what policies allow is evaluated in the folder `iam` beside `aws`."""
