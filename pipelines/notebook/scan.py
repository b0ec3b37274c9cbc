"""A scan's results as tables, and cuts of it, without the pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from disect_sim.errors import InputError
from disect_sim.materials import MATERIALS
from pipelines.scans.project import Project, find_project, known_scans
from stages.runtime.artifacts import read_metrics, read_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.params import check_section_names, merge_params
from stages.runtime.scan_file import IDENTITY_KEYS, PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.scan_file import read_scan_mapping as read_mapping


@dataclass(frozen=True)
class Cut:
    """A simulated cut."""

    force: pl.DataFrame
    """Columns of simulate/force: time_s, force_n, torque_nm, force_norm_n, contact_area_m2, knife_position_m."""
    metrics: dict[str, Any]
    """Figures of simulate/metrics: outcome, mean and peak force, share that was cut."""


class Scan:
    """A registered scan: `Scan("apple").table("calibrate/profile")`."""

    def __init__(self, scan_id: str, project: Project | None = None) -> None:
        """InputError if there is no such scan in the project, which is that around the current directory."""
        self._project = project or find_project()
        known_scans(self._project, [scan_id])
        self.scan_id = scan_id

    def __repr__(self) -> str:
        return f"Scan({self.scan_id!r}) in {self.folder}"

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._project.scan_dir(self.scan_id)

    def artifacts(self) -> pl.DataFrame:
        """What its stages write: name, kind, whether it is there, and what it is."""
        rows = [
            (name, entry.kind, (self.folder / entry.path).exists(), entry.meaning)
            for name, entry in ARTIFACTS.items()
        ]
        return pl.DataFrame(rows, schema=["artifact", "kind", "is_there", "meaning"], orient="row")

    def columns(self, name: str) -> pl.DataFrame:
        """Columns of a table: name, dtype, unit and meaning."""
        rows = [(c.name, c.dtype, c.unit, c.meaning) for c in _known(name).columns]
        return pl.DataFrame(rows, schema=["column", "dtype", "unit", "meaning"], orient="row")

    def table(self, name: str) -> pl.DataFrame:
        """A table by its name, such as "calibrate/profile", checked against its contract; InputError if it is not."""
        self._check_there(name)
        return read_table(self.folder, name)

    def metrics(self, stage: str) -> dict[str, Any]:
        """The figures of a stage; the unit is in each key."""
        self._check_there(f"{stage}/metrics")
        return read_metrics(self.folder / ARTIFACTS[f"{stage}/metrics"].path)

    def cut(self, *, fitted: bool = False, **sections: Mapping[str, Any]) -> Cut:
        """Simulate a straight cut of the whole fruit (minutes for a fine mesh).

        Args:
            fitted: with the parameters of every spring as calibrate found them, not those of params.yaml.
            sections: values in place of those of params.yaml and the scan, by section: cut={"speed_m_s": 0.1}.
        """
        from stages.shared.cut.cut_mesh_tables import read_cut_mesh
        from stages.shared.cut.second_cut_values import read_first_cut_values
        from stages.simulate.stage import force_table, metrics, simulate

        check_section_names(list(sections), "The cut")
        own = {k: v for k, v in read_mapping(self.folder / SCAN_FILE_NAME).items() if k not in IDENTITY_KEYS}
        merged = {k: {**(own.get(k) or {}), **sections.get(k, {})} for k in {**own, **sections}}
        params = merge_params(self._project.root / PARAMS_FILE_NAME, merged, overrides_from="the cut")
        values = read_first_cut_values(self.table) if fitted else None
        material = MATERIALS[read_scan_file(self.folder).material]
        done = simulate(read_cut_mesh(self.table), material, params.simulate, values=values)
        return Cut(force_table(done), metrics(done))

    def _check_there(self, name: str) -> None:
        entry = _known(name)
        if not (self.folder / entry.path).exists():
            raise InputError(
                f"{self.scan_id} has no {name} yet. The stage {entry.producer} writes it. Run 'scan2cut run "
                f"{self.scan_id} --target {entry.producer}' first."
            )


def _known(name: str) -> Any:
    if name not in ARTIFACTS:
        raise InputError(
            f"{name[:80]!r} is not an artifact. Names are STAGE/NAME. Scan.artifacts() and docs/artifacts.md list them."
        )
    return ARTIFACTS[name]


def scans(project: Project | None = None) -> list[str]:
    """Ids of the registered scans."""
    return (project or find_project()).scan_ids()
