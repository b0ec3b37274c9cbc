"""kill -9 at random moments of stages, again and again, with a count of what was hit and what came of it.

A round of stand-ins: one stage gets another parameter, its run is killed, and what lies on the disk is examined. Then
the run is repeated and must give exactly the new result; then the parameter is taken back and the run must give the old
one. A round of real stages: a forced run is killed, and the run after it must give the same bytes as before.
"""

import hashlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from disect_sim.errors import InputError
from pipelines.cli.validate import validate_file
from pipelines.dvc.cache import cache_dir, cached_file
from pipelines.dvc.kept_outputs import KEPT_PREFIX
from pipelines.dvc.recorded_files import damaged, md5_of_path, recorded_outputs
from pipelines.dvc.stage import bring_up_to_date
from pipelines.dvc.template import StageEntry, read_template, resolve
from pipelines.scans.project import Project
from pipelines.scans.register import Request, register_scan
from stages.runtime.params import load_params, merge_params
from stages.runtime.scratch import SCRATCH_PREFIX
from tests.pipelines.tiny_project import environment

RUN_ONE = (
    "import sys; from pathlib import Path; from pipelines.scans.project import Project\n"
    "from pipelines.dvc.template import read_template; from pipelines.dvc.stage import bring_up_to_date\n"
    "p = Project(Path(sys.argv[1])); e = next(e for e in read_template(p.template) if e.name == sys.argv[3])\n"
    "bring_up_to_date(p, sys.argv[2], e, force=sys.argv[4] == 'force')"
)
VICTIMS = ("runner", "dvc", "stage")


@dataclass
class Count:
    """What the harness did and saw."""

    kills: Counter[str] = field(default_factory=Counter)
    """By stage."""
    victims: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    """Which processes lived when the kill came: runner, dvc, stage, or none (it was too late)."""
    found: Counter[str] = field(default_factory=Counter)
    """State of the stage's outputs right after the kill: old, new, missing (kept aside or in the cache)."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How the run after the kill ended."""

    @property
    def hits(self) -> int:
        """Kills that found something alive."""
        return sum(self.phases.values()) - self.phases["too late"]

    def lines(self) -> str:
        """For the test's output."""
        parts = {name: dict(value) for name, value in vars(self).items()}
        return "\n".join(f"{name}: {value}" for name, value in {"hits": self.hits, **parts}.items())


