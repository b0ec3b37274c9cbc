"""The paper's experiments, one command each, resumable; tables and figures go to lab/notes/experiments.md."""
