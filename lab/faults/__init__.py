"""Fault injection: kills, damaged inputs, the nightly run."""
