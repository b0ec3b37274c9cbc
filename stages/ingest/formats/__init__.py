"""Log formats: one module each, listed in stages/shared/input_files.py.

Each has `recognises(file: LogFile) -> bool`, which checks the content, and `read(file: LogFile, params: IngestParams)
-> RobotLog`.
"""
