"""Scans in every format that is read, written here byte by byte: another hand than the library that reads them."""

import base64
import json
import struct

import numpy as np


def obj(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
    return ("\n".join(lines + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in faces.tolist()]) + "\n").encode()


def off(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    rows = [f"3 {a} {b} {c}\n" for a, b, c in faces.tolist()]
    return f"OFF\n{len(vertices)} {len(faces)} 0\n".encode() + xyz(vertices, faces) + "".join(rows).encode()


def xyz(vertices: np.ndarray, _faces: np.ndarray) -> bytes:
    return "".join(f"{x!r} {y!r} {z!r}\n" for x, y, z in vertices.tolist()).encode()


def _ply_head(kind: str, vertices: np.ndarray, faces: np.ndarray) -> bytes:
    head = f"ply\nformat {kind} 1.0\nelement vertex {len(vertices)}\n"
    head += "".join(f"property double {axis}\n" for axis in "xyz")
    if len(faces):
        head += f"element face {len(faces)}\nproperty list uchar int vertex_indices\n"
    return f"{head}end_header\n".encode()


def ply(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    return _ply_head("ascii", vertices, faces) + off(vertices, faces).split(b"\n", 2)[2]


def ply_binary(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    rows = b"".join(struct.pack("<B3i", 3, *row) for row in faces.tolist())
    return _ply_head("binary_little_endian", vertices, faces) + vertices.astype("<f8").tobytes() + rows


def ply_cloud(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    return _ply_head("ascii", vertices, faces[:0]) + xyz(vertices, faces)


def stl(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    rows = [struct.pack("<12fH", 0.0, 0.0, 0.0, *vertices[row].ravel(), 0) for row in faces]
    return bytes(80) + struct.pack("<I", len(faces)) + b"".join(rows)


def stl_text(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    text = "solid scan\n"
    for row in faces:
        corners = "".join(f"vertex {x!r} {y!r} {z!r}\n" for x, y, z in vertices[row].tolist())
        text += f"facet normal 0 0 1\nouter loop\n{corners}endloop\nendfacet\n"
    return f"{text}endsolid scan\n".encode()


def _pcd_head(kind: str, vertices: np.ndarray) -> bytes:
    count = len(vertices)
    size = 8 if kind == "ascii" else 4
    head = f"VERSION .7\nFIELDS x y z\nSIZE {size} {size} {size}\nTYPE F F F\nCOUNT 1 1 1\n"
    return f"{head}WIDTH {count}\nHEIGHT 1\nPOINTS {count}\nDATA {kind}\n".encode()


def pcd(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    return _pcd_head("ascii", vertices) + xyz(vertices, faces)


def pcd_binary(vertices: np.ndarray, _faces: np.ndarray) -> bytes:
    return _pcd_head("binary", vertices) + vertices.astype("<f4").tobytes()


def _gltf(vertices: np.ndarray, faces: np.ndarray) -> tuple[dict, bytes]:
    positions, indices = vertices.astype("<f4"), faces.astype("<u4").tobytes()
    place = positions.tobytes()
    content = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "mode": 4}]}],
        "accessors": [
            {
                "bufferView": 0,
                "componentType": 5126,
                "count": len(vertices),
                "type": "VEC3",
                "min": positions.min(axis=0).tolist(),
                "max": positions.max(axis=0).tolist(),
            },
            {"bufferView": 1, "componentType": 5125, "count": faces.size, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": len(place)},
            {"buffer": 0, "byteOffset": len(place), "byteLength": len(indices)},
        ],
        "buffers": [{"byteLength": len(place) + len(indices)}],
    }
    return content, place + indices


def gltf(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    content, data = _gltf(vertices, faces)
    content["buffers"][0]["uri"] = (
        f"data:application/octet-stream;base64,{base64.b64encode(data).decode('ascii')}"
    )
    return json.dumps(content).encode()


def glb(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    content, data = _gltf(vertices, faces)
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(data), b"BIN\0") + data
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


WRITERS = {
    "scan.obj": obj,
    "scan.off": off,
    "scan.ply": ply,
    "binary.ply": ply_binary,
    "cloud.ply": ply_cloud,
    "scan.stl": stl,
    "text.stl": stl_text,
    "scan.gltf": gltf,
    "scan.glb": glb,
    "scan.xyz": xyz,
    "scan.pcd": pcd,
    "binary.pcd": pcd_binary,
}
"""By the name of the file."""
