"""Hostile files made on purpose, for lab.faults.fuzz_inputs: sparse and endless files, bombs, impossible numbers.

Each maker writes one file with sizes and places drawn at random; small on disk, large for a careless reader.
"""

import base64
import bz2
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

HEADS = {
    "scan.off": b"OFF\n%d %d 0\n",
    "scan.ply": b"ply\nformat ascii 1.0\nelement vertex %d\nproperty float x\nproperty float y\nproperty float z\n"
    b"element face %d\nproperty list uchar int vertex_indices\nend_header\n",
    "scan.obj": b"v 0 0 %d\nv 1 0 0\nv 0 1 %d\nf 1 2 3\n",
    "scan.stl": b"solid %d\nfacet %d\nendfacet\n",
    "scan.xyz": b"%d %d 0\n",
    "scan.pcd": b"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 1\nHEIGHT 1\nPOINTS %d\n"
    b"DATA binary\n%d",
    "scan.gltf": b'{"meshes": [%d, %d],',
    "scan.glb": b"glTF",
}
LARGEST = 268_000_000
"""Just below the default of clean.max_bytes."""
TEXTS = ("[]", "[[]]", "{}", ",", "0,", "\n", " ", "1e999 ", '{"time": 1}\n', '"', "0", "null,")


def sparse(folder: Path, draw: random.Random) -> Path:
    """A good beginning, then zeros for which the disk has no room to give."""
    name = draw.choice(list(HEADS))
    head = HEADS[name]
    if b"%d" in head:
        head = head % (draw.randrange(1, 2_000_000), draw.randrange(1, 2_000_000))
    path = folder / name
    with path.open("wb") as file:
        file.write(head)
        file.truncate(draw.randrange(1_000_000, LARGEST))
    return path


def repeated(folder: Path, draw: random.Random) -> Path:
    """One text over and over."""
    name = draw.choice(["log.json", "log.csv", "log.jsonl", "log.txt", "scan.xyz", "scan.obj", "scan.off"])
    start = {"log.json": "[", "log.csv": "time,x\n", "scan.off": "OFF\n8 6 0\n", "scan.obj": "v 0 0 0\n"}.get(
        name, ""
    )
    text = draw.choice(TEXTS)
    path = folder / name
    path.write_bytes(start.encode() + text.encode() * (draw.randrange(1_000_000, 60_000_000) // len(text)))
    return path


def gltf(folder: Path, draw: random.Random) -> Path:
    """A glTF with one or two impossible entries."""
    points = np.random.default_rng(draw.randrange(10**6)).random((9, 3)).astype(np.float32)
    uri = "data:application/octet-stream;base64," + base64.b64encode(points.tobytes()).decode()
    tree: dict[str, Any] = {
        "asset": {"version": "2.0"},
        "buffers": [{"uri": uri, "byteLength": points.nbytes}],
        "bufferViews": [{"buffer": 0, "byteLength": points.nbytes}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 9, "type": "VEC3"}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "nodes": [{"mesh": 0}],
        "scenes": [{"nodes": [0]}],
        "scene": 0,
    }
    odd: tuple[Any, ...] = (
        7,
        -1,
        None,
        [],
        {},
        "VEC2",
        1e300,
        10**400,
        "../../etc/passwd",
        True,
        float("inf"),
        "x" * 10_000,
    )
    for _ in range(draw.choice((1, 2))):
        part = tree[draw.choice(["buffers", "bufferViews", "accessors", "meshes", "nodes", "scenes"])][0]
        part[draw.choice([*part, "byteOffset", "children", "matrix", "sparse"])] = draw.choice(odd)
    path = folder / "scan.gltf"
    path.write_text(json.dumps(tree))
    return path


def recording(folder: Path, draw: random.Random) -> Path:
    """A JSON log with an impossible number, pose or text."""
    count = 60
    log: dict[str, Any] = {
        "time": [0.01 * i for i in range(count)],
        "O_T_EE": [[1, 0, 0, 0, 0, -1, 0, 0, 0, 0, -1, 0, 0.5, 0, 0.3 - 0.002 * i, 1] for i in range(count)],
        "O_F_ext_hat_K": [[0, 0, -0.1 * i, 0, 0, 0] for i in range(count)],
    }
    odd: tuple[Any, ...] = (
        "1.0",
        None,
        10**400,
        1e308,
        -1e308,
        float("nan"),
        [],
        {},
        True,
        "nan",
        [[]],
        1e-320,
    )
    for _ in range(draw.choice((1, 2, 5))):
        name = draw.choice(list(log))
        row = draw.randrange(count)
        if isinstance(log[name][row], list) and draw.random() < 0.8 and log[name][row]:
            log[name][row][draw.randrange(len(log[name][row]))] = draw.choice(odd)
        else:
            log[name][row] = draw.choice(odd)
    if draw.random() < 0.3:
        log["O_T_EE"] = [[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1]] * count
    log["F_T_EE"] = draw.choice([[], [1] * 16, None, [0.0] * 15])
    path = folder / draw.choice(["log.json", "log.jsonl"])
    if path.suffix == ".json":
        path.write_text(json.dumps(log))
    else:
        names = [name for name in log if name != "F_T_EE"]
        path.write_text("\n".join(json.dumps({n: log[n][i] for n in names}) for i in range(count)))
    return path


def bomb(folder: Path, draw: random.Random) -> Path:
    """An archive that unpacks to much."""
    size = draw.randrange(50_000_000, 600_000_000)
    kind = draw.choice(["npz", "zip", "parquet", "bag"])
    path = folder / f"log.{kind}"
    if kind in ("npz", "zip"):
        name = "time.npy" if kind == "npz" else "forces.txt"
        head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % (
            size // 8
        )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as member:
            member.write(head.ljust(127) + b"\n" if kind == "npz" else b"")
            for _ in range(size // 10_000_000):
                member.write(bytes(10_000_000))
    elif kind == "parquet":
        pl.DataFrame({"time": np.zeros(size // 80)}).write_parquet(path, compression="zstd")
    else:
        data = bz2.compress(bytes(size // 20))
        header = b"".join(
            struct.pack("<I", len(field)) + field
            for field in (b"op=\x05", b"compression=bz2", b"size=" + struct.pack("<I", size % 2**32))
        )
        path.write_bytes(
            b"#ROSBAG V2.0\n" + struct.pack("<I", len(header)) + header + struct.pack("<I", len(data)) + data
        )
    return path


def footer(folder: Path, draw: random.Random) -> Path:
    """A Parquet file with a damaged footer."""
    path = folder / "log.parquet"
    pl.DataFrame({"time": [0.1, 0.2], "name": ["é", "ö"]}).write_parquet(path)
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    for _ in range(draw.choice((1, 2, 5))):
        data[-9 - draw.randrange(length)] = draw.randrange(256)
    path.write_bytes(data)
    return path


MAKERS: dict[str, Callable[[Path, random.Random], Path]] = {
    "sparse": sparse,
    "repeated": repeated,
    "gltf": gltf,
    "recording": recording,
    "bomb": bomb,
    "footer": footer,
}
