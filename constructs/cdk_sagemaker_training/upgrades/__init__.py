"""What an upgrade changes in an app: two synthesized cloud assemblies, compared by what the library guarantees to keep."""
