"""Writes pipelines/dvc/scan.dvc.yaml from the stages' folders: `python -m scripts.write_pipeline`."""

from pathlib import Path

from pipelines.dvc.write_template import template_text
from pipelines.scans.project import TEMPLATE
from stages.runtime.atomic_file import write_bytes_atomic

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    write_bytes_atomic(ROOT / TEMPLATE, template_text(ROOT).encode())
