"""What AWS offers, as data with source and date: instance types, containers, the service model."""
