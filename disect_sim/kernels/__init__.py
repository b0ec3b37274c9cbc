"""Force laws as Warp kernels: one source for CPU and CUDA."""
