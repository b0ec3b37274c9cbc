"""A project and its scans: where they are, registering, status."""
