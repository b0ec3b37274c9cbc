"""The thin main that every stage shares: arguments, guard, errors as sentences, exit codes."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from stages.runtime.artifacts import Provenance
from stages.runtime.catalogue import INSTANCES
from stages.runtime.disk_error import disk_sentence
from stages.runtime.events import emit
from stages.runtime.guard import OrphanError, changes, die_with_parent, fingerprint, stage_dependencies
from stages.runtime.hashing import sha256_of_value
from stages.runtime.params import load_params
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.runtime.scratch import remove_abandoned
from stages.runtime.stage_io import StageIO

__all__ = ["StageIO", "run_stage"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INPUTS_CHANGED = 75
"""EX_TEMPFAIL of sysexits.h: run it again."""
EXIT_INTERRUPTED = 130
"""What a shell reports for Ctrl-C."""
AS_OPTION = "--as"
DEBUG_VARIABLE = "SCAN2CUT_DEBUG"

StageFunction = Callable[[StageIO, Any], dict[str, Any]]


class InputsChangedError(RuntimeError):
    """A dependency or a parameter changed while the stage ran."""


def run_stage(stage: str, run: StageFunction, arguments: Sequence[str] | None = None) -> None:
    """Run one stage on the scan directory given as an argument, then exit the process.

    `--as <instance>` after it runs an instance of the stage (catalogue.INSTANCES) instead of the stage itself.
    """
    sys.exit(_exit_code(stage, run, sys.argv[1:] if arguments is None else list(arguments)))


def _exit_code(base: str, run: StageFunction, arguments: list[str]) -> int:
    stage = base
    try:
        stage = _stage_to_run(base, arguments)
        _run_guarded(stage, run, Path(arguments[0]))
    except InputError as error:
        own_words = InputError(_in_words_of(stage, base, str(error))).with_traceback(error.__traceback__)
        return _report(stage, own_words, EXIT_BAD_INPUT)
    except InputsChangedError as error:
        return _report(stage, error, EXIT_INPUTS_CHANGED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the boundary of the process: any error becomes an exit code
        return _report(stage, error, EXIT_FAILED)
    return EXIT_DONE


def _stage_to_run(base: str, arguments: list[str]) -> str:
    """The stage itself, or the instance of it that the arguments name."""
    instances = [name for name, instance in INSTANCES.items() if instance.base == base]
    if len(arguments) == 3 and arguments[1] == AS_OPTION and arguments[2] in instances:
        return arguments[2]
    if len(arguments) != 1:
        options = f" [{AS_OPTION} {' | '.join(instances)}]" if instances else ""
        raise InputError(
            f"{base} got {len(arguments)} arguments. Usage: python -m stages.{base} data/scans/<id>{options}."
        )
    return base


def _in_words_of(stage: str, base: str, sentence: str) -> str:
    """The sentence with the instance's parameters in place of the base's, so that the remedy is right."""
    return sentence if stage == base else re.sub(rf"\b{base}(?=[.:][ a-z])", stage, sentence)


def _run_guarded(stage: str, run: StageFunction, scan_dir: Path) -> None:
    die_with_parent()
    scan = read_scan_file(scan_dir)
    project = scan_dir.resolve().parents[2]
    dependencies = stage_dependencies(scan_dir, stage)

    def state() -> dict[str, str]:
        tracked = {
            "stage": _params(project, scan_dir, stage).model_dump(mode="json"),
            "material": scan.material,
        }
        return fingerprint(project, dependencies, tracked)

    remove_abandoned(scan_dir, stage)
    params = _params(project, scan_dir, stage)
    before = state()
    io = StageIO(scan_dir, scan, _provenance(stage, params, project, scan_dir, before))
    try:
        metrics = run(io, params)
        if f"{stage}/metrics" in io.missing():
            io.write_metrics(f"{stage}/metrics", metrics)
        if io.missing():
            raise RuntimeError(
                f"{stage} did not write {', '.join(io.missing())}, which the catalogue promises"
            )
        changed = changes(before, state())
        if changed:
            raise InputsChangedError(
                f"{', '.join(changed)} changed while {stage} ran, so its result would be recorded falsely. "
                "Nothing was written. Run it again."
            )
        io.publish()
    finally:
        io.close()


def _params(project: Path, scan_dir: Path, stage: str) -> Any:
    return getattr(load_params(project / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME), stage)


def _provenance(
    stage: str, params: Any, project: Path, scan_dir: Path, digests: dict[str, str]
) -> Provenance:
    own = scan_dir.resolve().relative_to(project)
    inputs = {
        str(Path(path).relative_to(own)): digest
        for path, digest in digests.items()
        if Path(path).is_relative_to(own)
    }
    return Provenance(stage, sha256_of_value(params.model_dump(mode="json")), inputs)


def _report(stage: str, error: Exception, exit_code: int) -> int:
    of_disk = disk_sentence(error)
    is_sentence = isinstance(error, InputError | InputsChangedError | OrphanError)
    message = of_disk or (str(error) if is_sentence else f"{type(error).__name__}: {error}")
    if not message.startswith(f"{stage}:"):
        message = f"{stage}: {message}"
    emit("error", exit_code=exit_code, message=message)
    sys.stderr.write(f"{message}\n")
    if (exit_code == EXIT_FAILED and not of_disk and not is_sentence) or os.environ.get(DEBUG_VARIABLE):
        sys.stderr.write("".join(traceback.format_exception(error)))
    return exit_code
