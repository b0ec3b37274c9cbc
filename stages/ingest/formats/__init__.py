"""The formats of logs: one file each, named in stages/shared/input_files.py.

Each has `recognises(file: LogFile) -> bool`, which looks at the content, and
`read(file: LogFile, params: IngestParams) -> RobotLog`.
"""
