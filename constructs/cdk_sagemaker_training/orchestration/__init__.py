"""What composes workflows: pipelines with gates, approvals and the model registry, sweeps, dashboards."""
