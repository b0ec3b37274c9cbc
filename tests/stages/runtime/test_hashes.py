"""Hashes of files: a file is read once per process, and again if it has changed."""

import hashlib
import os
import time

import pytest

from stages.runtime import files
from stages.runtime.files import sha256_of_file, sha256_of_path


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that were read to be hashed, in order."""
    names = []
    digest = hashlib.file_digest

    def counted(file, algorithm):
        names.append(os.path.basename(file.name))  # noqa: PTH119, TID251
        return digest(file, algorithm)

    monkeypatch.setattr(files.hashlib, "file_digest", counted)
    monkeypatch.setattr(files, "_DIGESTS", {})
    return names


def settle():
    time.sleep(1.5 * files._SETTLED_S)


def test_a_file_is_read_once(tmp_path, reads):
    scan = tmp_path / "scan.ply"
    scan.write_bytes(b"scan")
    settle()
    expected = hashlib.sha256(b"scan").hexdigest()
    assert [sha256_of_file(scan), sha256_of_file(scan), sha256_of_path(tmp_path / "." / "scan.ply")] == [
        expected
    ] * 3
    assert reads == ["scan.ply"]


def test_a_changed_file_is_read_again_even_with_its_old_size_and_time(tmp_path, reads):
    scan = tmp_path / "scan.ply"
    scan.write_bytes(b"scan")
    settle()
    first, status = sha256_of_file(scan), scan.stat()
    scan.write_bytes(b"nacs")
    os.utime(scan, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert sha256_of_file(scan) != first
    assert len(reads) == 2


def test_a_file_just_written_is_read_every_time(tmp_path, reads):
    """Two writes within a tick of the kernel's clock leave the same times."""
    scan = tmp_path / "scan.ply"
    scan.write_bytes(b"scan")
    first = sha256_of_file(scan)
    scan.write_bytes(b"nacs")
    assert sha256_of_file(scan) != first


def test_a_copy_is_read_for_itself(tmp_path, reads):
    for name in ("a.ply", "b.ply"):
        (tmp_path / name).write_bytes(b"scan")
    settle()
    assert sha256_of_file(tmp_path / "a.ply") == sha256_of_file(tmp_path / "b.ply")
    assert reads == ["a.ply", "b.ply"]
