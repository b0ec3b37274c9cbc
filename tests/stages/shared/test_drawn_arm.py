"""The arm in the viewer: where the certificate's own geometry says its links are, and nothing without an export."""

import copy

import numpy as np
import pytest

from stages.export.cell import _link_ends
from stages.shared.robots.robot import arm_of, load_robot
from tests.pipelines.report_scene import cut_document

PANDA = load_robot("panda")


def moving_document() -> dict:
    document = cut_document()
    turn = np.array([[0.0, 0.0, 1.0, 0.5], [1.0, 0.0, 0.0, 0.1], [0.0, 1.0, 0.0, 0.03], [0.0, 0.0, 0.0, 1.0]])
    document["frames"]["O_T_C"] = turn.tolist()
    document["timing"]["phases"] = [
        {"phase": "rest", "start_s": 0.0, "end_s": 0.1},
        {"phase": "cut", "start_s": 0.1, "end_s": 0.2},
    ]
    document["waypoints"] = [
        {"time_s": 0.05 * i, "q_rad": (PANDA.ready_pose_rad + 0.1 * i).tolist()} for i in range(5)
    ]
    return document


def test_links_are_where_the_certificate_puts_them():
    document = moving_document()
    arm = arm_of(document, [0.0, 0.05])
    ends = np.array(arm["ends"])
    assert ends.shape == (2, 1 + len(PANDA.capsules), 2, 3)
    pose = np.array(document["frames"]["O_T_C"])
    in_base = ends @ pose[:3, :3].T + pose[:3, 3]
    # the cut begins at 0.1 s, which is waypoint 2; tenths of a millimetre are kept
    wanted = _link_ends(PANDA, np.stack([PANDA.ready_pose_rad + 0.2, PANDA.ready_pose_rad + 0.3]))
    assert in_base[:, 1:] == pytest.approx(wanted, abs=6e-5)
    assert in_base[:, 0] == pytest.approx(np.array([[[0, 0, 0], [0, 0, 0.333]]] * 2), abs=6e-5)
    assert arm["radius"][1:] == [capsule.radius_m for capsule in PANDA.capsules]


@pytest.mark.parametrize("lost", ["robot", "timing", "waypoints", "frames", "tool"])
def test_without_a_whole_export_no_arm_is_drawn(lost):
    document = copy.deepcopy(moving_document())
    del document[lost]
    assert arm_of(document, [0.0]) is None
    assert arm_of({}, [0.0]) is None


def test_a_robot_of_another_release_is_not_drawn():
    document = moving_document()
    document["robot"]["name"] = "unknown"
    assert arm_of(document, [0.0]) is None