class KillHarness:
    """One scan of a project; every stage has run once and is good."""

    def __init__(self, project: Project, request: Request, seed: int) -> None:
        self.project, self.scan, self.random = project, request.scan, random.Random(seed)
        self.count = Count()
        self.cache = cache_dir(project)
        self.scan_id = register_scan(project, request)
        self.entries = read_template(project.template)
        self.seconds = {e.name: bring_up_to_date(project, self.scan_id, e).seconds for e in self.entries}
        self.good = {entry.name: self.files(entry) for entry in self.entries}

    @property
    def folder(self) -> Path:
        return self.project.scan_dir(self.scan_id)

    def paths(self, entry: StageEntry) -> list[Path]:
        values = yaml.safe_load((self.folder / "scan.yaml").read_text())
        return [self.project.root / resolve(out, values) for out in entry.outs]

    def files(self, entry: StageEntry) -> dict[Path, bytes]:
        found = [
            path for out in self.paths(entry) for path in ([out] if out.is_file() else sorted(out.rglob("*")))
        ]
        return {path: path.read_bytes() for path in found if path.is_file()}

    def rounds(self, number: int) -> Count:
        """At least `number` kills that hit, going through all stages in turn."""
        turn = 0
        while self.count.hits < number:
            self.one_round(self.entries[turn % len(self.entries)])
            turn += 1
            assert turn < 3 * number + len(self.entries), "the kills come too late"
        return self.count

    def round_of_real_stages(self) -> Count:
        """Every stage is killed once, at a moment of its work."""
        for entry in self.entries:
            within_s = 0.7 * self.seconds[entry.name]
            while not self.count.kills[entry.name]:
                assert within_s > 0.05, "the kills come too late"
                self.kill_during(entry, force=True, victim="stage", within_s=within_s)
                self.repair(entry)
                within_s *= 0.5
        return self.count

    def repair(self, entry: StageEntry) -> None:
        """The run after the kill: the same bytes as before."""
        self.examine(entry)
        report = bring_up_to_date(self.project, self.scan_id, entry)
        self.count.outcomes[report.outcome.value] += 1
        self.check_recorded(entry)
        assert self.files(entry) == self.good[entry.name], f"{entry.name}: the same bytes as before"
        self.check_tidy(entry)

    def one_round(self, entry: StageEntry) -> None:
        key, value = another_value(self.project, entry.name, self.random)
        register_scan(self.project, Request(self.scan, overrides={entry.name: {key: value}}))
        victim = self.random.choices(VICTIMS, weights=(2, 3, 5))[0]
        within_s = {"runner": 3.0, "dvc": 2.5, "stage": 1.0}[victim]
        self.kill_during(entry, force=self.random.random() < 0.5, victim=victim, within_s=within_s)
        self.examine(entry)
        report = bring_up_to_date(self.project, self.scan_id, entry)
        self.count.outcomes[report.outcome.value] += 1
        params = load_params(self.project.root / "params.yaml", self.folder / "scan.yaml")
        assert report.metrics["number"] == tiny_number(getattr(params, entry.name)), (
            "result of other parameters"
        )
        self.check_recorded(entry)
        register_scan(self.project, Request(self.scan, reset=True))
        bring_up_to_date(self.project, self.scan_id, entry)
        assert self.files(entry) == self.good[entry.name], "the old result is back, byte for byte"
        self.check_tidy(entry)

    def check_tidy(self, entry: StageEntry) -> None:
        left = [
            path.name for prefix in (KEPT_PREFIX, SCRATCH_PREFIX) for path in self.folder.glob(f"{prefix}*")
        ]
        assert left == [], f"the killed run of {entry.name} left {left} behind"

    def check_recorded(self, entry: StageEntry) -> None:
        recorded = recorded_outputs(self.project, self.scan_id, entry.name)
        assert {item.path for item in recorded} == set(self.paths(entry))
        assert damaged(recorded) == []

    def kill_during(self, entry: StageEntry, *, force: bool, victim: str, within_s: float) -> None:
        command = [sys.executable, "-c", RUN_ONE, str(self.project.root), self.scan_id, entry.name]
        runner = subprocess.Popen(
            [*command, "force" if force else "no"],
            cwd=self.project.root,
            env=environment(self.project),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait_for(runner, victim)
        time.sleep(self.random.uniform(0.0, within_s))
        everyone = self.everyone(runner)
        family = self.named(everyone)
        self.count.phases[max(family, key=VICTIMS.index) if family else "too late"] += 1
        self.count.kills[entry.name] += bool(family)
        self.count.victims[victim] += bool(family)
        target = family.get(victim) or family.get("dvc") or family.get("runner")
        if target is not None:
            target.kill()
        runner.wait()
        _, alive = psutil.wait_procs(everyone, timeout=30)
        assert not alive, "a killed run leaves nobody behind"

    def wait_for(self, runner: "subprocess.Popen[bytes]", victim: str) -> None:
        """Wait until the victim lives (or all is over)."""
        while victim not in self.named(self.everyone(runner)) and runner.poll() is None:
            time.sleep(0.02)

    def everyone(self, runner: "subprocess.Popen[bytes]") -> list[psutil.Process]:
        """The run's processes, those of a stage's own workers among them."""
        try:
            top = psutil.Process(runner.pid)
            return [] if runner.poll() is not None else [top, *top.children(recursive=True)]
        except psutil.Error:
            return []

    def named(self, processes: list[psutil.Process]) -> dict[str, psutil.Process]:
        """Runner, dvc and stage, those of them that live."""
        marks = {"runner": RUN_ONE, "dvc": "-m pipelines.dvc.child", "stage": "-m stages"}
        out = {}
        for process in processes:
            try:
                words = " ".join(process.cmdline())
            except psutil.Error:
                continue
            for name, mark in marks.items():
                if mark in words and "exec python" not in words:
                    out[name] = process
        return out

    def examine(self, entry: StageEntry) -> None:
        """No file is half there, and no good file is gone for ever."""
        for path, old in self.good[entry.name].items():
            if not path.exists():
                self.count.found["missing"] += 1
                assert self.is_kept(entry, path, old), f"{path} is lost"
                continue
            self.count.found["old" if path.read_bytes() == old else "new"] += 1
            if path.parent == self.folder / entry.name:
                validate_file(path)

    def is_kept(self, entry: StageEntry, path: Path, content: bytes) -> bool:
        aside = self.folder / f"{KEPT_PREFIX}{entry.name}" / path.relative_to(self.folder)
        md5 = md5_of_bytes(content)
        cached = cached_file(self.cache, md5)
        return any(place.is_file() and md5_of_path(place) == md5 for place in (aside, cached))


def another_value(project: Project, stage: str, draw: random.Random) -> tuple[str, Any]:
    """A parameter of the stage and a value that is allowed and, most likely, was never tried: nothing is cached."""
    params = load_params(project.root / "params.yaml")
    for key, value in getattr(params, stage).model_dump().items():
        for other in (
            [value + draw.randint(1, 1000), value + 1, value - 1]
            if isinstance(value, int)
            else [value * draw.uniform(0.95, 0.999)]
            if isinstance(value, float)
            else []
        ):
            try:
                merge_params(project.root / "params.yaml", {stage: {key: other}}, overrides_from="test")
            except InputError:
                continue
            if not isinstance(value, bool):
                return key, other
    raise AssertionError(f"{stage} has no number to change")


def tiny_number(params: Any) -> float:
    """What the tiny stage makes of these parameters; written again here, so that the two can't agree by mistake."""
    text = json.dumps(params.model_dump(mode="json"), sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8


def md5_of_bytes(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
