"""kill -9 at random moments of a scan's stages, with a count of what was hit and what came of it.

Every stage has two good results: one of the scan's settings ("usual"), one with a number changed ("other"). A round
takes one stage: its usual result is forced to be computed again, or the settings are changed to the other one's. That
run is killed, and most often some of the next ones as well. What lies on the disk is examined after each; then the run
is repeated and must give exactly the good result's bytes; and with the usual settings, everything must be as it was
before the round.
"""

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.faults.kill_tally import Tally
from lab.faults.kill_victim import Strike, strike
from pipelines.cli.show import validate_file
from pipelines.dvc.commands import cache_dir, cached_file
from pipelines.dvc.pipeline_file import StageEntry, read_template, resolve
from pipelines.dvc.repair import KEPT_PREFIX, damaged, md5_of_path, recorded_outputs
from pipelines.dvc.stage import bring_up_to_date
from pipelines.project import Project
from pipelines.scans.register import Request, register_scan, track_raw_files
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping
from stages.runtime.params import load_params, merge_params

RUN_ONE = (
    "import sys; from pathlib import Path; from pipelines.project import Project\n"
    "from pipelines.dvc.pipeline_file import read_template; from pipelines.dvc.stage import bring_up_to_date\n"
    "p = Project(Path(sys.argv[1])); e = next(e for e in read_template(p.template) if e.name == sys.argv[3])\n"
    "bring_up_to_date(p, sys.argv[2], e, force=sys.argv[4] == 'force')"
)
"""The runner without Prefect."""
KINDS = {"stage": 4, "dvc": 3, "runner": 2, "group": 2, "server": 1}
"""What is killed, and how often."""
WITH_PREFECT = 0.1
"""Share of the other kinds that are whole runs, with their own server too."""
IN_A_ROW = 20
"""Most kills of a round unless said: all but the first hit runs that repair what those before them left."""
LATER = 1.05
"""Moments are drawn from a little more than the victim's life, so that its last moments are among them."""
LAST = 0.9
"""Share of a life, from which on a victim that still lives shows that its life is longer than was thought."""
PREFECT_S = 20.0
"""Work that a whole run is first thought to need beside its stage [s]; too much is put right at once."""
OF_A_RUN = {"report.html", "viewer.html", "run.json", "runs.jsonl"}
"""Files in a scan's folder that a whole run writes anew."""
Files = dict[str, str]
"""Path relative to the scan's folder → md5."""


@dataclass
class Good:
    """What a stage must give."""

    usual: Files
    seconds: float
    """CPU time of the stage with dvc around it [s]."""
    setting: tuple[str, Any]
    """Parameter of the stage's section and its value for the other result."""
    other: Files | None = None
    """Computed when a round first needs it."""


