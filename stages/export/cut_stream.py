"""The part of run_cut.py that streams joints to the arm, records what it measures and watches the force.

Plain Python, copied beside run_cut.py into every certified export.
"""

import csv
from pathlib import Path
from typing import Any

READY_TOLERANCE_RAD, START_TOLERANCE_RAD = 0.05, 0.005
STILL_RAD_S = 0.01
GLIDE_SAMPLES = 2000
"""From where the arm is to the exact pose: 50 mrad in 2 s are 0.05 rad/s and 0.07 rad/s² at most."""
SMOOTH = 0.05
"""Weight of a new force reading: a mean over about 20 ms."""
LOUD_SAMPLES = 10
"""So many readings in a row must be too high."""
STOP_SHARE = 0.9
"""Of the acceleration limits that slowing down may use, on top of what the motion uses."""
STOP_S = (0.05, 0.8)
BACK_RATE, BACK_RAMP = 0.25, 500
"""Going back: part of the speed of the way there, and cycles to get to it."""
FIELDS = ("q", "dq", "O_T_EE", "F_T_EE", "O_F_ext_hat_K", "tau_ext_hat_filtered")
"""Of the log, beside the time."""


class RefusalError(Exception):
    """A reason not to move."""


def read_joints(path: Path) -> list:
    """Joint angles [rad], one row of seven per millisecond."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return [[float(value) for value in row[1:]] for row in rows[1:]]


class Motion:
    """The files of the cut or of the air cut, joined: to the start, the motion, back to the ready pose."""

    def __init__(self, folder: Path, document: dict, air: bool) -> None:
        place = folder / "air_cut" if air else folder
        self.air = air
        self.to_start, self.joints, self.to_ready = (
            read_joints(place / name) for name in ("to_start.csv", "joint_1khz.csv", "to_ready.csv")
        )
        self.collision = document["collision"]["air_cut" if air else "cut"]
        self.free_force_n = document["collision"]["air_cut"]["stop_force_n"]
        phases = document["timing"]["phases"]
        first = next(i for i, phase in enumerate(phases) if phase["phase"] == "cut")
        self.tare = [round(1000 * phases[first - 1][key]) for key in ("start_s", "end_s")]
        self.cut_from = round(1000 * phases[first]["start_s"])


def off(pose: list, joints: list) -> float:
    """Largest distance of a joint [rad]."""
    return max(abs(a - b) for a, b in zip(pose, joints, strict=True))


def way_in(motion: Motion, joints: list, speeds: list) -> list:
    """The file that leads from where the arm rests to the start; refuse if none does."""
    if not max(abs(speed) for speed in speeds) <= STILL_RAD_S:
        raise RefusalError("The arm moves. It must rest before the motion. Wait.")
    if off(motion.to_start[0], joints) <= READY_TOLERANCE_RAD:
        return motion.to_start
    if off(motion.joints[0], joints) <= START_TOLERANCE_RAD:
        return motion.joints[:1]
    pose = ", ".join(f"{q:.4f}" for q in motion.to_start[0])
    found = ", ".join(f"{q:.4f}" for q in joints)
    raise RefusalError(
        f"The arm is at [{found}] rad. The motion begins at the ready pose [{pose}], within {READY_TOLERANCE_RAD} rad. "
        "Bring the arm there with Desk or by hand guiding."
    )


class Force:
    """Watches the measured force: tare, smoothing, and whether it is too high."""

    def __init__(self, limit_n: float) -> None:
        self.limit_n, self.loud = limit_n, 0
        self.tare: list = []
        self.mean = [0.0] * 3
        self._sum, self._count = [0.0] * 3, 0

    def collect(self, reading: list) -> None:
        """A reading at rest, for the tare."""
        self._sum = [a + b for a, b in zip(self._sum, reading, strict=True)]
        self._count += 1

    def settle(self) -> None:
        """The readings so far are the new tare."""
        if self._count:
            self.tare, self.mean, self.loud = [v / self._count for v in self._sum], [0.0] * 3, 0
        self._sum, self._count = [0.0] * 3, 0

    def too_high(self, reading: list) -> bool:
        """Whether the mean force was above the limit for a while."""
        if not self.tare:
            self.tare = list(reading)
        self.mean = [
            (1.0 - SMOOTH) * m + SMOOTH * (r - t)
            for m, r, t in zip(self.mean, reading, self.tare, strict=True)
        ]
        self.loud = self.loud + 1 if self.size > self.limit_n else 0
        return self.loud >= LOUD_SAMPLES

    @property
    def size(self) -> float:
        """[N]"""
        return sum(m * m for m in self.mean) ** 0.5


class Run:
    """One motion on the arm: streams joints, records the state, watches the force."""

    def __init__(self, robot: Any, franka: Any, document: dict, motion: Motion) -> None:
        self.robot, self.franka, self.motion = robot, franka, motion
        self.limits = document["limits"]["acceleration_rad_s2"]
        self.path: list = []
        self.place, self.first = 0.0, 0
        """Where on the path the arm is, and where joint_1khz.csv begins on it."""
        self.force = Force(motion.free_force_n)
        self.rows: list = []
        self.done = False

    def forward(self) -> str:
        """Play the whole path; the reason if it stopped on the way, else an empty text."""
        state = self.robot.read_once()
        entry = way_in(self.motion, list(state.q_d), list(state.dq))
        self.first = len(entry) - 1
        self.path = [*entry, *self.motion.joints[1:], *self.motion.to_ready[1:]]
        control = self._control_at_the_path()
        reason, slowing, cycles = "", 0, 0
        rate, last = 1.0, len(self.path) - 1
        while True:
            stopped = self.place >= last or (bool(reason) and rate <= 0.0)
            state, passed = self._cycle(control, between(self.path, self.place), finished=stopped)
            if stopped:
                return reason
            if not reason and self._watch(state):
                reason = f"The force reached {self.force.size:.0f} N, more than {self.force.limit_n:.0f} N."
                slowing = self._stopping_cycles()
            if reason:
                cycles += passed
                rate = 1.0 - smooth(min(1.0, cycles / slowing))
            self.place = min(last, self.place + rate * passed)

    def back(self) -> str:
        """From where the arm stopped, slowly, the way it came, to the start of the path; says so."""
        control = self._control_at_the_path()
        rate, ramp = 0.0, BACK_RATE / BACK_RAMP
        while True:
            stopped = self.place <= 0.0
            _, passed = self._cycle(control, between(self.path, self.place), finished=stopped)
            if stopped:
                return " The arm went back to where it began."
            # Ramp up, and down so that the path's beginning is reached at rest.
            rate = min(rate + passed * ramp, BACK_RATE, (2.0 * self.place * ramp) ** 0.5)
            self.place = max(0.0, self.place - passed * rate) if self.place > 1e-3 else 0.0

    def _control_at_the_path(self) -> Any:
        """Start to control the joints and glide from where the robot wants them to the path."""
        control = self.robot.start_joint_position_control(self.franka.ControllerMode.JointImpedance)
        state, _ = control.readOnce()
        found, target, step = list(state.q_d), between(self.path, self.place), 0
        while step < GLIDE_SAMPLES:
            share = smooth(step / GLIDE_SAMPLES)
            _, passed = self._cycle(
                control, [a + share * (b - a) for a, b in zip(found, target, strict=True)]
            )
            step += passed
        return control

    def _cycle(self, control: Any, pose: list, *, finished: bool = False) -> tuple:
        """Send a pose; the next state and how many cycles went by."""
        command = self.franka.JointPositions(pose)
        command.motion_finished = finished
        control.writeOnce(command)
        if finished:
            return None, 0
        state, period = control.readOnce()
        self.record(state)
        return state, max(1, round(1000 * period.to_sec()))

    def record(self, state: Any) -> None:
        """Keep the state; written to disk when the arm rests."""
        values = [list(getattr(state, name)) for name in FIELDS]
        self.rows.append((state.time.to_sec(), self.place - self.first, values))

    def _watch(self, state: Any) -> bool:
        step, reading = round(self.place) - self.first, list(state.O_F_ext_hat_K[:3])
        begin, end = self.motion.tare
        if begin <= step <= end:
            self.force.collect(reading)
        if step == self.motion.cut_from:
            self.force.settle()
            self.force.limit_n = self.motion.collision["stop_force_n"]
        return self.force.too_high(reading)

    def _stopping_cycles(self) -> int:
        """How long to slow down [ms] so that no joint exceeds its acceleration limit."""
        k = min(max(round(self.place), 1), len(self.path) - 2)
        before, here, after = self.path[k - 1 : k + 2]
        need = STOP_S[0]
        for a, b, c, limit in zip(before, here, after, self.limits, strict=True):
            room = STOP_SHARE * limit - abs(c - 2 * b + a) * 1e6
            need = max(need, 1.875 * abs(c - a) * 500 / max(room, 0.1 * limit))
        return round(1000 * min(need, STOP_S[1]))


def smooth(s: float) -> float:
    """A step from 0 to 1 with rest at both ends."""
    return s * s * s * (10.0 + s * (6.0 * s - 15.0))


def between(path: list, place: float) -> list:
    """The path at a place between two samples, by a cubic through four; at a sample, that sample."""
    k = min(int(place), len(path) - 1)
    t = place - k
    if t == 0.0 or k + 1 >= len(path):
        return path[k]
    four = [path[max(k - 1, 0)], path[k], path[k + 1], path[min(k + 2, len(path) - 1)]]
    weights = (
        0.5 * t * (t * (2.0 - t) - 1.0),
        0.5 * (t * t * (3.0 * t - 5.0) + 2.0),
        0.5 * t * (t * (4.0 - 3.0 * t) + 1.0),
        0.5 * t * t * (t - 1.0),
    )
    return [sum(w * q for w, q in zip(weights, column, strict=True)) for column in zip(*four, strict=True)]
