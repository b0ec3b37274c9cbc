"""Scripts for people: draw the pictures of the docs, fit and optimise real data, write generated files.

Each is run as `python -m scripts.<name>` in the project's directory; lab/README.md lists them.
"""
