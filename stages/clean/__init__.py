"""The steps of the stage `clean`: from a scan file to one closed surface in the cutting frame."""
