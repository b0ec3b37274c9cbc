"""scan2cut from Python: results of scans as typed tables, cuts, pictures. docs/notebook.ipynb shows it.

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
from pipelines.report.replay_view import read_recording, replay_html
from stages.runtime.artifacts import read_metrics, read_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.params import check_section_names, merge_params
from stages.runtime.scan_file import IDENTITY_KEYS, PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.scan_file import read_scan_mapping as read_mapping
from stages.shared.pictures import new_figure

__all__ = ["Scan", "Cut", "scans", "plot_force", "plot_body", "replay", "InputError"]


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
        from stages.shared.cut import read_cut_mesh, read_first_cut_values
        from stages.simulate.simulate import force_table, metrics, simulate

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
            f"{name[:80]!r} is not an artifact. Names are STAGE/NAME. Scan.artifacts() lists them."
        )
    return ARTIFACTS[name]


def scans(project: Project | None = None) -> list[str]:
    """Ids of the registered scans."""
    return (project or find_project()).scan_ids()


# Pictures of a scan that a notebook shows in place.


_MM = 1e3
_FRUIT, _KNIFE = "#e3a857", "#2b6ca3"
REPLAY_HEIGHT = 560
"""Of the replay in a notebook [pixel]."""


@dataclass(frozen=True)
class _Picture:
    """A figure of matplotlib; a notebook shows it by itself."""

    figure: Any

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()

    def save(self, path: Path | str) -> None:
        """Write it to a file; the suffix decides the format."""
        self.figure.savefig(path)


@dataclass(frozen=True)
class _Page:
    """A page that a notebook shows in a frame."""

    text: str
    height: int = REPLAY_HEIGHT

    def _repr_html_(self) -> str:
        frame = f'style="width:100%;height:{self.height}px;border:0"'
        return f'<iframe srcdoc="{html.escape(self.text)}" {frame}></iframe>'


def plot_force(curves: Mapping[str, pl.DataFrame]) -> _Picture:
    """Norm of the force on the knife [N] over time [s], a curve per label.

    A table needs time_s and force_norm_n: Cut.force, "simulate/force", "ingest/force" and "replay/frames" have them.
    """
    figure, _ = new_figure((7.0, 3.6))
    axis = figure.subplots()
    for name, table in curves.items():
        if not {"time_s", "force_norm_n"} <= set(table.columns):
            raise InputError(
                f"{name!r} has the columns {', '.join(table.columns)}. A curve needs time_s and force_norm_n. "
                "Rename its columns."
            )
        axis.plot(table["time_s"].to_list(), table["force_norm_n"].to_list(), label=name)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.grid(alpha=0.3)
    axis.legend()
    return _Picture(figure)


def plot_body(scan: Scan, *, body: str = "clean", path: pl.DataFrame | None = None) -> _Picture:
    """The fruit in 3D [mm], and the way of the edge's middle: `path` has knife_position_m or position_m.

    body: "clean", the whole fruit of the first cut, or "halve", the half that optimize/motion cuts.
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
        way = [[_MM * z, _MM * x, _MM * y] for x, y, z in path[name].to_list()]
        axis.plot(*zip(*way, strict=True), color=_KNIFE, lw=2.5, zorder=5, label="middle of the edge")
        points = [*points, *way]
        axis.legend()
    lows, highs = zip(*((min(v), max(v)) for v in zip(*points, strict=True)), strict=True)
    axis.set(xlim=(lows[0], highs[0]), ylim=(lows[1], highs[1]), zlim=(min(0.0, lows[2]), highs[2]))
    axis.set(xlabel="along the blade, z [mm]", ylabel="across, x [mm]", zlabel="height, y [mm]")
    axis.set_box_aspect([high - low for low, high in zip(lows, highs, strict=True)])
    return _Picture(figure)


def replay(scan: Scan) -> _Page:
    """The 3D replay of the optimised cut, to turn and to play; InputError if the stage replay has not run."""
    return _Page(replay_html(read_recording(find_project(scan.folder), scan.scan_id)))
