"""DVC: the template of a scan's stages, running one, what it recorded."""
