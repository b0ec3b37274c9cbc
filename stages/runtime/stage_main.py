"""The main of every stage, `python -m stages STAGE data/scans/ID`: guard, errors as sentences, exit codes."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from disect_sim.processes import end_with_parent
from stages.runtime.catalogue import STAGES
from stages.runtime.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INPUTS_CHANGED,
    EXIT_INTERRUPTED,
    InputError,
    disk_message,
)
from stages.runtime.files import read_mapping, remove_abandoned, sha256_of_path, sha256_of_value
from stages.runtime.params import load_params
from stages.runtime.scan_file import PARAMS_FILE_NAME, PIPELINE_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.stage_io import StageIO, emit, provenance_content

# The guard around a stage: dies with its parent, and notices when its inputs change under it.


PARENT_VARIABLE = "SCAN2CUT_PARENT"
"""Set by a process for those it starts: its own process id."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")


class _OrphanError(RuntimeError):
    """Whoever started this process is gone already."""


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere only the present is looked at).

    A killed dvc would otherwise leave the stage running as a second writer beside the next run. The parent may die
    while this process is still importing, so it gives its process id: as `parent`, or in the environment.
    """
    if parent is None:
        parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))
    if not end_with_parent(parent):
        raise _OrphanError(
            f"Process {parent}, which started this one, is gone. A stage must not write behind its run's back, "
            "so nothing was written. Start the run again."
        )


def _stage_dependencies(scan_dir: Path, stage: str) -> list[str]:
    """The stage's dependencies as DVC sees them: paths relative to the project."""
    entry = read_mapping(scan_dir / PIPELINE_FILE_NAME).get("stages", {}).get(stage)
    if not isinstance(entry, dict):
        raise InputError(
            f"{scan_dir / PIPELINE_FILE_NAME} has no stage {stage!r}. "
            "It must have the stages of pipelines/dvc/scan.dvc.yaml that run. Write it anew with 'scan2cut run'."
        )
    values = read_mapping(scan_dir / SCAN_FILE_NAME)
    return [_REFERENCE.sub(lambda match: str(values[match[1]]), dep) for dep in entry.get("deps", [])]


def _fingerprint(project: Path, dependencies: list[str], params: Any) -> dict[str, str]:
    """sha256 of every dependency and of the parameters."""
    return {
        **{path: sha256_of_path(project / path) for path in dependencies},
        "parameters": sha256_of_value(params),
    }


def _changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs between two fingerprints."""
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
        own_words = InputError(_in_words_of(stage, str(error))).with_traceback(error.__traceback__)
        return _report(stage, own_words, EXIT_BAD_INPUT)
    except _InputsChangedError as error:
        return _report(stage, error, EXIT_INPUTS_CHANGED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the boundary of the process: any error becomes an exit code
        return _report(stage, error, EXIT_FAILED)
    return EXIT_DONE


def _checked(arguments: list[str]) -> tuple[str, Path]:
    if len(arguments) != 2:
        raise InputError(
            f"stages got {len(arguments)} arguments. Usage: python -m stages STAGE data/scans/ID."
        )
    if arguments[0] not in STAGES:
        raise InputError(
            f"stages: {arguments[0][:80]!r} is not a stage. Stages are {', '.join(STAGES)}. Name one of them."
        )
    return arguments[0], Path(arguments[1])


def _in_words_of(stage: str, sentence: str) -> str:
    """The sentence with the instance's parameters in place of the base's, so that the remedy is right."""
    base = STAGES[stage].code if stage in STAGES else stage
    return sentence if stage == base else re.sub(rf"\b{base}(?=[.:][ a-z])", stage, sentence)


def _run_guarded(stage: str, scan_dir: Path) -> None:
    die_with_parent()
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
    io = StageIO(scan_dir, scan, stage)
    try:
        with io.temporary_files():
            metrics = _function(stage)(io, params)
        if f"{stage}/metrics" in io.missing():
            io.write_metrics(f"{stage}/metrics", metrics)
        if io.missing():
            raise RuntimeError(
                f"{stage} did not write {', '.join(io.missing())}, which its description.py promises"
            )
        changed = _changes(before, state())
        if changed:
            raise _InputsChangedError(
                f"{', '.join(changed)} changed while {stage} ran, so its result would be recorded falsely. "
                "Nothing was written. Run it again."
            )
        read = {path: digest for path, digest in before.items() if path in dependencies}
        own_folder = scan_dir.resolve().relative_to(project)
        io.write_provenance(provenance_content(stage, params, read, io.written(), own_folder=own_folder))
        io.publish()
    finally:
        io.close()


def _function(stage: str) -> _StageFunction:
    """The function `run` of the stage's folder; only now is anything heavy imported."""
    run: _StageFunction = import_module(f"stages.{STAGES[stage].code}.{STAGES[stage].code}").run
    return run


def _params(project: Path, scan_dir: Path, stage: str) -> Any:
    return getattr(load_params(project / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME), stage)


def _report(stage: str, error: Exception, exit_code: int) -> int:
    of_disk = disk_message(error)
    is_user_facing = isinstance(error, InputError | _InputsChangedError | _OrphanError)
    message = of_disk or (str(error) if is_user_facing else f"{type(error).__name__}: {error}")
    if not message.startswith(f"{stage}:"):
        message = f"{stage}: {message}"
    emit("error", exit_code=exit_code, message=message)
    sys.stderr.write(f"{message}\n")
    if (exit_code == EXIT_FAILED and not of_disk and not is_user_facing) or os.environ.get(_DEBUG_VARIABLE):
        sys.stderr.write("".join(traceback.format_exception(error)))
    return exit_code