class KillRounds:
    """One scan of a project, all of whose stages have run."""

    def __init__(
        self,
        project: Project,
        request: Request,
        environment: Mapping[str, str],
        temporary: Path,
        good: dict[str, Good] | None = None,
        say: Callable[[str], None] = lambda sentence: None,
        *,
        stages: int | None = None,
        in_a_row: int = IN_A_ROW,
    ) -> None:
        """`good` is known from an earlier part; without it, all stages are computed. `temporary`: $TMPDIR of runs.

        `stages`: only so many of the pipeline's first stages. `in_a_row`: most kills of a round.
        """
        self.in_a_row = in_a_row
        self.project, self.request, self.say = project, replace(request, reset=True), say
        self.temporary = temporary
        temporary.mkdir(exist_ok=True)
        self.environment = {**environment, "TMPDIR": str(temporary), "PREFECT_API_URL": ""}
        self.scan_id = register_scan(project, self.request)
        self.folder = project.scan_dir(self.scan_id)
        self.entries = read_template(project.template)[:stages]
        self.cache = cache_dir(project)
        self.known_runs = temporary.parent / "known_runs"
        self._around_s: dict[tuple[str, bool], float] = {}
        """(victim, with Prefect) → work of its life beside that of the stage with dvc [s]; from kills too late."""
        if good is None:
            track_raw_files(project, self.scan_id)
            self.good = self._compute()
        else:
            self.good = good
            for entry in self.entries:
                bring_up_to_date(project, self.scan_id, entry)
        self.before = self._all_files()

    def _compute(self) -> dict[str, Good]:
        """The usual result of every stage."""
        good = {}
        for entry in self.entries:
            began_s = _cpu_of_children_s()
            bring_up_to_date(self.project, self.scan_id, entry)
            seconds = _cpu_of_children_s() - began_s
            setting = another_value(self.project, self.request, entry.name)
            good[entry.name] = Good(self.files(entry), seconds, setting)
            self.say(f"{entry.name}: {seconds:.1f} s; the other result has {setting[0]}: {setting[1]}")
        shutil.rmtree(self.known_runs, ignore_errors=True)
        shutil.copytree(self.cache / "runs", self.known_runs)
        return good

    def _compute_other(self, entry: StageEntry) -> None:
        good = self.good[entry.name]
        self._register(entry.name, good.setting)
        bring_up_to_date(self.project, self.scan_id, entry)
        good.other = self.files(entry)
        self._register()
        bring_up_to_date(self.project, self.scan_id, entry)
        assert self.files(entry) == good.usual != good.other, f"{entry.name}: two results and the way back"

    def _register(self, stage: str = "", setting: tuple[str, Any] = ("", None)) -> None:
        """The usual settings, or those with one of this stage changed."""
        overrides = {name: dict(values) for name, values in self.request.overrides.items()}
        if stage:
            overrides[stage] = {**overrides.get(stage, {}), setting[0]: setting[1]}
        register_scan(self.project, replace(self.request, overrides=overrides))

    def files(self, entry: StageEntry) -> Files:
        """The stage's outputs, and the files in those that are folders."""
        values = read_mapping(self.folder / "scan.yaml")
        outs = [self.project.root / resolve(out, values) for out in entry.outs]
        found = [path for out in outs for path in ([out] if out.is_file() else out.rglob("*"))]
        return {str(p.relative_to(self.folder)): md5_of_path(p) or "" for p in found if p.is_file()}

    def round(self, number: int, seed: int, tally: Tally) -> None:
        """Round `number`; the same number and seed draw the same stage, victims, settings and parts of their lives."""
        draw = random.Random(f"{seed}/{number}")
        entry = self.entries[number % len(self.entries)]
        change = draw.random() < 0.5
        began_s = time.monotonic()
        if change and self.good[entry.name].other is None:
            self._compute_other(entry)
        self._forget_runs()
        if change:
            self._register(entry.name, self.good[entry.name].setting)
        faults, phases = [], []
        force = not change
        for _ in range(draw.randint(1, self.in_a_row)):
            kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
            hit = self._strike(entry, kind, draw, force)
            faults += [*self._of_the_run(hit), *self._examine(entry, change, tally)]
            phases.append(f"{kind} at {hit.phase}")
            tally.phases[hit.phase] += 1
            if hit.phase == "too late":
                force = True  # the result is there now: the next run would have nothing to do
                continue
            tally.kills[entry.name] += 1
            tally.kinds[kind] += 1
        try:
            report = bring_up_to_date(self.project, self.scan_id, entry)
            tally.outcomes[report.outcome.value] += 1
            faults += self._after(entry, change)
            if change:
                self._register()
                bring_up_to_date(self.project, self.scan_id, entry)
                faults += self._after(entry, change=False)
        except (InputError, RuntimeError, OSError) as error:
            faults.append(f"the next run failed: {type(error).__name__}: {error}")
        tally.rounds += 1
        tally.seconds += time.monotonic() - began_s
        name = f"round {number} ({entry.name}, {'other' if change else 'forced'}, {', '.join(phases)})"
        tally.faults += [f"{name}: {fault}" for fault in dict.fromkeys(faults)]

    def _strike(self, entry: StageEntry, kind: str, draw: random.Random, force: bool) -> Strike:
        with_prefect = draw.random() < WITH_PREFECT or kind == "server"
        victim, stage_s = (kind, with_prefect), self.good[entry.name].seconds
        life_s = max(0.5 * stage_s, stage_s + self._around_s.get(victim, PREFECT_S * with_prefect))
        share = draw.random() * LATER
        command = self._command(entry, with_prefect, "force" if force else "no")
        hit = strike(command, self.project.root, self.environment, kind, share * life_s, draw)
        if hit.lived_s is not None:
            self._around_s[victim] = hit.lived_s - stage_s
        elif share > LAST:
            self._around_s[victim] = LATER * life_s - stage_s
        return hit

    def _forget_runs(self) -> None:
        """DVC's run cache knows the usual results alone, so that the other one must be computed."""
        shutil.rmtree(self.cache / "runs", ignore_errors=True)
        shutil.copytree(self.known_runs, self.cache / "runs")

    def _command(self, entry: StageEntry, with_prefect: bool, force: str) -> list[str]:
        if with_prefect:
            whole = ["-m", "pipelines.cli.main", "run", self.scan_id, "--target", entry.name]
            return [sys.executable, *whole, *(["--force"] if force == "force" else [])]
        return [sys.executable, "-c", RUN_ONE, str(self.project.root), self.scan_id, entry.name, force]

    def _of_the_run(self, hit: Strike) -> list[str]:
        faults = [f"left alive: {words}" for words in hit.orphans]
        if "Traceback" in hit.said and 'File "<string>"' not in hit.said:  # RUN_ONE has no words of its own
            faults.append(f"a traceback: {hit.said[-1500:]}")
        return faults + (["the run did not end"] if hit.exit_code is None else [])

    def _examine(self, entry: StageEntry, change: bool, tally: Tally) -> list[str]:
        """No file is half there, and no good file is gone for ever."""
        faults, good = [], self.good[entry.name]
        for name, md5 in good.usual.items():
            path = self.folder / name
            now = md5_of_path(path)
            if now is None:
                tally.found["missing"] += 1
                aside = self.folder / f"{KEPT_PREFIX}{entry.name}" / name
                if md5 not in (md5_of_path(aside), md5_of_path(cached_file(self.cache, md5))):
                    faults.append(f"{name} is lost")
            elif now == md5 or (change and now == (good.other or {}).get(name)):
                tally.found["usual" if now == md5 else "other"] += 1
            else:
                faults.append(f"{name} is neither the older nor the newer result")
            if now is not None and path.parent == self.folder / entry.name:
                try:
                    validate_file(path)
                except InputError as error:
                    faults.append(f"{name} can't be read: {error}")
        return faults

    def _after(self, entry: StageEntry, change: bool) -> list[str]:
        """What is wrong after the run that followed."""
        faults = []
        good = self.good[entry.name]
        if self.files(entry) != (good.other if change else good.usual):
            faults.append("the result is not the good one, byte for byte")
        recorded = recorded_outputs(self.project, self.scan_id, entry.name)
        if not recorded or damaged(recorded):
            faults.append(f"dvc.lock does not describe what is there: {damaged(recorded)}")
        now = self._all_files()
        own = {
            str((self.folder / name).relative_to(self.project.root))
            for name in good.usual | (good.other or {})
        }
        changed = [n for n, md5 in self.before.items() if n not in own and n in now and now[n] != md5]
        lost = self.before.keys() - now.keys() - own
        left = now.keys() - self.before.keys() - own
        left |= {f"$TMPDIR/{path.name}" for path in self.temporary.iterdir()}
        left |= {path.name for path in self.project.state_dir.glob("*.events.jsonl")}
        faults += [f"{', '.join(sorted(changed))} changed"] if changed else []
        faults += [f"{', '.join(sorted(lost))} lost"] if lost else []
        return faults + ([f"left behind: {', '.join(sorted(left))}"] if left else [])

    def _all_files(self) -> Files:
        """All files of the scan, and the names of what lies beside it and in the project's root."""
        files = {
            str(path.relative_to(self.project.root)): md5_of_path(path) or ""
            for path in self.folder.rglob("*")
            if path.is_file() and path.name not in OF_A_RUN | {"scan.yaml", "dvc.lock"}
        }
        beside = [*self.project.root.iterdir(), *self.project.scans_dir.iterdir()]
        return files | {str(p.relative_to(self.project.root)): "" for p in beside if p.name != ".prefect"}


def _cpu_of_children_s() -> float:
    """CPU time of all processes that this one started and that have ended [s]."""
    times = os.times()
    return times.children_user + times.children_system


def another_value(project: Project, request: Request, stage: str) -> tuple[str, Any]:
    """A parameter of the stage and another value that is allowed."""
    overrides = {name: dict(values) for name, values in request.overrides.items()}
    section = getattr(load_params(project.root / "params.yaml"), stage).model_dump()
    for key, usual in section.items():
        if isinstance(usual, bool) or not isinstance(usual, int | float):
            continue
        value = overrides.get(stage, {}).get(key, usual)
        if isinstance(value, int):
            others: tuple[float, ...] = (value + 1, value - 1)
        else:
            others = (0.97 * value, 1.03 * value) if value else (1e-3,)
        for other in others:
            changed = overrides | {stage: {**overrides.get(stage, {}), key: other}}
            try:
                merge_params(project.root / "params.yaml", changed, overrides_from="kill_rounds")
            except InputError:
                continue
            if other != value:
                return key, other
    raise AssertionError(f"{stage} has no number to change")
