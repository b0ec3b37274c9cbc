"""Replay of a plan: the knife goes down at each plane, and the slice that it parts falls away; drawn, not simulated."""

import io
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures import CUT, FRUIT, SCAN, Layer, Panel, board_layer, render
from stages.shared.slicing import Division, pieces_of
from stages.shared.surface import Surface

_Floats = NDArray[np.float64]
_FALL = (0.0, 0.3, 1.0)
"""Moments of a fall, as fractions of its end."""
_LEAN_RAD = np.deg2rad(72.0)
"""Slices lean on each other when they have fallen."""
_STEADY = 0.6
"""Thickness over height from which a piece does not fall but is pushed aside."""
_FRAME_MS = 450
_BLADE_M = 0.045


def falling_slices(body: Surface, division: Division) -> bytes:
    """Return an animated PNG: per cut the knife in the fruit, then the slice falling."""
    from PIL import Image

    pictures = [Image.fromarray(np.ascontiguousarray(pixels)) for pixels in _frames(body, division)]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, format="PNG", save_all=True, append_images=pictures[1:], duration=_FRAME_MS, loop=0
    )
    return buffer.getvalue()


def _frames(body: Surface, division: Division) -> Iterator[NDArray[np.uint8]]:
    pieces, normal = pieces_of(body, division), np.array(division.normal)
    side = np.cross(normal, [0.0, 1.0, 0.0])
    room = division.length_m * normal
    scene = board_layer(np.concatenate([body.vertices - room, body.vertices]), margin_m=0.01)
    for cut in range(len(division.cuts)):
        for share in _FALL:
            layers = [scene]
            for index, piece in enumerate(pieces):
                fallen = 1.0 if index < cut else share if index == cut else 0.0
                vertices = _fallen(piece, division, index, cut, fallen)
                colour = SCAN if index == len(pieces) - 1 else FRUIT
                layers.append(Layer(vertices, piece.faces, colour=colour))
            if share == 0.0:
                layers.append(_blade(body, division, cut, normal, side))
            towards = 0.35 * normal + np.array([0.0, 0.5, 0.0]) - side
            view = (float(towards[0]), float(towards[1]), float(towards[2]))
            yield render(
                [Panel(f"cut {cut + 1} of {len(division.cuts)}", layers, view=view)], panel_size=(560, 400)
            )


def _fallen(piece: Surface, division: Division, index: int, cut: int, share: float) -> _Floats:
    """Return the vertices of a piece that has fallen by this share, [vertex_count, 3]."""
    if share == 0.0:
        return piece.vertices
    normal, up = np.array(division.normal), np.array([0.0, 1.0, 0.0])
    part = division.pieces[index]
    height = float(np.ptp(piece.vertices[:, 1]))
    away = -(0.25 * division.length_m + 0.3 * part.thickness_m * (cut - index)) * share * normal
    if part.thickness_m > _STEADY * height:
        return np.asarray(piece.vertices + away)
    angle = _LEAN_RAD * share
    foot = (division.start_m + part.from_m) * normal
    along, high = (piece.vertices - foot) @ normal, piece.vertices[:, 1]
    rest = piece.vertices - np.outer(along, normal) - np.outer(high, up)
    turned_along = along * np.cos(angle) - high * np.sin(angle)
    turned_high = along * np.sin(angle) + high * np.cos(angle)
    turned = rest + np.outer(turned_along, normal) + np.outer(turned_high, up)
    turned[:, 1] -= turned[:, 1].min() - piece.vertices[:, 1].min() * (1.0 - share)
    return np.asarray(turned + away)


def _blade(body: Surface, division: Division, cut: int, normal: _Floats, side: _Floats) -> Layer:
    at = (division.start_m + division.cuts[cut].to_m) * normal
    across = 1.25 * (body.vertices @ side)
    ends = [(across.min(), 0.001), (across.min(), _BLADE_M), (across.max(), _BLADE_M), (across.max(), 0.001)]
    corners = np.array([at + z * side + np.array([0.0, y, 0.0]) for z, y in ends])
    return Layer(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32), colour=CUT, opacity=0.8)
