"""Entry point of every stage, `python -m stages STAGE data/scans/ID`: guard, error messages, exit codes."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from stages.runtime.catalogue import STAGES
from stages.runtime.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INPUTS_CHANGED,
    EXIT_INTERRUPTED,
    InputError,
    OrphanError,
    die_with_parent,
    disk_message,
    error_text,
)
from stages.runtime.files import read_mapping, remove_abandoned, sha256_of_path, sha256_of_value
from stages.runtime.params import load_params
from stages.runtime.scan_file import PARAMS_FILE_NAME, PIPELINE_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.stage_io import StageIO, emit, provenance_content

_REFERENCE = re.compile(r"\$\{(\w+)\}")


def _stage_dependencies(scan_dir: Path, stage: str) -> list[str]:
    """Return the stage's DVC dependencies: paths relative to the project."""
    entry = read_mapping(scan_dir / PIPELINE_FILE_NAME).get("stages", {}).get(stage)
    if not isinstance(entry, dict):
        raise InputError(
            f"{scan_dir / PIPELINE_FILE_NAME} has no stage {stage!r}. "
            "It must list the stages of pipelines/dvc/scan.dvc.yaml that run. Rewrite it with 'scan2cut run'."
        )
    values = read_mapping(scan_dir / SCAN_FILE_NAME)
    return [_REFERENCE.sub(lambda match: str(values[match[1]]), dep) for dep in entry.get("deps", [])]


def _fingerprint(project: Path, dependencies: list[str], params: Any) -> dict[str, str]:
    """Return the sha256 of every dependency and of the parameters."""
    return {
        **{path: sha256_of_path(project / path) for path in dependencies},
        "parameters": sha256_of_value(params),
    }


def _changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the keys that differ between two fingerprints."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


_DEBUG_VARIABLE = "SCAN2CUT_DEBUG"

_StageFunction = Callable[[StageIO, Any], dict[str, Any]]


class _InputsChangedError(RuntimeError):
    """A dependency or a parameter changed while the stage ran."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stage on the scan directory, both given as arguments, then exit the process."""
    sys.exit(_exit_code(sys.argv[1:] if arguments is None else list(arguments)))


def _exit_code(arguments: list[str]) -> int:
    stage = "stages"
    try:
        stage, scan_dir = _checked(arguments)
        _run_guarded(stage, scan_dir)
    except InputError as error:
        renamed = InputError(_for_instance(stage, str(error))).with_traceback(error.__traceback__)
        return _report(stage, renamed, EXIT_BAD_INPUT)
    except _InputsChangedError as error:
        return _report(stage, error, EXIT_INPUTS_CHANGED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- process boundary: any error becomes an exit code
        return _report(stage, error, EXIT_FAILED)
    return EXIT_DONE


def _checked(arguments: list[str]) -> tuple[str, Path]:
    if len(arguments) != 2:
        raise InputError(
            f"stages: got {len(arguments)} arguments, expected 2. Usage: python -m stages STAGE data/scans/ID."
        )
    if arguments[0] not in STAGES:
        raise InputError(
            f"stages: {arguments[0][:80]!r} is not a stage. It must be one of {', '.join(STAGES)}. Choose one."
        )
    return arguments[0], Path(arguments[1])


def _for_instance(stage: str, message: str) -> str:
    """Replace the base stage's name by the instance's in a message, so that the remedy names the right parameters."""
    base = STAGES[stage].code if stage in STAGES else stage
    return message if stage == base else re.sub(rf"\b{base}(?=[.:][ a-z])", stage, message)


def _run_guarded(stage: str, scan_dir: Path) -> None:
    die_with_parent()
    emit("started")  # from this event the runner knows that DVC did not take the outputs from its cache
    scan = read_scan_file(scan_dir)
    project = scan_dir.resolve().parents[2]
    dependencies = _stage_dependencies(scan_dir, stage)

    def state() -> dict[str, str]:
        tracked = {
            "stage": _params(project, scan_dir, stage).model_dump(mode="json"),
            "material": scan.material,
        }
        return _fingerprint(project, dependencies, tracked)

    remove_abandoned(scan_dir)
    params = _params(project, scan_dir, stage)
    before = state()
    io = StageIO(scan_dir, scan, stage, work_key=sha256_of_value(before))
    try:
        with io.temporary_files():
            metrics = _function(stage)(io, params)
        if f"{stage}/metrics" in io.missing():
            io.write_metrics(f"{stage}/metrics", metrics)
        if io.missing():
            raise RuntimeError(
                f"{stage} did not write {', '.join(io.missing())}, which its description.py lists"
            )
        changed = _changes(before, state())
        if changed:
            raise _InputsChangedError(
                f"{', '.join(changed)} changed while {stage} ran, so its result would be recorded with wrong inputs. "
                "Nothing was written. Run it again."
            )
        read = {path: digest for path, digest in before.items() if path in dependencies}
        own = scan_dir.resolve().relative_to(project)
        own_folders = [own, own.parent / scan.fruit] if scan.fruit else [own]
        io.write_provenance(provenance_content(stage, params, read, io.written(), own_folders=own_folders))
        io.publish()
    finally:
        io.close()


def _function(stage: str) -> _StageFunction:
    """Import and return the stage's `run`; heavy modules are imported only here."""
    run: _StageFunction = import_module(f"stages.{STAGES[stage].code}.{STAGES[stage].code}").run
    return run


def _params(project: Path, scan_dir: Path, stage: str) -> Any:
    return getattr(load_params(project / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME), stage)


def _report(stage: str, error: Exception, exit_code: int) -> int:
    disk_error = disk_message(error)
    is_user_facing = isinstance(error, InputError | _InputsChangedError | OrphanError)
    message = error_text(error, _InputsChangedError)
    if not message.startswith(f"{stage}:"):
        message = f"{stage}: {message}"
    emit("error", exit_code=exit_code, message=message)
    sys.stderr.write(f"{message}\n")
    if (exit_code == EXIT_FAILED and not disk_error and not is_user_facing) or os.environ.get(
        _DEBUG_VARIABLE
    ):
        sys.stderr.write("".join(traceback.format_exception(error)))
    return exit_code
