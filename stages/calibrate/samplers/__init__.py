"""Sampling of posteriors of a few unknowns: methods, listed in stages/calibrate/methods.py."""
