"""report.html: all results of a run on one self-contained page."""
