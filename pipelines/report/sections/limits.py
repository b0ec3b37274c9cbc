"""Safety limits that this scan does not take from params.yaml."""

from pipelines.report.blocks import Note, Section, Table
from pipelines.report.scan_data import ScanData
from pipelines.scans.safety_limits import changed_limits
from stages.runtime.scan_file import PARAMS_FILE_NAME
from stages.runtime.yaml_file import read_mapping


def limits(data: ScanData) -> Section:
    """Which limits of motion, clearance and robot differ from those of params.yaml."""
    params = read_mapping(data.project.root / PARAMS_FILE_NAME)
    rows = [
        (name, "the robot's own" if shipped is None else str(shipped), str(own))
        for name, shipped, own in changed_limits(params, data.scan_yaml)
    ]
    if not rows:
        note = Note("All limits of motion, clearance and robot are those of params.yaml.")
        return Section("limits", "Limits", [note])
    note = Note(
        f"{len(rows)} of the limits of motion, clearance and robot are not those of params.yaml. The certificate was "
        "made with the values of this scan.",
        "warning",
    )
    return Section("limits", "Limits", [note, Table(("parameter", "params.yaml", "this scan"), rows)])
