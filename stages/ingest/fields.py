"""Turning lists of a parsed file into arrays, with a sentence when they are not what they should be."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError


def number_array(values: Any, width: int | None, name: str, source: str) -> NDArray[np.float64]:
    """An array of shape [n, width], or [n] if width is None; null becomes NaN, which is refused later."""
    shape = "numbers" if width is None else f"rows of {width} numbers"
    if not isinstance(values, list | np.ndarray):
        raise InputError(
            f"{source}: {name} is {str(values)[:40]!r}. It must be a list of {shape}, one per sample. Record it again."
        )
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{source}: {name} is not a list of {shape} ({str(error)[:80]}). Every sample must have all of them. "
            "Record the log again."
        ) from error
    expected = array.ndim == 1 if width is None else array.ndim == 2 and array.shape[1] == width
    if array.size and not expected:
        raise InputError(
            f"{source}: {name} has the shape {array.shape}. It must be {shape}, one per sample. Record the log again."
        )
    return array if width is None else array.reshape(-1, width)


def column_array(values: Any, name: str, source: str) -> NDArray[np.float64]:
    """An array of shape [n] or [n, k] from a column of a table, an array of an archive or a list of a pickle."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        raise InputError(
            f"{source}: {name} is {array.dtype} of shape {array.shape}. It must be numbers, one row per sample. "
            "Correct ingest.columns or export the log again."
        )
    return array.astype(np.float64)
