"""Reading scans: every format, and every way a file can be bad."""

import base64
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.clean.scan_file import RawScan, read_scan
from stages.runtime.errors import InputError
from tests.stages.scan_shapes import ball, write_binary_ply

MAX_FACES = 100_000
SHAPE = ball(0.035, 2)
MESH = trimesh.Trimesh(SHAPE.vertices, SHAPE.faces, process=False)


def read(path: Path) -> RawScan:
    return read_scan(path, max_faces=MAX_FACES)


def pcd_header(points: int, encoding: str, fields: str = "x y z") -> bytes:
    return (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS {fields}\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {points}\nHEIGHT 1\n"
        f"VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\nDATA {encoding}\n"
    ).encode()


def embedded_gltf() -> bytes:
    files = trimesh.exchange.gltf.export_gltf(trimesh.Scene(MESH))
    tree = json.loads(files["model.gltf"])
    for buffer in tree["buffers"]:
        data = base64.b64encode(files[buffer["uri"]]).decode()
        buffer["uri"] = f"data:application/octet-stream;base64,{data}"
    return json.dumps(tree).encode()


@pytest.mark.parametrize("suffix", ["ply", "obj", "stl", "off", "glb", "gltf", "stl_ascii", "PLY"])
def test_mesh_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scan.{'stl' if suffix == 'stl_ascii' else suffix}"
    data = embedded_gltf() if suffix == "gltf" else MESH.export(file_type=suffix.lower())
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    scan = read(path)
    assert len(scan.faces) == len(SHAPE.faces)
    # Seven significant digits survive float32 and the text formats' default precision.
    np.testing.assert_allclose(
        np.sort(scan.vertices[scan.faces].mean(axis=(1, 2))),
        np.sort(SHAPE.corners.mean(axis=(1, 2))),
        atol=1e-7,
    )


@pytest.mark.parametrize("kind", ["xyz", "ply", "pcd", "pcd_binary"])
def test_cloud_formats(tmp_path: Path, kind: str) -> None:
    points = np.random.default_rng(0).normal(size=(400, 3))
    text = "\n".join(" ".join(f"{x:.9g}" for x in row) for row in points) + "\n"
    header = "ply\nformat ascii 1.0\nelement vertex 400\n" + "".join(f"property float {c}\n" for c in "xyz")
    content = {
        "xyz": text.encode(),
        "ply": (header + "end_header\n" + text).encode(),
        "pcd": pcd_header(400, "ascii") + text.encode(),
        "pcd_binary": pcd_header(400, "binary") + points.astype("<f4").tobytes(),
    }[kind]
    path = tmp_path / f"scan.{kind[:3]}"
    path.write_bytes(content)
    scan = read(path)
    assert scan.is_cloud
    np.testing.assert_allclose(scan.vertices, points, atol=1e-6)


def test_missing_pixels_of_a_pcd_are_dropped(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(400, 3))
    points[::10] = np.nan
    path = tmp_path / "scan.pcd"
    path.write_bytes(pcd_header(400, "binary") + points.astype("<f4").tobytes())
    assert len(read(path).vertices) == 360


def stl_of(faces: int) -> bytes:
    return bytes(80) + struct.pack("<I", faces)


