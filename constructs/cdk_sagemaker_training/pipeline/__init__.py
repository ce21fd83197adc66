"""Several workflows one after the other, and what stands between them: gates, approvals, the model registry."""
