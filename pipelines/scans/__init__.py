"""Scans of a project: registration, status, single cuts."""
