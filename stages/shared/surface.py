"""A triangle surface and its measures in NumPy; and the import of open3d."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.runtime.describe import Column
from stages.runtime.errors import InputError

if TYPE_CHECKING:
    import polars as pl

# Columns of tables with positions and triangles

POSITION = Column("position_m", "array[f64,3]", "m", "position in the cutting frame (y up, board y = 0)")
SIDE = Column(
    "side", "i8", "-", "+1 on the positive side of the cut surface (x > 0 for the plane x = 0), else -1"
)


def triangles(meaning: str) -> Column:
    """Return the column of a triangle table: three vertices per row."""
    return Column("vertices", "array[i32,3]", "index", meaning)


# Import of open3d, only through this function: it links against libusb-1.0, which a bare machine lacks, so the copy
# from `libusb-package` is loaded first. The import takes about a second, so it happens on first use.


@cache
def open3d() -> ModuleType:
    """Return the open3d module, quiet (errors only) and with its random numbers seeded."""
    try:
        import libusb_package

        ctypes.CDLL(str(libusb_package.get_library_path()), mode=ctypes.RTLD_GLOBAL)
        import open3d as module
    except (ImportError, OSError) as error:
        raise InputError(
            f"open3d could not be loaded ({error}). The stage clean needs it. "
            "Run `make setup`, or `pip install open3d libusb-package`."
        ) from error
    module.utility.set_verbosity_level(module.utility.VerbosityLevel.Error)
    module.utility.random.seed(0)
    return module


_Floats = NDArray[np.float64]
_Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Surface:
    """A triangle mesh."""

    vertices: _Floats
    """Vertex positions [m], shape [vertex_count, 3]."""
    faces: _Ints
    """Vertex indices of each triangle, counter-clockwise seen from outside, shape [face_count, 3]."""

    @property
    def corners(self) -> _Floats:
        """Corner positions of each triangle [m], shape [face_count, 3, 3]."""
        return self.vertices[self.faces]

    @property
    def diagonal_m(self) -> float:
        """Diagonal of the axis-aligned bounding box [m]."""
        return float(np.linalg.norm(np.ptp(self.vertices, axis=0)))

    @property
    def area_m2(self) -> float:
        """Total area [m²]."""
        return float(face_areas(self).sum())

    @property
    def volume_m3(self) -> float:
        """Signed enclosed volume [m³]; negative if the surface is inside out."""
        centred = self.vertices - self.vertices.mean(axis=0)
        a, b, c = (centred[self.faces[:, k]] for k in range(3))
        return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)


@dataclass(frozen=True)
class _BodySize:
    """Place and size of the cleaned body in the cutting frame."""

    centre_m: _Floats
    """Centre of mass [m], shape [3]."""
    extent_m: _Floats
    """Of the bounding box [m], shape [3]."""
    volume_m3: float


def read_body(read: "Callable[[str], pl.DataFrame]") -> _BodySize:
    """Return the size of the scan's cleaned body; `read` maps an artifact's name to its table."""
    vertices = read("clean/vertices")["position_m"].to_numpy()
    surface = Surface(vertices, read("clean/faces")["vertices"].to_numpy())
    return _BodySize(solid_moments(surface)[0], np.ptp(vertices, axis=0), surface.volume_m3)


def face_normals_doubled(surface: Surface) -> _Floats:
    """Return normals with a length of twice the triangle's area [m²], shape [face_count, 3]."""
    corners = surface.corners
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def face_areas(surface: Surface) -> _Floats:
    """Return triangle areas [m²], shape [face_count]."""
    return 0.5 * np.linalg.norm(face_normals_doubled(surface), axis=1)


def half_edges(faces: _Ints) -> _Ints:
    """Return directed edges, the three of face 0 first, shape [3 * face_count, 2]."""
    return faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)


def edge_ids(faces: _Ints) -> tuple[_Ints, NDArray[np.intp], NDArray[np.intp]]:
    """Return unique undirected edges [edge_count, 2], edge of each half edge [3 * face_count], faces per edge."""
    keys = edge_keys(np.sort(half_edges(faces), axis=1))
    unique, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    edges = np.column_stack([unique >> 32, unique & 0xFFFFFFFF]).astype(np.int32)
    return edges, inverse.reshape(-1), count


def edge_keys(edges: _Ints) -> NDArray[np.int64]:
    """Return one number per vertex pair, for set operations, shape [edge_count]."""
    return (edges[:, 0].astype(np.int64) << 32) + edges[:, 1]


def edge_lengths(surface: Surface) -> _Floats:
    """Return the lengths of the unique edges [m], shape [edge_count]."""
    edges = edge_ids(surface.faces)[0]
    return np.linalg.norm(surface.vertices[edges[:, 0]] - surface.vertices[edges[:, 1]], axis=1)


def face_components(faces: _Ints, vertex_count: int) -> NDArray[np.int32]:
    """Return the component label of each face (faces that share a vertex are one component), shape [face_count]."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    edges = half_edges(faces)
    graph = coo_matrix((np.ones(len(edges), bool), (edges[:, 0], edges[:, 1])), (vertex_count, vertex_count))
    labels = connected_components(graph, directed=False)[1]
    return np.unique(labels[faces[:, 0]], return_inverse=True)[1].astype(np.int32).reshape(-1)


def is_closed(faces: _Ints) -> bool:
    """Return True if every edge has exactly two faces that run through it in opposite directions."""
    directed = half_edges(faces)
    if len(directed) == 0 or len(np.unique(edge_keys(directed))) != len(directed):
        return False
    return bool(np.all(edge_ids(faces)[2] == 2))


def subset(surface: Surface, keep: NDArray[np.bool_]) -> Surface:
    """Return the surface of the kept faces only, without unused vertices; keep has shape [face_count]."""
    return drop_unused(Surface(surface.vertices, surface.faces[keep]))


def drop_unused(surface: Surface) -> Surface:
    """Return the same surface without vertices that no face uses."""
    used, faces = np.unique(surface.faces, return_inverse=True)
    return Surface(surface.vertices[used], faces.reshape(-1, 3).astype(np.int32))


def vertex_normals(surface: Surface) -> _Floats:
    """Return area-weighted unit normals at the vertices, shape [vertex_count, 3]."""
    normals = np.zeros_like(surface.vertices)
    doubled = face_normals_doubled(surface)
    for corner in range(3):
        np.add.at(normals, surface.faces[:, corner], doubled)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return normals / np.where(length > 0.0, length, 1.0)


def solid_moments(surface: Surface) -> tuple[_Floats, _Floats]:
    """Return centre of mass [m], shape [3], and covariance [m²], shape [3, 3], of the solid inside a closed surface."""
    origin = surface.vertices.mean(axis=0)
    corners = surface.corners - origin
    volume = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])) / 6.0
    total = volume.sum()
    sums = corners.sum(axis=1)
    centre = np.einsum("i,ij->j", volume, sums) / (4.0 * total)
    second = np.einsum("i,ikj,ikl->jl", volume, corners, corners) + np.einsum(
        "i,ij,il->jl", volume, sums, sums
    )
    return origin + centre, second / (20.0 * total) - np.outer(centre, centre)
