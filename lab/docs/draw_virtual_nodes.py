"""Draws the pictures of docs/simulator.md#virtual-nodes.

    python -m lab.docs.draw_virtual_nodes            about 20 s

Writes docs/pictures/virtual_nodes_idea.png (the algorithm in two dimensions) and virtual_nodes_curved.png (the bundled
synthetic apple, cut by a curved surface).
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from stages.clean.clean import clean
from stages.clean.scan_file import read_scan
from stages.precut.precut import precut, precut_picture
from stages.runtime.params import load_params
from stages.shared.surface import Surface
from stages.tetrahedralize.tetrahedralize import tetrahedralize

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "data" / "sample" / "synthetic_apple.ply"
SKIN, MATERIAL, GHOST, SPRING, EDGE = "#30343b", "#e3a857", "#b9bec6", "#d1383d", "#4a4f57"
GAP = 1.4
"""How far the two copies are drawn apart."""


def draw_idea() -> None:
    """In two dimensions: three triangles, cut, and the two sets of copies with their ghosts."""
    nodes = np.array([[0.0, 0.0], [1.0, -0.35], [2.1, 0.1], [0.35, 1.1], [1.5, 0.95]])
    triangles = np.array([[0, 1, 3], [1, 4, 3], [1, 2, 4]])
    height = nodes[:, 1] - 0.45 - 0.06 * nodes[:, 0]
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), width_ratios=(1.0, 1.15))
    _draw_input(axes[0], nodes, triangles)
    for side, shift in ((1, 0.5 * GAP), (-1, -0.5 * GAP)):
        _draw_copies(axes[1], nodes + np.array([0.0, shift]), triangles, side * height)
    for a, b in _crossed(triangles, height):
        t = height[a] / (height[a] - height[b])
        x, y = nodes[a] + t * (nodes[b] - nodes[a])
        axes[1].plot([x, x], [y - 0.5 * GAP, y + 0.5 * GAP], color=SPRING, lw=1.2, ls=":", zorder=1)
        axes[1].plot([x, x], [y - 0.5 * GAP, y + 0.5 * GAP], "s", color=SPRING, ms=6, zorder=4)
    titles = ("mesh and cutting surface", "copies: material (filled), ghosts (hollow), virtual nodes (red)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_aspect("equal")
        axis.axis("off")
        axis.set_title(title, fontsize=9, color=SKIN)
    figure.tight_layout()
    figure.savefig(PICTURES / "virtual_nodes_idea.png", dpi=110, metadata={"Software": None})


def _draw_input(axis: Axes, nodes: np.ndarray, triangles: np.ndarray) -> None:
    for triangle in triangles:
        axis.fill(*nodes[triangle].T, facecolor=MATERIAL, edgecolor=EDGE, lw=1.0)
    x = np.array([-0.2, 2.3])
    axis.plot(x, 0.45 + 0.06 * x, color=SPRING, lw=2.0)
    axis.plot(*nodes.T, "o", color=SKIN, ms=6)


def _draw_copies(axis: Axes, nodes: np.ndarray, triangles: np.ndarray, height: np.ndarray) -> None:
    for triangle in triangles:
        if not (height[triangle] > 0).any():
            continue
        axis.fill(*nodes[triangle].T, facecolor="none", edgecolor=GHOST, lw=1.0, ls="--")
        piece = []
        for a, b in zip(triangle, np.roll(triangle, -1), strict=True):
            if height[a] > 0:
                piece.append(nodes[a])
            if height[a] * height[b] < 0:
                piece.append(nodes[a] + height[a] / (height[a] - height[b]) * (nodes[b] - nodes[a]))
        axis.fill(*np.array(piece).T, facecolor=MATERIAL, edgecolor=EDGE, lw=1.0)
        for vertex in triangle:
            real = height[vertex] > 0
            face = SKIN if real else "white"
            axis.plot(*nodes[vertex], "o", color=SKIN, mfc=face, ms=6, zorder=3)


def _crossed(triangles: np.ndarray, height: np.ndarray) -> list[tuple[int, int]]:
    ends = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    return [(int(a), int(b)) for a, b in np.unique(ends, axis=0) if height[a] * height[b] < 0]


def draw_curved_cut() -> None:
    """The bundled synthetic apple, cut by a curved surface."""
    params = load_params(ROOT / "params.yaml")
    fruit = clean(read_scan(SAMPLE, max_faces=params.clean.max_faces), params.clean).surface
    mesh = tetrahedralize(fruit, params.tetrahedralize).mesh
    result = precut(mesh.nodes, mesh.tets, params.precut, surface=_wavy_sheet(60))
    pixels = precut_picture(result.cut, result.positive, result.negative, normal=result.normal)
    picture = Image.fromarray(pixels).resize((1080, 450), Image.Resampling.LANCZOS)
    picture.quantize(256).save(PICTURES / "virtual_nodes_curved.png", optimize=True)


def _wavy_sheet(cells: int) -> Surface:
    """The surface x = 6 mm sin(70 y) + 6 z² - 4 mm on a square of 16 cm."""
    u = np.linspace(-0.08, 0.08, cells + 1)
    y, z = np.meshgrid(u + 0.04, u, indexing="ij")
    vertices = np.stack([0.006 * np.sin(70 * y) + 6 * z**2 - 0.004, y, z], axis=-1).reshape(-1, 3)
    index = np.arange(len(vertices), dtype=np.int32).reshape(cells + 1, cells + 1)
    a, b, c, d = (p.ravel() for p in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    return Surface(vertices, np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)]))


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    draw_idea()
    draw_curved_cut()
