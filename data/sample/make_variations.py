"""Make variations of the bundled sample: SYNTHETIC apples and logs, for trying out many scans at once.

    python -m data.sample.make_variations FOLDER [COUNT]        (in the project's directory)

writes COUNT (8) pairs synthetic_apple_00.ply and synthetic_apple_00_log.json. Nothing in them was measured: each is the
bundled sample, stretched by a few per cent, turned and with new noise; its log has other forces by a factor and other
noise. The same number always gives the same bytes.
"""

import json
import sys
from pathlib import Path

import numpy as np

from data.sample.make_sample import SCAN_NAME, write_ply
from stages.clean.scan_file import read_scan

FOLDER = Path(__file__).parent
LOG_NAME = "synthetic_apple_log.json"
SEED = 20262
STRETCH, FORCE_FACTOR = 0.04, 0.2
"""Largest relative change of size and of force."""
NOISE_MM, NOISE_N = 0.05, 0.1


def vary(number: int) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """Vertices [mm], shape [n, 3], faces, shape [m, 3], and log of the given variation."""
    random = np.random.default_rng([SEED, number])
    scan = read_scan(FOLDER / SCAN_NAME, max_faces=10**6)
    angle = random.uniform(0.0, 2.0 * np.pi)
    turn = np.array(
        [[np.cos(angle), 0.0, np.sin(angle)], [0.0, 1.0, 0.0], [-np.sin(angle), 0.0, np.cos(angle)]]
    )
    stretch = 1.0 + random.uniform(-STRETCH, STRETCH, 3)
    vertices = scan.vertices * stretch @ turn.T + random.normal(0.0, NOISE_MM, scan.vertices.shape)
    log = json.loads((FOLDER / LOG_NAME).read_text(encoding="utf-8"))
    force = np.array(log["O_F_ext_hat_K"])
    force[:, :3] *= 1.0 + random.uniform(-FORCE_FACTOR, FORCE_FACTOR)
    force[:, :3] += random.normal(0.0, NOISE_N, force[:, :3].shape)
    text = f"SYNTHETIC: variation {number} made by data/sample/make_variations.py, nothing was measured"
    return vertices, scan.faces, {**log, "datetime": text, "O_F_ext_hat_K": force.round(3).tolist()}


def write_variations(folder: Path, count: int = 8) -> list[Path]:
    """Write the pairs; returns the scans' paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        vertices, faces, log = vary(number)
        path = folder / f"synthetic_apple_{number:02}.ply"
        write_ply(path, vertices, faces)
        text = json.dumps(log, separators=(",", ":")) + "\n"
        path.with_name(f"{path.stem}_log.json").write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    write_variations(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8)
