"""Parts of the stage `precut`: its cutting surface file and its picture."""
