"""The report's parts, in the order in which a person asks. Each is a function of ScanData and bears missing data."""
