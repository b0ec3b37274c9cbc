"""How long something still takes, from how far it is and how long that took."""

from dataclasses import dataclass

LEAST_FRACTION = 0.03
"""Below this share the first steps (reading, compiling) would be taken for the pace of all."""
LEAST_S = 3.0
"""Before this time the clock says as little."""


@dataclass
class Pace:
    """One stage: when it began and how far it is. Times in seconds, of any one clock."""

    began_s: float
    fraction: float = 0.0
    message: str = ""
    reported_s: float = 0.0
    """When the fraction was true."""

    def reached(self, fraction: float, message: str, now_s: float) -> None:
        """The stage has come this far."""
        self.fraction, self.message, self.reported_s = fraction, message, now_s

    def left_s(self, now_s: float) -> float | None:
        """An estimate of what is left [s]; None while it would be a guess."""
        spent_s = self.reported_s - self.began_s
        if self.fraction < LEAST_FRACTION or spent_s < LEAST_S:
            return None
        total_s = spent_s / self.fraction
        return max(0.0, total_s - (now_s - self.began_s))

    def left(self, now_s: float) -> str:
        """The estimate in words, empty while there is none or when it was too short."""
        left_s = self.left_s(now_s)
        return "" if left_s is None or left_s < 1.0 else f"about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """A time as a person says it: 8 s, 2 min 10 s, 1 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
