"""Pictures of meshes and plots, rendered off-screen in a common style."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife, turned
from disect_sim.virtual_nodes.split import HalfBody, half_body
from stages.runtime.files import quiet_stderr

# Small tables as text


def plot_text(table: pl.DataFrame, columns: list[str]) -> str:
    """Return a few columns as CSV for `dvc plots`, which can't read Parquet."""
    return table.select(columns).write_csv(float_precision=6)


FRUIT, SCAN, WARNING, STRAY, _BOARD, CUT = "#e3a857", "#b9bec6", "#d1383d", "#7b4fa3", "#eef0f2", "#5b8db8"
"""Colours: clean surface, raw scan, holes and faults, removed pieces, the board, the cut plane."""
TEXT = "#30343b"
COLOUR_MAP = "viridis"


@dataclass(frozen=True)
class Layer:
    """One object in a picture: triangles, lines or points."""

    vertices: NDArray[np.float64]
    """Positions [m], shape [vertex_count, 3]."""
    cells: NDArray[np.int32] | None = None
    """Indices of triangles [n, 3] or line segments [n, 2]; None draws the vertices as points."""
    colour: str = FRUIT
    opacity: float = 1.0
    show_edges: bool = False
    values: NDArray[np.float64] | None = None
    """One number per cell or point, shown by colour instead of `colour`."""
    value_range: tuple[float, float] | None = None
    value_title: str = ""
    size: float = 3.0
    """Width of lines and points [pixel]."""


@dataclass(frozen=True)
class Panel:
    """One view: layers seen from a direction, with a title."""

    title: str
    layers: Sequence[Layer] = field(default_factory=tuple)
    view: tuple[float, float, float] = (0.65, 0.45, 1.0)
    """Direction from the fruit to the camera."""


def render(panels: Sequence[Panel], *, panel_size: tuple[int, int] = (720, 600)) -> NDArray[np.uint8]:
    """Render the panels side by side; 8-bit pixels, shape [height, width, 3]."""
    pv = _pyvista()
    plotter = pv.Plotter(
        off_screen=True,
        shape=(1, len(panels)),
        window_size=(panel_size[0] * len(panels), panel_size[1]),
        border=False,
    )
    try:
        for column, panel in enumerate(panels):
            plotter.subplot(0, column)
            plotter.set_background("white")
            plotter.add_text(panel.title, font_size=10, color=TEXT, position="upper_left")
            for layer in panel.layers:
                _add(plotter, pv, layer)
            plotter.enable_parallel_projection()
            plotter.view_vector(panel.view, viewup=(0.0, 1.0, 0.0))
            plotter.reset_camera()
            plotter.camera.zoom(1.1)
        # VTK looks for an X server and complains if there is none.
        with quiet_stderr():
            pixels = plotter.screenshot(return_img=True)
    finally:
        plotter.close()
    return np.asarray(pixels[..., :3], np.uint8)


def board_layer(vertices: NDArray[np.float64], *, margin_m: float = 0.015) -> Layer:
    """Return the board y = 0 under the given vertices [m], shape [vertex_count, 3]."""
    low, high = vertices.min(axis=0) - margin_m, vertices.max(axis=0) + margin_m
    corners = np.array(
        [[low[0], 0, low[2]], [low[0], 0, high[2]], [high[0], 0, high[2]], [high[0], 0, low[2]]]
    )
    return Layer(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32), colour=_BOARD)


def cut_plane_layer(vertices: NDArray[np.float64], *, margin_m: float = 0.01) -> Layer:
    """Return the cut plane x = 0 through the given vertices [m], shape [vertex_count, 3]."""
    low, high = vertices.min(axis=0) - margin_m, vertices.max(axis=0) + margin_m
    corners = np.array([[0, 0, low[2]], [0, high[1], low[2]], [0, high[1], high[2]], [0, 0, high[2]]])
    return Layer(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32), colour=CUT, opacity=0.35)


def _add(plotter: Any, pv: Any, layer: Layer) -> None:
    if len(layer.vertices) == 0 or (layer.cells is not None and len(layer.cells) == 0):
        return
    mesh = pv.PolyData(np.asarray(layer.vertices, np.float64))
    if layer.cells is not None:
        width = layer.cells.shape[1]
        cells = np.column_stack([np.full(len(layer.cells), width), layer.cells]).astype(np.int64).reshape(-1)
        mesh = (
            pv.PolyData(layer.vertices, faces=cells)
            if width == 3
            else pv.PolyData(layer.vertices, lines=cells)
        )
    plotter.add_mesh(
        mesh,
        color=None if layer.values is not None else layer.colour,
        scalars=layer.values,
        cmap=COLOUR_MAP,
        clim=layer.value_range,
        opacity=layer.opacity,
        show_edges=layer.show_edges,
        edge_color="#4a4f57",
        line_width=layer.size if layer.cells is not None and layer.cells.shape[1] == 2 else 0.5,
        point_size=layer.size,
        smooth_shading=False,
        ambient=0.25,
        diffuse=0.75,
        specular=0.0,
        show_scalar_bar=layer.values is not None,
        scalar_bar_args={"title": layer.value_title, "color": TEXT, "n_labels": 2}
        if layer.values is not None
        else None,
    )


def _pyvista() -> Any:
    """Return pyvista without a display and without VTK's console messages."""
    os.environ.pop("DISPLAY", None)
    import pyvista
    import vtk

    vtk.vtkLogger.SetStderrVerbosity(vtk.vtkLogger.VERBOSITY_OFF)
    vtk.vtkObject.GlobalWarningDisplayOff()
    return pyvista


# Plots without a display


