"""The loop of the long searches: saved every iteration, resumed after a kill, refused for other work."""

import pytest

from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting import run_to_end


class Doubling:
    """1, 2, 4, ... up to a number of iterations."""

    def __init__(self, iterations: int) -> None:
        self._iterations, self.history, self.steps = iterations, [1], 0

    def over(self):
        return len(self.history) > self._iterations

    def step(self):
        self.steps += 1
        self.history.append(2 * self.history[-1])

    def state(self):
        return {"history": list(self.history)}

    def restore(self, state):
        self.history = list(state["history"])


class KilledError(BaseException):
    pass


def kill_at(length):
    def report(search):
        if len(search.history) == length:
            raise KilledError

    return report


def test_a_killed_search_goes_on_where_it_was(tmp_path):
    place = Checkpoint(tmp_path, "key", stage="calibrate", part="x")
    with pytest.raises(KilledError):
        run_to_end(Doubling(5), place, kill_at(4))
    reported = []
    again = run_to_end(Doubling(5), place, lambda search: reported.append(search.history[-1]))
    assert again.history == [1, 2, 4, 8, 16, 32]
    assert (again.steps, reported) == (2, [16, 32])
    assert run_to_end(Doubling(5), place).steps == 0


def test_the_checkpoint_of_other_work_is_not_used(tmp_path):
    run_to_end(Doubling(3), Checkpoint(tmp_path, "key", stage="calibrate", part="x"))
    other = Checkpoint(tmp_path, "other key", stage="calibrate", part="x")
    assert run_to_end(Doubling(3), other).steps == 3


def test_without_a_place_nothing_is_kept():
    nowhere = Checkpoint(None, "", stage="calibrate", part="x")
    assert run_to_end(Doubling(2), nowhere).history == [1, 2, 4]
    assert run_to_end(Doubling(2), nowhere).steps == 2
