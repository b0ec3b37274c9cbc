"""disect_sim: a differentiable simulator of cutting."""
