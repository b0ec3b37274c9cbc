"""Sections of the report: functions of ScanData that tolerate missing data."""
