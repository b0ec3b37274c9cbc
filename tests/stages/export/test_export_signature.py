"""A folder signed with the lab's key: every change is refused, also with renewed hashes; messages for wrong keys."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from stages.export import signature
from stages.export.certificate import verify
from stages.export.export_files import read_document
from stages.runtime.errors import InputError
from tests.stages.export.test_export_verify import MOTION, reseal
from tests.stages.synthetic_cut import PARAMS, certified_folder

ROOT = Path(__file__).parents[3]


def write_key(folder: Path, name: str, key=None) -> tuple[Path, Path]:
    """Private and public part in PEM."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    private.chmod(0o600)
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, spki))
    return private, public


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return write_key(tmp_path_factory.mktemp("keys"), "lab")


@pytest.fixture(scope="module")
def signed_folder(tmp_path_factory, keys) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCAN2CUT_SIGNING_KEY", str(keys[0]))
        return certified_folder(tmp_path_factory.mktemp("export") / "cut", MOTION, PARAMS)


@pytest.fixture
def copy(signed_folder, tmp_path) -> Path:
    return Path(shutil.copytree(signed_folder, tmp_path / "elsewhere"))


def test_a_signed_folder_holds_with_and_without_the_key(copy, keys):
    assert verify(copy, keys[1]).certified
    without = verify(copy)
    assert without.certified and "signature of the lab" in without.verdict, "named as not checked"


def test_the_key_may_come_from_the_environment_and_from_the_command_line(copy, keys, tmp_path, monkeypatch):
    monkeypatch.setenv("SCAN2CUT_PUBLIC_KEY", str(keys[1]))
    found = verify(copy)
    assert "signature of the lab" not in found.verdict and found.certified
    other = write_key(tmp_path, "other")[1]
    command = [sys.executable, "-m", "pipelines.cli.main", "verify", str(copy), "--public-key", str(other)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and "not by the configured key" in result.stdout, "the option comes first"


def changed_saving(document: dict) -> None:
    document["saving"]["statement"] = "90 % less force."


def changed_scan(document: dict) -> None:
    document["scan"] = "pear"


def without_signature(document: dict) -> None:
    del document["certificate"]["signature"]


def with_other_signature(document: dict) -> None:
    document["certificate"]["signature"]["value"] = "AAAA"


def with_more_in_it(document: dict) -> None:
    document["certificate"]["signature"]["key"] = "mine"


@pytest.mark.parametrize(
    "change", [changed_saving, changed_scan, without_signature, with_other_signature, with_more_in_it]
)
def test_a_resealed_folder_is_refused_where_a_key_is_configured(copy, keys, change):
    document = json.loads((copy / "cut.json").read_text())
    change(document)
    reseal(copy, document)
    document = read_document(copy / "cut.json")
    (found,) = signature.signature_checks(document.pop("certificate"), document, keys[1])
    assert found.name == "signature of the lab" and found.passed is False


def test_a_change_that_every_other_check_accepts_is_refused(copy, keys):
    """The statement of the saving and the checklist that repeats it, renewed together."""
    document = json.loads((copy / "cut.json").read_text())
    checklist = copy / "CHECKLIST.md"
    said = document["saving"]["statement"]
    checklist.write_text(
        checklist.read_text().replace(
            "The saving over a vertical cut is not stated." if said == "not stated" else said,
            "90 % less force.",
        )
    )
    document["saving"]["statement"] = "90 % less force."
    reseal(copy, document)
    assert verify(copy).certified, "without a key this can't be seen"
    assert [check.name for check in verify(copy, keys[1]).failed] == ["signature of the lab"]


def test_an_unsigned_or_foreign_folder_is_refused(tmp_path, keys):
    folder = certified_folder(tmp_path / "plain", MOTION, PARAMS)
    assert verify(folder).certified
    found = verify(folder, keys[1])
    assert not found.certified and "the export has none" in found.verdict


@pytest.mark.parametrize("kind", ["missing", "folder", "rubbish", "rsa", "public", "open"])
def test_an_unusable_signing_key_is_a_message(tmp_path, monkeypatch, kind):
    private, public = write_key(tmp_path, "lab")
    path, words = private, "Ed25519"
    if kind in ("missing", "folder"):
        path, words = tmp_path / "nothing", "can't be read"
        if kind == "folder":
            path.mkdir()
    elif kind == "rubbish":
        path.write_text("rubbish")
    elif kind == "rsa":
        path = write_key(tmp_path, "rsa", rsa.generate_private_key(65537, 2048))[0]
    elif kind == "public":
        public.chmod(0o600)
        path = public
    else:
        path.chmod(0o644)
        words = "chmod 600"
    monkeypatch.setenv("SCAN2CUT_SIGNING_KEY", str(path))
    with pytest.raises(InputError, match=words):
        signature.signing_key()


def test_an_unusable_public_key_is_a_message(copy, keys, tmp_path):
    rubbish = tmp_path / "rubbish.pub"
    rubbish.write_text("rubbish")
    for path in (rubbish, keys[0], write_key(tmp_path, "rsa", rsa.generate_private_key(65537, 2048))[1]):
        with pytest.raises(InputError, match="Ed25519"):
            verify(copy, path)
    with pytest.raises(InputError, match="can't be read"):
        verify(copy, tmp_path / "nothing.pub")
