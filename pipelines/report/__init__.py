"""report.html: everything a run decided, on one page that needs nothing but a browser."""
