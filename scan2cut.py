"""Python interface of scan2cut: results of scans as typed tables, simulated cuts, plots. See docs/notebook.ipynb.

import scan2cut
apple = scan2cut.Scan("synthetic_apple")
apple.table("calibrate/profile")
scan2cut.plot_force({"nominal": apple.cut().force})
"""

import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from disect_sim.parameters import MATERIALS
from pipelines.project import Project, find_project, known_scans
from pipelines.report.viewer import read_recording, viewer_html
from pipelines.workspace import resolved_knife
from stages.runtime.artifacts import read_metrics, read_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.params import check_section_names, merge_params
from stages.runtime.scan_file import IDENTITY_KEYS, PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.scan_file import read_scan_mapping as read_mapping
from stages.shared.pictures import new_figure

__all__ = ["Scan", "Cut", "scans", "plot_force", "plot_body", "view", "InputError"]


@dataclass(frozen=True)
class Cut:
    """A simulated cut."""

    force: pl.DataFrame
    """Columns of simulate/force: time_s, force_n, torque_nm, force_norm_n, contact_area_m2, knife_position_m."""
    metrics: dict[str, Any]
    """Content of simulate/metrics: outcome, mean and peak force, cut fraction."""


class Scan:
    """A registered scan: `Scan("apple").table("calibrate/profile")`."""

    def __init__(self, scan_id: str, project: Project | None = None) -> None:
        """Open a scan of the project (default: that of the current directory); raise InputError if there is none."""
        self._project = project or find_project()
        known_scans(self._project, [scan_id])
        self.scan_id = scan_id

    def __repr__(self) -> str:
        return f"Scan({self.scan_id!r}) in {self.folder}"

    @property
    def folder(self) -> Path:
        """Directory of the scan's files."""
        return self._project.scan_dir(self.scan_id)

    def artifacts(self) -> pl.DataFrame:
        """List all artifacts: name, kind, whether it exists, and its meaning."""
        rows = [
            (name, entry.kind, (self.folder / entry.path).exists(), entry.meaning)
            for name, entry in ARTIFACTS.items()
        ]
        return pl.DataFrame(rows, schema=["artifact", "kind", "is_there", "meaning"], orient="row")

    def columns(self, name: str) -> pl.DataFrame:
        """List the columns of a table: name, dtype, unit and meaning."""
        rows = [(c.name, c.dtype, c.unit, c.meaning) for c in _artifact(name).columns]
        return pl.DataFrame(rows, schema=["column", "dtype", "unit", "meaning"], orient="row")

    def table(self, name: str) -> pl.DataFrame:
        """Read and validate a table, e.g. "calibrate/profile"; raise InputError if it is missing or invalid."""
        self._check_exists(name)
        return read_table(self.folder, name)

    def metrics(self, stage: str) -> dict[str, Any]:
        """Read the metrics of a stage; the unit is in each key."""
        self._check_exists(f"{stage}/metrics")
        return read_metrics(self.folder / ARTIFACTS[f"{stage}/metrics"].path)

    def cut(self, *, fitted: bool = False, **sections: Mapping[str, Any]) -> Cut:
        """Simulate a straight cut of the whole fruit (minutes for a fine mesh).

        Args:
            fitted: use the fitted parameters of calibrate instead of those in params.yaml.
            sections: overrides by section, e.g. cut={"speed_m_s": 0.1}.
        """
        from stages.shared.cut import read_cut_mesh, read_first_cut_values
        from stages.simulate.simulate import force_table, metrics, simulate

        check_section_names(list(sections), "The cut")
        content = read_mapping(self.folder / SCAN_FILE_NAME)
        overrides = {key: value for key, value in content.items() if key not in IDENTITY_KEYS}
        merged = {k: {**(overrides.get(k) or {}), **sections.get(k, {})} for k in {**overrides, **sections}}
        if "knife" in merged.get("cut", {}):
            merged["cut"]["knife"] = resolved_knife(self._project.root, merged["cut"]["knife"])
        params = merge_params(self._project.root / PARAMS_FILE_NAME, merged, overrides_from="the cut")
        values = read_first_cut_values(self.table) if fitted else None
        material = MATERIALS[read_scan_file(self.folder).material]
        result = simulate(read_cut_mesh(self.table), material, params.simulate, values=values)
        return Cut(force_table(result), metrics(result))

    def _check_exists(self, name: str) -> None:
        entry = _artifact(name)
        if not (self.folder / entry.path).exists():
            raise InputError(
                f"{self.scan_id} has no {name} yet. The stage {entry.producer} writes it. Run 'scan2cut run "
                f"{self.scan_id} --target {entry.producer}' first."
            )


