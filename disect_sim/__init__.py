"""disect_sim: a differentiable simulator of cutting.

Cut a tet mesh once (`cut_by_plane`), build a model (`build_model`), simulate a knife motion (`simulate`) or many of
them on all cores (`simulate_many`), compute gradients (`Result.gradient`) or wrap the simulator for a torch optimiser
(`CuttingForce`).

The names below are the public interface. They are imported on first use, so importing `InputError` alone loads neither
Warp nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disect_sim.adjoint import Gradients
    from disect_sim.cut_mesh import CutMesh, box_mesh
    from disect_sim.knife import KNIVES, Knife, knife_from
    from disect_sim.many import Cut, simulate_many
    from disect_sim.model import Model, build_model
    from disect_sim.motions import ConstantVelocity, RecordedMotion, RockingMotion, SlicingMotion
    from disect_sim.outcome import InputError, OutcomeKind
    from disect_sim.parameters import MATERIALS, Material, parameter_info
    from disect_sim.result import Result
    from disect_sim.simulation import simulate
    from disect_sim.torch_module import CuttingForce, CuttingMotion
    from disect_sim.virtual_nodes.cutting import cut_by_plane, cut_by_surface

_HOME = {
    "Gradients": "adjoint",
    "CutMesh": "cut_mesh",
    "box_mesh": "cut_mesh",
    "InputError": "outcome",
    "KNIVES": "knife",
    "Knife": "knife",
    "knife_from": "knife",
    "Cut": "many",
    "simulate_many": "many",
    "MATERIALS": "parameters",
    "Material": "parameters",
    "Model": "model",
    "build_model": "model",
    "ConstantVelocity": "motions",
    "RecordedMotion": "motions",
    "RockingMotion": "motions",
    "SlicingMotion": "motions",
    "OutcomeKind": "outcome",
    "parameter_info": "parameters",
    "Result": "result",
    "simulate": "simulation",
    "CuttingForce": "torch_module",
    "CuttingMotion": "torch_module",
    "cut_by_plane": "virtual_nodes",
    "cut_by_surface": "virtual_nodes",
}

__all__ = [
    "KNIVES",
    "MATERIALS",
    "ConstantVelocity",
    "Cut",
    "CutMesh",
    "CuttingForce",
    "CuttingMotion",
    "Gradients",
    "InputError",
    "Knife",
    "Material",
    "Model",
    "OutcomeKind",
    "RecordedMotion",
    "Result",
    "RockingMotion",
    "SlicingMotion",
    "box_mesh",
    "build_model",
    "cut_by_plane",
    "cut_by_surface",
    "knife_from",
    "parameter_info",
    "simulate",
    "simulate_many",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'disect_sim' has no attribute {name!r}")
    return getattr(import_module(f"disect_sim.{_HOME[name]}"), name)
