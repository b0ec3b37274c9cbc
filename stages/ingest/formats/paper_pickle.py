"""The paper's pickled logs: {time, force [n, 6], position, velocity}.

A pickle can run code, and NumPy's own `__setstate__` trusts its bytes. So nothing is unpickled: the opcodes are read
with pickletools, and only numbers, texts, lists, dictionaries and arrays of plain numbers are understood.
"""

import pickletools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.column_map import read_columns
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile, RobotLog, column_array
from stages.runtime.errors import InputError

_NUMPY = re.compile(r"numpy\.(_?core)\.(multiarray|numeric)")
_KINDS = {
    "_reconstruct": "array",
    "scalar": "scalar",
    "_frombuffer": "buffer",
    "dtype": "dtype",
    "ndarray": "class",
}
_NUMBERS = re.compile(r"[fiu][1248]")
"""dtypes that are read."""
_MAX_DEPTH = 16
"""Maximum nesting of lists; one that contains itself has no end."""
_MARK = object()


@dataclass
class _Name:
    """A global of the pickle that stands for one of NumPy's own steps; it is never imported."""

    kind: str


@dataclass
class _Dtype:
    code: str
    order: str = "<"

    @property
    def numpy(self) -> np.dtype[Any]:
        if not _NUMBERS.fullmatch(self.code) or self.order not in ("<", ">", "|", "="):
            raise ValueError(f"the array type {self.order}{self.code} is not plain numbers")
        return np.dtype(self.order + self.code)


@dataclass
class _Array:
    """An array whose content follows with BUILD."""

    values: NDArray[Any] | None = None


def _global(module: str, name: str) -> _Name:
    if (_NUMPY.fullmatch(module) or module == "numpy") and name in _KINDS:
        return _Name(_KINDS[name])
    if (module, name) == ("_codecs", "encode"):
        return _Name("bytes")
    raise InputError(
        f"The pickle asks for {module}.{name}. Only NumPy arrays and plain values are allowed, since a pickle "
        "can run any code. Export the log as NPZ, CSV or Parquet."
    )


def _filled(data: bytes, dtype: _Dtype, shape: Any, column_major: bool) -> NDArray[Any]:
    values = np.frombuffer(data, dtype.numpy)
    return values.reshape(tuple(int(n) for n in shape), order="F" if column_major else "C")


def _called(name: Any, arguments: Any) -> Any:
    """Return what NumPy's step of this name gives."""
    match name, arguments:
        case _Name("array"), (_Name("class"), *_):
            return _Array()
        case _Name("dtype"), (str(code), *_):
            return _Dtype(code)
        case _Name("bytes"), (str(text), *_):
            return text.encode("latin1")
        case _Name("scalar"), (_Dtype() as dtype, bytes(data)):
            return np.frombuffer(data, dtype.numpy)[0].item()
        case _Name("buffer"), (bytes(data) | bytearray(data), _Dtype() as dtype, tuple(shape), str(order)):
            return _Array(_filled(bytes(data), dtype, shape, order == "F"))
    raise ValueError("a step that is not one of NumPy's for plain arrays")


def _set_state(target: Any, state: Any) -> None:
    match target, state:
        case _Array(), (int(), tuple(shape), _Dtype() as dtype, bool() | int() as column_major, bytes(data)):
            target.values = _filled(data, dtype, shape, bool(column_major))
        case _Dtype(), (int(), str(order), None, None, None, *_):
            target.order = order
        case _:
            raise ValueError("the state of an array that is not plain numbers")


class _Reader:
    """Stack machine for the opcodes that dictionaries of arrays need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        at = max(i for i, item in enumerate(self.stack) if item is _MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def read(self, data: bytes) -> Any:
        """Return the content; any exception means that it is not such a pickle."""
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.stack.pop()
            self.step(opcode.name, argument)
        raise ValueError("it has no end")

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("PROTO", "FRAME"):
            return
        if name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, attribute = argument.split(" ", 1) if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            stack.append(_global(str(module), str(attribute)))
        elif name in ("REDUCE", "BUILD"):
            last = stack.pop()
            if name == "BUILD":
                _set_state(stack[-1], last)
            else:
                stack.append(_called(stack.pop(), last))
        elif name in _LITERALS:
            stack.append(argument)
        else:
            self.gather(name)

    def gather(self, name: str) -> None:
        """Carry out the opcodes that put values from the stack together."""
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("LIST", "TUPLE"):
            stack.append({"LIST": list, "TUPLE": tuple}[name](self.since_mark()))
        elif name in ("DICT", "SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self.since_mark()
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            if name == "DICT":
                stack.append(pairs)
            elif type(stack[-1]) is dict:
                stack[-1].update(pairs)
            else:
                raise ValueError("items of something that is no dictionary")
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self.since_mark()
            if type(stack[-1]) is not list:
                raise ValueError("items of something that is no list")
            stack[-1].extend(items)
        else:
            raise ValueError(f"{name} is not needed for arrays")


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Any] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_LITERALS = frozenset(
    """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE
    SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8
    """.split()  # noqa: SIM905
)


def _plain(value: Any) -> Any:
    """Return the array of a placeholder, or the value."""
    return value.values if isinstance(value, _Array) else value


def _values(value: Any, limit: int, depth: int = 0) -> int:
    """Count the values in nested lists, up to just beyond the limit."""
    if not isinstance(value, list | tuple):
        return 1
    if depth > _MAX_DEPTH:
        return limit + 1
    total = 0
    for item in value:
        total += _values(item, limit - total, depth + 1)
        if total > limit:
            break
    return total


def recognises(file: LogFile) -> bool:
    """Recognise a pickle by its name, since old pickles begin with anything, or by the first byte of newer ones."""
    return file.path.suffix in (".pkl", ".pickle") or file.start[:1] == b"\x80"


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a pickle in the paper's layout, if pickles are allowed."""
    if not params.allow_pickle:
        raise InputError(
            f"{file.name} is a pickle, which can run any code when it is opened. Pickles are not read by default. "
            "Export the log as NPZ, CSV or Parquet; if you trust its origin: --set ingest.allow_pickle=true."
        )
    data, source = file.path.read_bytes(), file.name
    try:
        content = _Reader().read(data)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{source} can't be read as a pickle of arrays ({str(error)[:80]}). It must hold numbers, lists and NumPy "
            "arrays of numbers only. Export the log as NPZ, CSV or Parquet."
        ) from error
    if not isinstance(content, dict) or not {"time", "force", "position"} <= content.keys():
        raise InputError(
            f"{source} contains a {type(content).__name__} without time, force and position. The paper's layout is a "
            "dictionary with these three. Export the log as NPZ with ingest.columns."
        )
    columns = {key: key for key in ("time", "force", "position")}
    for key in columns:
        if _values(content[key], len(data)) > len(data):
            raise InputError(
                f"{source}: {key} repeats its lists until they hold more values than the file has bytes. A log holds "
                "each sample once. Export it as NPZ, CSV or Parquet."
            )

    def get(name: str) -> NDArray[np.float64]:
        return column_array(_plain(content[name]), name, source)

    return read_columns(
        get, list(columns), columns, sample_rate_hz=None, source_format="paper pickle", source=source
    )
