"""The top-level DVC stage `dataset`: write data/dataset.csv, one row per scan with the metrics of all stages."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from stages.runtime.files import write_bytes_atomic


def collect(scans_dir: Path) -> list[dict[str, Any]]:
    """Return one row per scan: its id and all its metrics as <stage>.<metric>."""
    rows = []
    for scan_yaml in sorted(scans_dir.glob("*/scan.yaml")):
        row: dict[str, Any] = {"scan": scan_yaml.parent.name}
        for metrics in sorted(scan_yaml.parent.glob("*/metrics.json")):
            figures = json.loads(metrics.read_text(encoding="utf-8"))
            row |= {
                f"{metrics.parent.name}.{key}": value
                for key, value in figures.items()
                if isinstance(value, bool | int | float | str)
            }
        rows.append(row)
    return rows


def _to_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV: the scan, then all keys in alphabetical order."""
    columns = ["scan", *sorted({key for row in rows for key in row} - {"scan"})]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def main() -> None:
    """Write data/dataset.csv; DVC runs this in the project's directory."""
    write_bytes_atomic(Path("data/dataset.csv"), _to_csv(collect(Path("data/scans"))).encode())


if __name__ == "__main__":
    main()
