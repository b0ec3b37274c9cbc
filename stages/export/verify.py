"""Check an exported folder by itself, wherever it lies: every check again, and the seal of the certificate."""

import json
import math
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from disect_sim.errors import InputError
from stages.export.certificate import Certificate, certify
from stages.export.checks import holds, not_verified
from stages.export.export_files import DOCUMENT, read_export
from stages.export.stated import demand_of_files
from stages.runtime.hashing import sha256_of_value

CHAIN = "upstream files have their sha256"
UNREADABLE = (
    InputError,
    ValidationError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    StopIteration,
    OSError,
    pl.exceptions.PolarsError,
)
"""What files that someone has changed can raise anywhere."""


def verify(folder: Path) -> Certificate:
    """Every check of the certificate on the folder as it is now, without the scan it was made from.

    Raises InputError if the folder is no export. What lies upstream is not there to be checked, and said so.
    """
    if not (folder / DOCUMENT).is_file():
        raise InputError(
            f"{folder} has no {DOCUMENT}. It must be an exported cut. Give the folder "
            "data/scans/<id>/export/cut/certified, or a copy of it."
        )
    try:
        files = read_export(folder)
        found = certify(folder, demand_of_files(folder, files.document))
    except UNREADABLE as error:
        note = " ".join(str(error).split())[:300]
        return Certificate((holds(1, "files readable", False, note, remedy="Export again"),), {})
    document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    sealed = document.pop("certificate", None)
    sealed = sealed if isinstance(sealed, dict) else {}
    intact = sha256_of_value(document) == sealed.get("content_sha256")
    checks = [
        not_verified(7, CHAIN, "the scan is not here") if check.name == CHAIN else check
        for check in found.checks
    ]
    checks.append(
        holds(
            7,
            "certificate says certified and is of this document",
            bool(intact and sealed.get("certified") is True),
            "its sha256 is that of the rest of cut.json"
            if intact
            else "cut.json was changed, or never certified",
            remedy="Export again",
        )
    )
    checks.append(
        holds(
            7,
            "certificate's loads are those of the files",
            _same(sealed.get("loads"), found.figures),
            "peak force, deflection and stiffness",
            remedy="Export again",
        )
    )
    return Certificate(tuple(checks), found.figures)


def _same(said: object, figures: dict[str, float]) -> bool:
    """The operator goes by these numbers; the hash of the document does not cover them."""
    if not isinstance(said, dict) or said.keys() != figures.keys():
        return False
    return all(
        isinstance(said[name], int | float) and math.isclose(said[name], value, rel_tol=1e-6, abs_tol=1e-9)
        for name, value in figures.items()
    )
