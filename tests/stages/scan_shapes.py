"""Shapes with known measures, for the tests of clean and tetrahedralize."""

from pathlib import Path

import numpy as np
import trimesh

from stages.runtime.params import Params, load_params
from stages.shared.surface import Surface

PROJECT = Path(__file__).parents[2]
SAMPLE = PROJECT / "data" / "sample" / "synthetic_apple.ply"
REAL_SCANS = (
    "011_banana_google16k_nontextured.ply",
    "013_apple_google16k_nontextured.ply",
    "014_lemon_google16k_nontextured.ply",
    "016_pear_google16k_nontextured.ply",
    "hubmap_banana_full.stl",
    "prickly_pear_case2_64_low.ply",
    "sliceit_cucumber.stl",
    "sliceit_tomato.stl",
)
"""Those of lab/notes/real_data.md that can be cleaned and meshed."""


def default_params() -> Params:
    return load_params(PROJECT / "params.yaml")


def ball(radius_m: float = 0.035, subdivisions: int = 4) -> Surface:
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius_m)
    return Surface(np.array(mesh.vertices), np.array(mesh.faces, np.int32))


def box(sides_m: tuple[float, float, float]) -> Surface:
    mesh = trimesh.creation.box(extents=sides_m)
    return Surface(np.array(mesh.vertices), np.array(mesh.faces, np.int32))


def without_cap(surface: Surface, height_m: float) -> Surface:
    """Without the faces whose centre is above the height."""
    return Surface(surface.vertices, surface.faces[surface.corners.mean(axis=1)[:, 1] < height_m])


def write_binary_ply(path: Path, vertices: np.ndarray, faces: np.ndarray) -> bytes:
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(vertices)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    rows = np.empty(len(faces), dtype=[("count", "u1"), ("corners", "<i4", 3)])
    rows["count"], rows["corners"] = 3, faces
    data = header.encode() + np.asarray(vertices, "<f4").tobytes() + rows.tobytes()
    path.write_bytes(data)
    return data
