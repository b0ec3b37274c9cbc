"""Posteriors of a handful of unknowns by sampling: one file per method, named in table.py."""
