"""Parameters on which the safety of the robot and of this machine rests: who may set them, and which a scan changes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from disect_sim.errors import InputError

LIMITS = {
    "cut": re.compile(r"(max|min)_|.*limit|.*clearance|.*speed"),
    "optimize": re.compile(r"(max|min)_|.*limit|.*clearance|.*overlap|final_"),
    "arm": re.compile(""),
    "export": re.compile(""),
}
"""Section → the parameters that keep arm, knife and people apart; everything of arm and export does."""
GUARDS = {
    "clean": re.compile(r"max_(bytes|faces)"),
    "ingest": re.compile(r"max_bytes|allow_pickle"),
}
"""Section → the parameters that protect this machine against files."""


def refuse_from_outside(settings: Mapping[str, Any], source: str) -> None:
    """InputError if settings that come by API or with a delivery touch a limit; people set these at this machine."""
    for section, values in settings.items():
        patterns = [table[section] for table in (LIMITS, GUARDS) if section in table]
        keys = values if isinstance(values, Mapping) else {}
        for key in keys:
            if any(pattern.match(str(key)) for pattern in patterns):
                raise InputError(
                    f"{source} sets {section}.{str(key)[:80]}, a limit. Limits are set at this machine only. Take it "
                    f"out, and use 'scan2cut run SCAN --set {section}.{str(key)[:80]}=VALUE' here if it is meant."
                )


def changed_limits(params: Mapping[str, Any], scan: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, value of params.yaml and value of scan.yaml, where a scan overrides a limit."""
    for section, pattern in LIMITS.items():
        shipped, own = params.get(section) or {}, scan.get(section) or {}
        for key, value in own.items():
            if pattern.match(str(key)) and value != shipped.get(key):
                yield f"{section}.{key}", shipped.get(key), value
