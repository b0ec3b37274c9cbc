"""Versions of the dataset: comparing and reproducing them."""
