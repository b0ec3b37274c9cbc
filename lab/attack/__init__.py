"""Attacks on the certificate: edits of exported files, judged independently."""
