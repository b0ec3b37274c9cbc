"""Pictures of meshes for people, rendered off-screen with one light, neutral look."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.runtime.quiet import quiet_stderr

FRUIT, SCAN, WARNING, STRAY, BOARD, CUT = "#e3a857", "#b9bec6", "#d1383d", "#7b4fa3", "#eef0f2", "#5b8db8"
"""Colours: clean surface, raw scan, holes and faults, removed pieces, the board, the cut plane."""
TEXT = "#30343b"
COLOUR_MAP = "viridis"


@dataclass(frozen=True)
class Layer:
    """One thing in a picture: triangles, lines or points."""

    vertices: NDArray[np.float64]
    """Positions [m], shape [vertex_count, 3]."""
    cells: NDArray[np.int32] | None = None
    """Indices of triangles [n, 3] or line segments [n, 2]; None draws the vertices as points."""
    colour: str = FRUIT
    opacity: float = 1.0
    show_edges: bool = False
    values: NDArray[np.float64] | None = None
    """One number per cell or point, drawn by colour instead of `colour`."""
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
        # VTK looks for an X server and complains when there is none.
        with quiet_stderr():
            pixels = plotter.screenshot(return_img=True)
    finally:
        plotter.close()
    return np.asarray(pixels[..., :3], np.uint8)


def board_layer(vertices: NDArray[np.float64], *, margin_m: float = 0.015) -> Layer:
    """The board y = 0 under the given vertices [m], shape [vertex_count, 3]."""
    low, high = vertices.min(axis=0) - margin_m, vertices.max(axis=0) + margin_m
    corners = np.array(
        [[low[0], 0, low[2]], [low[0], 0, high[2]], [high[0], 0, high[2]], [high[0], 0, low[2]]]
    )
    return Layer(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32), colour=BOARD)


def cut_plane_layer(vertices: NDArray[np.float64], *, margin_m: float = 0.01) -> Layer:
    """The cut plane x = 0 through the given vertices [m], shape [vertex_count, 3]."""
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
    """pyvista without a display and without VTK's console messages."""
    os.environ.pop("DISPLAY", None)
    import pyvista
    import vtk

    vtk.vtkLogger.SetStderrVerbosity(vtk.vtkLogger.VERBOSITY_OFF)
    vtk.vtkObject.GlobalWarningDisplayOff()
    return pyvista
