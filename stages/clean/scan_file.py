"""Reading a scan file into arrays.

Meshes are parsed by trimesh, which is Python and NumPy only: a broken file raises an error there and cannot crash the
process. PCD files go through open3d once their header has been checked.
"""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.runtime.errors import InputError
from stages.shared.input_files import (
    CLOUD_SUFFIXES,
    MAX_FILE_BYTES,
    ScanHeader,
    malformed,
    memory_limit,
    read_header,
    time_limit,
)
from stages.shared.surface import open3d

_MIN_FACES = 8
"""Minimum number of faces: that of an octahedron."""
_MAX_MEMORY = 1_400_000_000
"""Largest memory of the parsers [bytes]; a mesh of two million faces as text takes 1 GB."""
_FARTHEST = 1e9
"""Largest coordinate in the file's unit: beyond it squares overflow, and no scan has it."""
_MIN_CLOUD_POINTS = 300
"""Minimum number of points: fewer leave gaps of 15 % of a sphere's radius, too large to close a surface."""


@dataclass(frozen=True)
class RawScan:
    """Content of a scan file, in the file's unit."""

    vertices: NDArray[np.float64]
    """Vertex or point positions [file unit], shape [vertex_count, 3]."""
    faces: NDArray[np.int32]
    """Vertex indices of each triangle, shape [face_count, 3]; empty for a point cloud."""
    kind: str
    """Format of the file."""

    @property
    def is_cloud(self) -> bool:
        """True if there are points only."""
        return len(self.faces) == 0


def read_scan(path: Path, *, max_faces: int, max_bytes: int = MAX_FILE_BYTES) -> RawScan:
    """Read a mesh (PLY, OBJ, STL, OFF, glTF, GLB) or a point cloud (PLY without faces, PCD, XYZ)."""
    header = read_header(path, max_faces=max_faces, max_bytes=max_bytes)
    too_large = f"{path.name} needs more than {_MAX_MEMORY / 1e9:.1f} GB. Decimate the scan first."
    with time_limit(path.name), memory_limit(_MAX_MEMORY, too_large):
        if path.suffix.lower() in CLOUD_SUFFIXES:
            vertices = _read_pcd(path) if header.kind == "pcd" else _read_xyz(path)
            faces = np.empty((0, 3), np.int32)
        else:
            vertices, faces = _read_mesh(path)
    _check_counts(path.name, header, vertices, faces)
    _check_values(path.name, header, vertices, faces)
    if header.kind == "pcd":
        # Organised PCD files mark a pixel without depth by NaN; in any other format NaN is damage.
        vertices = vertices[np.isfinite(vertices).all(axis=1)]
    if len(faces) == 0 and len(vertices) < _MIN_CLOUD_POINTS:
        raise InputError(
            f"{path.name} has {len(vertices)} points and no faces. A point cloud needs at least "
            f"{_MIN_CLOUD_POINTS} "
            "points to be closed. Scan the fruit more densely."
        )
    if 0 < len(faces) < _MIN_FACES:
        raise InputError(
            f"{path.name} has {len(faces)} faces. A closed body needs at least {_MIN_FACES}. Export the "
            "whole scan."
        )
    return RawScan(np.ascontiguousarray(vertices), np.ascontiguousarray(faces), header.kind)


def _read_mesh(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    import trimesh

    try:
        with path.open("rb") as file:
            data = io.BytesIO(file.read())
        scene = trimesh.load_scene(data, file_type=path.suffix.lower()[1:], process=False)
        geometry = scene.dump() if scene.geometry else []
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a parser fed with garbage may raise anything; all of it means one thing
        raise malformed(
            path.name, f"it cannot be parsed ({type(error).__name__}: {_short(error)})"
        ) from error
    meshes = [part for part in geometry if isinstance(part, trimesh.Trimesh) and len(part.faces)]
    if meshes:
        offsets = np.cumsum([0] + [len(part.vertices) for part in meshes[:-1]])
        vertices = np.concatenate([np.asarray(part.vertices, np.float64) for part in meshes])
        faces = np.concatenate([part.faces + offset for part, offset in zip(meshes, offsets, strict=True)])
        return vertices, faces.astype(np.int32)
    clouds = [np.asarray(getattr(part, "vertices", ()), np.float64).reshape(-1, 3) for part in geometry]
    if sum(map(len, clouds)):
        return np.concatenate(clouds), np.empty((0, 3), np.int32)
    raise malformed(path.name, "it has neither faces nor points")


def _read_pcd(path: Path) -> NDArray[np.float64]:
    cloud = open3d().io.read_point_cloud(str(path), remove_nan_points=False, remove_infinite_points=False)
    if len(cloud.points) == 0:
        raise malformed(path.name, "no points could be read from it")
    return np.array(cloud.points)


def _read_xyz(path: Path) -> NDArray[np.float64]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file without numbers, which is refused below
            table = np.loadtxt(path, dtype=np.float64, ndmin=2, comments=("#", "//"))
    except (ValueError, UnicodeDecodeError) as error:
        raise malformed(path.name, f"it is not a table of numbers ({_short(error)})") from error
    if table.shape[1] < 3:
        raise malformed(path.name, f"it has {table.shape[1]} columns instead of x y z")
    return table[:, :3]


def _check_counts(
    name: str, header: ScanHeader, vertices: NDArray[np.float64], faces: NDArray[np.int32]
) -> None:
    if header.kind in ("ply", "off", "pcd") and len(vertices) < header.points:
        raise malformed(name, f"{header.points} vertices are declared but {len(vertices)} could be read")
    if header.kind in ("ply", "off", "stl") and len(faces) < header.faces:
        raise malformed(name, f"{header.faces} faces are declared but {len(faces)} could be read")


def _check_values(
    name: str, header: ScanHeader, vertices: NDArray[np.float64], faces: NDArray[np.int32]
) -> None:
    if vertices.shape[1] != 3:
        raise malformed(name, f"its points have {vertices.shape[1]} coordinates instead of three")
    outside = faces[(faces < 0) | (faces >= len(vertices))]
    if len(outside):
        raise malformed(name, f"a face refers to vertex {outside[0]}, but there are {len(vertices)}")
    bad = int(np.count_nonzero(~np.isfinite(vertices).all(axis=1)))
    if bad and header.kind != "pcd":
        raise InputError(
            f"{name} has {bad} vertices that are not finite numbers (NaN or infinite). Every coordinate "
            "must be finite. "
            "Export the scan again, or delete these vertices."
        )
    far = np.abs(vertices[np.isfinite(vertices)]).max(initial=0.0)
    if far > _FARTHEST:
        raise malformed(name, f"a coordinate is {far:.3g}; none may be larger than {_FARTHEST:g}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
