"""halve: one half-body of the first cut, laid on the board and placed under the knife for the second."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.halve.params import HalveParams
from stages.halve.picture import halve_picture
from stages.halve.pose import CutFace, fit_cut_face, flattened, moved, refuse_curved, second_cut_frame
from stages.runtime.stage_io import StageIO
from stages.shared.surface.triangles import Surface, is_closed

SIDES = {"positive": 1, "negative": -1}
MIN_SHARE = 0.01
"""The smaller part that the second cut leaves must have this share of the half's volume; less is a miss."""


@dataclass(frozen=True)
class HalveResult:
    """The half in the frame of the second cut."""

    surface: Surface
    face: CutFace
    """The first cut's face, in the first cut's frame."""
    frame: NDArray[np.float64]
    """Matrix from the first cut's frame to the second's, translation in [m], shape [4, 4]."""
    positive_share: float
    """Share of the volume at x > 0 [-]."""


def halve(half: Surface, cut_points: NDArray[np.float64], params: HalveParams) -> HalveResult:
    """Pose a half-body for the second cut.

    Args:
        half: closed half-body in the first cut's frame.
        cut_points: points of the first cut's face on this half [m], shape [n, 3].
        params: section `halve` of params.yaml.
    """
    if not is_closed(half.faces) or half.volume_m3 <= 0.0:
        raise InputError(
            f"The {params.half} half-body is not closed or is inside out. It must enclose a volume. Run precut again."
        )
    face = fit_cut_face(cut_points, half)
    if params.rests_on == "cut_face":
        refuse_curved(face)
        half = flattened(half, face, on_cut_face(half, cut_points))
    frame = second_cut_frame(
        half, face, rests_on=params.rests_on, angle_deg=params.angle_deg, offset_m=params.offset_m
    )
    surface = moved(frame, half)
    share = volume_at_positive_x(surface) / surface.volume_m3
    if not MIN_SHARE <= share <= 1.0 - MIN_SHARE:
        low, high = 1e3 * surface.vertices[:, 0].min(), 1e3 * surface.vertices[:, 0].max()
        raise InputError(
            f"halve.offset_m is {params.offset_m:g} m, which leaves {share:.1%} of the half on one side of the second "
            f"cut's plane; the half reaches from {low:.1f} to {high:.1f} mm across it. Each side must keep at least "
            f"{MIN_SHARE:.0%}. Bring offset_m nearer to 0."
        )
    return HalveResult(surface, face, frame, share)


def volume_at_positive_x(surface: Surface) -> float:
    """Volume of the part of a closed surface with x > 0 [m³]."""
    from trimesh.intersections import slice_faces_plane

    vertices, faces = slice_faces_plane(surface.vertices, surface.faces, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0))[:2]
    # Cones from the origin, which lies in the plane: the missing cap adds nothing.
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)


def on_cut_face(half: Surface, cut_points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Vertices that are points of the cut, to the bit, shape [vertex_count]."""
    on_cut = {point.tobytes() for point in np.ascontiguousarray(cut_points)}
    return np.array([vertex.tobytes() in on_cut for vertex in np.ascontiguousarray(half.vertices)])


def metrics(result: HalveResult) -> dict[str, object]:
    """The artifact halve/metrics."""
    surface = result.surface
    extent = np.ptp(surface.vertices, axis=0)
    return {
        "volume_m3": surface.volume_m3,
        "area_m2": surface.area_m2,
        "across_m": float(extent[0]),
        "height_m": float(extent[1]),
        "along_blade_m": float(extent[2]),
        "faces": len(surface.faces),
        "positive_share": result.positive_share,
        "cut_face_bulge_m": result.face.bulge_m,
    }


def cut_face_table(result: HalveResult) -> pl.DataFrame:
    """The table halve/cut_face."""
    rotation, translation = result.frame[:3, :3], result.frame[:3, 3]
    point, normal = rotation @ result.face.point + translation, rotation @ result.face.normal
    return pl.concat(
        [
            _vectors("point_m", point[None], pl.Float64),
            _vectors("normal", normal[None], pl.Float64),
            pl.DataFrame({"bulge_m": [result.face.bulge_m]}),
        ],
        how="horizontal",
    )


def run(io: StageIO, params: HalveParams) -> dict[str, object]:
    """Read the half-body, pose it, write it with its frame and the picture."""
    io.progress(0.0, "read the half-body")
    half = Surface(
        io.read(f"precut/half_{params.half}_vertices")["position_m"].to_numpy(),
        io.read(f"precut/half_{params.half}_faces")["vertices"].to_numpy(),
    )
    virtual = io.read("precut/virtual_nodes").filter(pl.col("side") == SIDES[params.half])
    cut_points = virtual["position_m"].to_numpy()
    result = halve(half, cut_points, params)
    surface = result.surface
    io.write("halve/vertices", _vectors("position_m", surface.vertices, pl.Float64))
    io.write("halve/faces", _vectors("vertices", surface.faces, pl.Int32))
    io.write("halve/frame", _vectors("row", result.frame, pl.Float64))
    io.write("halve/cut_face", cut_face_table(result))
    io.progress(0.5, "draw the picture")
    on_cut = on_cut_face(half, cut_points)
    picture = halve_picture(half, surface, on_cut, rests_on=params.rests_on)
    io.write_png("halve/preview", picture)
    io.progress(1.0, "done")
    return metrics(result)


def _vectors(name: str, values: NDArray[np.generic], dtype: type[pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(name, values, pl.Array(dtype, values.shape[1]))])
