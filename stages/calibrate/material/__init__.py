"""The fit of a few numbers of the material: what earlier cuts lead to expect, corrected by the log."""
