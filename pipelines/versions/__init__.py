"""Versions of the dataset: history, comparison, reproduction."""
