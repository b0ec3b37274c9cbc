"""Fit of a few material parameters with a prior from earlier cuts."""