_DPI = 100


def new_figure(size_inches: tuple[float, float]) -> tuple[Any, Any]:
    """Return a matplotlib figure and its canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_inches, dpi=_DPI, layout="constrained")
    return figure, FigureCanvasAgg(figure)


def pixels_of(canvas: Any) -> NDArray[np.uint8]:
    """Return 8-bit pixels, shape [height, width, 3]."""
    buffer = io.BytesIO()
    canvas.print_rgba(buffer)
    columns, rows = canvas.get_width_height()
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(rows, columns, 4)[..., :3]


def draw_springs(
    axis: Any,
    position_m: NDArray[np.float64],
    area_m2: NDArray[np.float64],
    colours: NDArray[np.float64],
    title: str,
    *,
    full: NDArray[np.bool_] | None = None,
    limits: tuple[float, float] | None = None,
) -> Any:
    """Draw springs as dots on the cut surface; return the full dots, for a colour bar.

    Args:
        axis: a matplotlib axis.
        position_m: (z, y) of the springs [m], shape [spring_count, 2].
        area_m2: their tributary areas [m²], shape [spring_count].
        colours: one value per spring, shape [spring_count], or its red, green and blue, shape [spring_count, 3].
        title: title of the plot.
        full: springs that are drawn filled; the others are hollow, shape [spring_count].
        limits: ends of the colour scale.
    """
    z, y = 1e3 * position_m.T
    size = 18.0 * np.sqrt(area_m2 / area_m2.mean())
    shown = np.ones(len(z), bool) if full is None else full
    scale = {}
    if colours.ndim == 1:
        low, high = limits or (float(colours.min()), float(colours.max()))
        # Equal values need a scale with a width, or each plot of them gets its own colour.
        margin = 0.0 if high > low else max(0.1 * abs(low), 1e-12)
        scale = {"cmap": COLOUR_MAP, "vmin": low - margin, "vmax": high + margin}
    dots = axis.scatter(z[shown], y[shown], s=size[shown], c=colours[shown], **scale)
    axis.scatter(z[~shown], y[~shown], s=size[~shown], facecolors="none", edgecolors=SCAN, lw=0.8)
    axis.set_aspect("equal")
    axis.set(xlabel="along the blade [mm]")
    axis.set_title(title, color=TEXT, fontsize=9)
    return dots


# Views of a cut: the halves and the knife at a few moments


_PANEL_SIZE = (460, 430)
"""Width and height of one view [pixel]."""
_VIEW = (0.3, 0.55, 1.0)
"""Direction to the camera: from above the blade's end, so that the gap behind the knife is visible."""
_SECTION_SIDES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0))


@dataclass(frozen=True)
class Moment:
    """The body and the knife at one time."""

    time_s: float
    positions: NDArray[np.float64]
    """Node positions [m], shape [node_count, 3]."""
    knife_position: NDArray[np.float64]
    """Knife position [m], shape [3]."""
    pitch_rad: float = 0.0
    """Angle of the blade about x."""


def cut_views(cut: CutMesh, knife: Knife, moments: Sequence[Moment]) -> NDArray[np.uint8]:
    """Draw the halves and the knife at the given moments, side by side; 8-bit pixels, shape [height, width, 3]."""
    blades = [_blade(knife, moment, cut.nodes) for moment in moments]
    frame = _frame([cut.nodes, *(blade.vertices for blade in blades)])
    panels = []
    for moment, blade in zip(moments, blades, strict=True):
        layers = [frame, board_layer(cut.nodes, margin_m=0.004), blade]
        for side in (1, -1):
            layers += _half(half_body(replace(cut, nodes=moment.positions), side))
        panels.append(Panel(f"{moment.time_s:.2f} s", layers, view=_VIEW))
    return render(panels, panel_size=_PANEL_SIZE)


def _half(half: HalfBody) -> list[Layer]:
    return [
        Layer(half.vertices, half.faces[~half.face_on_cut], show_edges=True),
        Layer(half.vertices, half.faces[half.face_on_cut], colour=CUT, show_edges=True),
    ]


def _blade(knife: Knife, moment: Moment, nodes: NDArray[np.float64]) -> Layer:
    """Return the blade's surface, clipped to the picture: a little longer than the fruit."""
    half_spine, half_edge = 0.5 * knife.spine_m, 0.5 * knife.edge_m
    section = np.array(
        [
            [0.0, 0.0],
            [half_edge, knife.tip_m],
            [half_spine, knife.height_m],
            [-half_spine, knife.height_m],
            [-half_edge, knife.tip_m],
        ]
    )
    half_length = 0.5 * min(knife.length_m, 1.2 * float(np.ptp(nodes[:, 2])))
    ends = [np.column_stack([section, np.full(5, z)]) for z in (-half_length, half_length)]
    faces = [[a, b, b + 5] for a, b in _SECTION_SIDES] + [[a, b + 5, a + 5] for a, b in _SECTION_SIDES]
    faces += [[0, i, i + 1] for i in (1, 2, 3)] + [[5, 5 + i, 6 + i] for i in (1, 2, 3)]
    vertices = turned(np.concatenate(ends), moment.pitch_rad) + moment.knife_position
    return Layer(vertices, np.array(faces, np.int32), colour=SCAN, opacity=0.8)


def _frame(points: Sequence[NDArray[np.float64]]) -> Layer:
    """Return invisible points around all given ones [m], each of shape [n, 3], which give every view the same scale."""
    every = np.concatenate(points)
    low, high = every.min(axis=0), every.max(axis=0)
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), axis=-1).reshape(-1, 3)
    return Layer(corners, colour="white", size=1.0)