def _artifact(name: str) -> Any:
    if name not in ARTIFACTS:
        raise InputError(
            f"{name[:80]!r} is not an artifact. Names have the form STAGE/NAME. List them with Scan.artifacts()."
        )
    return ARTIFACTS[name]


def scans(project: Project | None = None) -> list[str]:
    """Return the ids of the registered scans."""
    return (project or find_project()).scan_ids()


# Plots for notebooks.


_MM = 1e3
_FRUIT, _KNIFE = "#e3a857", "#2b6ca3"
VIEWER_HEIGHT = 560
"""Height of the viewer in a notebook [px]."""


@dataclass(frozen=True)
class _Picture:
    """Matplotlib figure that a notebook displays."""

    figure: Any

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()

    def save(self, path: Path | str) -> None:
        """Write the figure to a file; the suffix determines the format."""
        self.figure.savefig(path)


@dataclass(frozen=True)
class _Page:
    """HTML page that a notebook displays in a frame."""

    text: str
    height: int = VIEWER_HEIGHT

    def _repr_html_(self) -> str:
        frame = f'style="width:100%;height:{self.height}px;border:0"'
        return f'<iframe srcdoc="{html.escape(self.text)}" {frame}></iframe>'


def plot_force(curves: Mapping[str, pl.DataFrame]) -> _Picture:
    """Plot the norm of the force on the knife [N] over time [s], one curve per label.

    Each table needs time_s and force_norm_n, as in Cut.force, "simulate/force", "ingest/force" and "replay/frames".
    """
    figure, _ = new_figure((7.0, 3.6))
    axis = figure.subplots()
    for name, table in curves.items():
        if not {"time_s", "force_norm_n"} <= set(table.columns):
            raise InputError(
                f"{name!r} has the columns {', '.join(table.columns)}. A curve requires time_s and force_norm_n. "
                "Rename its columns."
            )
        axis.plot(table["time_s"].to_list(), table["force_norm_n"].to_list(), label=name)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.grid(alpha=0.3)
    axis.legend()
    return _Picture(figure)


def plot_body(scan: Scan, *, body: str = "clean", path: pl.DataFrame | None = None) -> _Picture:
    """Plot the fruit in 3D [mm] and the path of the edge's centre (`path` with knife_position_m or position_m).

    body: "clean" for the whole fruit of the first cut, "halve" for the half that optimize/motion cuts.
    """
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    figure, _ = new_figure((6.0, 5.2))
    axis = figure.add_subplot(projection="3d", computed_zorder=False)
    points = [
        [_MM * z, _MM * x, _MM * y] for x, y, z in scan.table(f"{body}/vertices")["position_m"].to_list()
    ]
    faces = [[points[i] for i in face] for face in scan.table(f"{body}/faces")["vertices"].to_list()]
    axis.add_collection3d(
        Poly3DCollection(faces, facecolors=_FRUIT, edgecolors="#7a5a2c", lw=0.2, alpha=0.8, shade=True)
    )
    if path is not None:
        name = next(name for name in ("knife_position_m", "position_m") if name in path.columns)
        track = [[_MM * z, _MM * x, _MM * y] for x, y, z in path[name].to_list()]
        axis.plot(*zip(*track, strict=True), color=_KNIFE, lw=2.5, zorder=5, label="centre of the edge")
        points = [*points, *track]
        axis.legend()
    lows, highs = zip(*((min(v), max(v)) for v in zip(*points, strict=True)), strict=True)
    axis.set(xlim=(lows[0], highs[0]), ylim=(lows[1], highs[1]), zlim=(min(0.0, lows[2]), highs[2]))
    axis.set(xlabel="along the blade, z [mm]", ylabel="across, x [mm]", zlabel="height, y [mm]")
    axis.set_box_aspect([high - low for low, high in zip(lows, highs, strict=True)])
    return _Picture(figure)


def view(scan: Scan) -> _Page:
    """Show the optimised cut in the interactive 3D viewer; raise InputError if the stage replay has not run."""
    return _Page(viewer_html(read_recording(find_project(scan.folder), scan.scan_id)))
