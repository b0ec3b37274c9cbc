"""The fitting methods: one file each, named in table.py."""
