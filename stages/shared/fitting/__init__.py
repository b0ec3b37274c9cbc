"""Tools for fitting: bounds, low-pass, the loop that can be resumed."""
