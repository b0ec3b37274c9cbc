"""Signature of an export with the lab's Ed25519 key, off by default: a folder whose hashes were renewed is refused.

    openssl genpkey -algorithm ed25519 -out lab.pem && chmod 600 lab.pem
    openssl pkey -in lab.pem -pubout -out lab.pub

SCAN2CUT_SIGNING_KEY names the private key where motions are exported, SCAN2CUT_PUBLIC_KEY or `verify --public-key` the
public one where they are verified. Signed are cut.json, with the hashes of all files beside it, and the certificate.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.export.checks import Check, holds, not_verified
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE = "signature"
"""Entry of the certificate in cut.json."""
_SIGNING, _PUBLIC = "SCAN2CUT_SIGNING_KEY", "SCAN2CUT_PUBLIC_KEY"
_MAX_KEY_BYTES = 10_000
_NAME = "signature of the lab"


def signing_key() -> "Ed25519PrivateKey | None":
    """Return the key that the environment names, None if it names none; raise InputError if it can't be used."""
    name = os.environ.get(_SIGNING)
    if not name:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = Path(name)
    data = _read(path, _SIGNING)
    if path.stat().st_mode & 0o077:
        raise InputError(
            f"{path} can be read by other users of this machine. The key that signs motions must be its owner's only. "
            f"Run 'chmod 600 {path}'."
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise _no_key(path, "a private key without a password", error) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "a private Ed25519 key", type(key).__name__)
    return key


def signed(certificate: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certificate with a signature of itself and of the document, if a key is configured."""
    key = signing_key()
    if key is None:
        return dict(certificate)
    signature = base64.b64encode(key.sign(_content(certificate, document))).decode()
    return {**certificate, SIGNATURE: {"algorithm": "Ed25519", "value": signature}}


def signature_checks(
    certificate: Mapping[str, Any], document: Mapping[str, Any], public_key: Path | None
) -> list[Check]:
    """Check 7: the export is signed by the configured key; none if neither a key nor a signature is there."""
    key = _public_key(public_key)
    entry = certificate.get(SIGNATURE)
    if key is None:
        return [] if entry is None else [not_verified(7, _NAME, f"{_PUBLIC} names no public key")]
    remedy = f"Export again with {_SIGNING}, on a machine that has the lab's key"
    if entry is None:
        return [holds(7, _NAME, False, "the export has none", remedy=remedy)]
    good = _is_signed(key, entry, _content(certificate, document))
    note = (
        "by the configured key" if good else "not by the configured key, or cut.json was changed afterwards"
    )
    return [holds(7, _NAME, good, note, remedy=remedy)]


def _is_signed(key: "Ed25519PublicKey", entry: Any, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    if (
        not isinstance(entry, dict)
        or entry.keys() != {"algorithm", "value"}
        or entry["algorithm"] != "Ed25519"
    ):
        return False
    try:
        key.verify(base64.b64decode(str(entry["value"]), validate=True), content)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _content(certificate: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
    """Return what is signed: the hash of the whole document but the signature."""
    rest = {name: value for name, value in certificate.items() if name != SIGNATURE}
    return f"scan2cut export {sha256_of_value({**document, 'certificate': rest})}".encode()


def _public_key(given: Path | None) -> "Ed25519PublicKey | None":
    name = given or os.environ.get(_PUBLIC)
    if not name:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    path = Path(name)
    data = _read(path, f"--public-key or {_PUBLIC}")
    try:
        key = load_pem_public_key(data)
    except (ValueError, TypeError) as error:
        raise _no_key(path, "a public key", error) from error
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "a public Ed25519 key", type(key).__name__)
    return key


def _read(path: Path, named_by: str) -> bytes:
    try:
        if not path.is_file():
            raise FileNotFoundError("no such file")
        with path.open("rb") as file:
            return file.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(
            f"The key {path}, named by {named_by}, can't be read ({error.strerror or error}). It must be a file in PEM "
            "format. Correct the path, or unset it to work without signatures."
        ) from error


def _no_key(path: Path, what: str, found: object) -> InputError:
    return InputError(
        f"{path} is not {what} in PEM format ({str(found)[:120]}). Signatures of exports are Ed25519. Make a key with "
        "'openssl genpkey -algorithm ed25519', its public part with 'openssl pkey -pubout'."
    )
