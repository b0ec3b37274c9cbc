"""DVC: pipeline template, running a stage, repair, clones."""
