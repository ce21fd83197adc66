"""Pipelines: several workflows in order, with gates, approvals and the model registry between them."""
