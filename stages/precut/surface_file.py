"""Reading a cutting surface from a mesh file in the scan's directory."""

import io
from pathlib import Path

import numpy as np

from disect_sim.errors import InputError
from stages.shared.surface.triangles import Surface, drop_unused

SUFFIXES = (".ply", ".obj", ".stl", ".off", ".glb")


def read_cutting_surface(path: Path) -> Surface:
    """The triangles of a mesh file [m], in the cutting frame, with equal vertices merged."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"precut.surface_file is {path.name!r}. It must be a mesh file ({', '.join(SUFFIXES)}) in the "
            "scan's directory. Convert the cutting surface to one of these."
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"precut.surface_file {path.name!r} can't be read ({error.strerror}). It must be a file in the "
            f"scan's directory {path.parent}. Give it with 'scan2cut run SCAN --surface FILE'."
        ) from error
    vertices, faces = _parse(data, path)
    if not len(faces):
        raise InputError(
            f"precut.surface_file {path.name!r} has no triangles. A cutting surface is a triangle mesh. "
            "Export it as one."
        )
    if not np.isfinite(vertices).all():
        raise InputError(
            f"precut.surface_file {path.name!r} has vertices that are not finite. Positions must be numbers "
            "in metres. Export it again."
        )
    # STL repeats the corners of every triangle; the surface needs to know which triangles are neighbours.
    unique, index = np.unique(vertices, axis=0, return_inverse=True)
    return drop_unused(Surface(unique, index.reshape(-1)[faces].astype(np.int32)))


def _parse(data: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    try:
        mesh = trimesh.load_mesh(io.BytesIO(data), file_type=path.suffix.lower()[1:], process=False)
        vertices = np.asarray(mesh.vertices, np.float64).reshape(-1, 3)
        return vertices, np.asarray(mesh.faces, np.int64).reshape(-1, 3)
    except Exception as error:  # a parser fed with garbage may raise anything
        raise InputError(
            f"precut.surface_file {path.name!r} can't be parsed ({type(error).__name__}). It must be a "
            f"{path.suffix} triangle mesh. Export it again."
        ) from error