NAN_VERTICES = np.where(np.arange(len(SHAPE.vertices))[:, None] == 7, np.nan, SHAPE.vertices)
GOOD_PLY = write_binary_ply(Path("/dev/null"), SHAPE.vertices, SHAPE.faces)
BAD = {
    "empty.ply": (b"", "is empty"),
    "truncated.ply": (GOOD_PLY[: len(GOOD_PLY) // 2], "malformed"),
    "short_by_one.ply": (GOOD_PLY[:-1], "malformed"),
    "half_header.ply": (GOOD_PLY[:60], "no 'end_header'"),
    "nan.ply": (
        write_binary_ply(Path("/dev/null"), NAN_VERTICES, SHAPE.faces),
        "1 vertices that are not finite",
    ),
    "index.ply": (write_binary_ply(Path("/dev/null"), SHAPE.vertices, SHAPE.faces + 1), "refers to vertex"),
    "negative.ply": (
        write_binary_ply(Path("/dev/null"), SHAPE.vertices, SHAPE.faces - 1),
        "refers to vertex -1",
    ),
    "two_triangles.ply": (
        write_binary_ply(Path("/dev/null"), SHAPE.vertices[:4], [[0, 1, 2], [1, 3, 2]]),
        "2 faces",
    ),
    "liar.ply": (GOOD_PLY.replace(b"vertex 162", b"vertex 9999999999"), "declares 9,999,999,999 points"),
    "text.stl": (b"this is a letter, not a mesh\n" * 20, "malformed"),
    "solid_text.stl": (b"solid as a rock\n" * 20, "malformed"),
    "huge.stl": (stl_of(5_000_000) + bytes(50), "malformed"),
    "no_vertices.obj": (b"f 1 2 3\n" * 20, "no vertex lines"),
    "words.obj": (b"v a b c\nf x y z\n" * 20, "malformed"),
    "short.off": (b"OFF\n10 10 0\n1 2 3\n", "malformed"),
    "words.off": (b"OFF\nten ten zero\n", "malformed"),
    "noise.glb": (b"glTF" + bytes(range(256)), "malformed"),
    "list.gltf": (b"[1, 2]", "malformed"),
    "outside.gltf": (b'{"buffers": [{"uri": "../secret.bin", "byteLength": 4}]}', "must be one file"),
    "number_as_uri.gltf": (b'{"buffers": [{"uri": 5, "byteLength": 4}]}', "uri of its JSON part is not text"),
    "endless.gltf": (embedded_gltf().replace(b'"count": ', b'"count": 1e999, "was": '), "OverflowError"),
    "flat_points.gltf": (embedded_gltf().replace(b"VEC3", b"VEC2"), "malformed"),
    "far.xyz": (b"1e308 1 2\n" * 400, "none may be larger than"),
    "words.xyz": (b"one two three\n" * 400, "not a table of numbers"),
    "two_columns.xyz": (b"1 2\n" * 400, "2 columns"),
    "few.xyz": (b"1 2 3\n" * 20, "20 points"),
    "no_header.pcd": (b"0.1 0.2 0.3\n" * 400, "no 'DATA' line"),
    "short.pcd": (pcd_header(1000, "binary") + bytes(100), "1000 points are declared"),
    "compressed_noise.pcd": (pcd_header(1000, "binary_compressed") + bytes(range(256)) * 4, "malformed"),
    "doubles.pcd": (
        pcd_header(400, "binary").replace(b"4 4 4", b"8 8 8") + np.ones((400, 3)).tobytes(),
        "not TYPE F of SIZE 4",
    ),
    "fields.pcd": (pcd_header(1000, "ascii", "u v w"), "instead of x y z"),
    "picture.jpeg": (b"\xff\xd8", "suffix '.jpeg'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_gets_a_sentence(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(caught.value).endswith(".")


def test_five_million_faces_are_refused_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "scan.stl"
    with path.open("wb") as file:
        file.write(stl_of(5_000_000))
        file.truncate(84 + 50 * 5_000_000)
    with pytest.raises(InputError, match="declares 5,000,000 faces"):
        read(path)


def test_things_that_are_no_files(tmp_path: Path) -> None:
    loop = tmp_path / "loop.ply"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="symlink"):
        read(loop)
    with pytest.raises(InputError, match="cannot be opened"):
        read(tmp_path / "missing.ply")
    (tmp_path / "folder.ply").mkdir()
    with pytest.raises(InputError, match="not a file"):
        read(tmp_path / "folder.ply")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_never_escape_as_another_error(tmp_path: Path, data: st.DataObject) -> None:
    """Flip, cut and insert bytes in good files: the reader either reads or refuses with a sentence."""
    suffix = data.draw(st.sampled_from(["ply", "stl", "obj", "off", "glb"]))
    exported = MESH.export(file_type=suffix)
    content = bytearray(exported.encode() if isinstance(exported, str) else exported)
    for _ in range(data.draw(st.integers(1, 8))):
        # Most damage in the first 300 bytes, where the headers are.
        position = data.draw(st.integers(0, min(300, len(content) - 1)))
        content[position] = data.draw(st.integers(0, 255))
    path = tmp_path / f"scan.{suffix}"
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    try:
        scan = read(path)
    except InputError:
        return
    assert np.isfinite(scan.vertices).all()


def test_a_scan_that_unpacks_to_too_much_memory(tmp_path):
    """In a process of its own: one that has freed memory before can use that again without asking for more."""
    path = tmp_path / "large.xyz"
    path.write_bytes(b"1 2 3\n" * 2_000_000)
    code = (
        "import sys; from pathlib import Path; from stages.clean import scan_file\n"
        "scan_file._MAX_MEMORY = 20_000_000\n"
        "scan_file.read_scan(Path(sys.argv[1]), max_faces=10**7)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "needs more than 0.0 GB. Decimate" in done.stderr
