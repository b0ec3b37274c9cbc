"""Tools for fitting: bounds, low-pass."""
