"""Make the bundled sample: a SYNTHETIC scan of an apple, with the faults real scans have.

    python data/sample/make_sample.py

writes synthetic_apple.ply beside this script, in millimetres. Nothing in it was measured: the shape is a
formula, the
noise comes from a seeded generator, and the faults are put in on purpose so that the stage `clean` has
work to do.
"""

from pathlib import Path

import numpy as np
import trimesh

SCAN_NAME = "synthetic_apple.ply"
SEED = 20260
WIDTH_MM, HEIGHT_RATIO = 72.0, 0.88
NOISE_MM = 0.12
HOLES = (
    # Direction from the centre, radius [mm]: where it stood, where a finger held it, two specks of glare.
    ((0.0, -1.0, 0.0), 11.0),
    ((0.9, 0.2, 0.4), 6.0),
    ((-0.5, 0.6, 0.6), 2.5),
    ((0.1, 0.3, -1.0), 3.0),
)
FLIPPED_CENTRE, FLIPPED_RADIUS_MM = (-0.8, 0.1, -0.5), 7.0
FIN_EDGES = 6
"""Single faces that stick out of an edge, each making it non-manifold."""
DUPLICATE_FACES = 40


def apple(directions: np.ndarray) -> np.ndarray:
    """Surface points [mm] of a smooth apple in the given unit directions (y up), shape [n, 3]."""
    polar = np.arccos(np.clip(directions[:, 1], -1.0, 1.0))
    azimuth = np.arctan2(directions[:, 2], directions[:, 0])
    stem = 0.34 * np.exp(-((polar / 0.42) ** 2))
    calyx = 0.16 * np.exp(-(((np.pi - polar) / 0.38) ** 2))
    shoulders = 0.05 * np.cos(polar)
    lobes = 0.025 * np.cos(5.0 * azimuth) * np.sin(polar / 2.0) ** 4
    lean = 0.03 * np.sin(polar) * np.cos(azimuth - 0.7)
    radius = 0.5 * WIDTH_MM * (1.0 - stem - calyx + shoulders + lobes + lean)
    return directions * radius[:, None] * np.array([1.0, HEIGHT_RATIO, 1.0])


def make_sample() -> tuple[np.ndarray, np.ndarray]:
    """Vertices [mm], shape [n, 3], and faces, shape [m, 3], of the faulty scan."""
    random = np.random.default_rng(SEED)
    ball = trimesh.creation.icosphere(subdivisions=5)
    smooth = apple(np.asarray(ball.vertices))
    outward = smooth / np.linalg.norm(smooth, axis=1, keepdims=True)
    vertices = smooth + outward * random.normal(0.0, NOISE_MM, (len(smooth), 1))
    faces = np.asarray(ball.faces)
    centres = vertices[faces].mean(axis=1)

    near_flipped = _near(centres, FLIPPED_CENTRE, FLIPPED_RADIUS_MM)
    faces = np.where(near_flipped[:, None], faces[:, ::-1], faces)
    keep = np.ones(len(faces), bool)
    for direction, radius in HOLES:
        keep &= ~_near(centres, direction, radius)
    faces = faces[keep]

    duplicates = faces[random.choice(len(faces), DUPLICATE_FACES, replace=False)]
    on_fins = faces[random.choice(len(faces), FIN_EDGES, replace=False)]
    fin_tips = vertices[on_fins[:, 0]] * 1.04
    fins = np.column_stack([on_fins[:, 0], on_fins[:, 1], len(vertices) + np.arange(FIN_EDGES)])

    marker = trimesh.creation.icosphere(subdivisions=1, radius=3.0)
    marker.apply_translation([48.0, -25.0, 10.0])
    ghost = trimesh.creation.box(extents=(9.0, 9.0, 9.0))
    ghost.apply_translation([2.0, 1.0, -3.0])
    return _join(
        [
            (np.concatenate([vertices, fin_tips]), np.concatenate([faces, duplicates, fins])),
            (np.asarray(marker.vertices), np.asarray(marker.faces)),
            (np.asarray(ghost.vertices), np.asarray(ghost.faces)),
        ]
    )


def write_ply(path: Path, vertices: np.ndarray, faces: np.ndarray) -> None:
    """Write a binary PLY of float32 vertices and int32 faces."""
    header = (
        "ply\nformat binary_little_endian 1.0\n"
        "comment SYNTHETIC apple scan in millimetres, made by data/sample/make_sample.py\n"
        f"element vertex {len(vertices)}\nproperty float x\nproperty float y\nproperty float z\n"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    rows = np.empty(len(faces), dtype=[("count", "u1"), ("corners", "<i4", 3)])
    rows["count"], rows["corners"] = 3, faces
    path.write_bytes(header.encode("ascii") + vertices.astype("<f4").tobytes() + rows.tobytes())


def _near(points: np.ndarray, direction: tuple[float, float, float], radius_mm: float) -> np.ndarray:
    unit = np.asarray(direction) / np.linalg.norm(direction)
    return np.linalg.norm(points - apple(unit[None, :]), axis=1) < radius_mm


def _join(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(vertices) for vertices, _ in parts[:-1]])
    vertices = np.concatenate([vertices for vertices, _ in parts])
    return vertices, np.concatenate([faces + start for (_, faces), start in zip(parts, offsets, strict=True)])


if __name__ == "__main__":
    write_ply(Path(__file__).with_name(SCAN_NAME), *make_sample())
