"""The virtual node algorithm (Sifakis et al. 2007): cut a tet mesh once, before time zero."""

from disect_sim.virtual_nodes.cutting import cut_by_plane, cut_by_surface
from disect_sim.virtual_nodes.split import HalfBody, half_body
from disect_sim.virtual_nodes.topology import outer_faces

__all__ = ["HalfBody", "cut_by_plane", "cut_by_surface", "half_body", "outer_faces"]
