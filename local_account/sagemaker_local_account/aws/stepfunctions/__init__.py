"""Step Functions: moto's interpreter, corrected, and the integration with SageMaker."""
