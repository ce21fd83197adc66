"""AWS's offer as data with source and date: instance types, containers, the service model."""
