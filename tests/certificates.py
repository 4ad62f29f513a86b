"""Certificates that sign themselves, for servers of a test on loopback; tests/hostile has those of authorities."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def self_signed(place: Path) -> Path:
    """Make a certificate for 127.0.0.1 and localhost, beside its key (key.pem); skip where openssl is missing."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = place / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(place / "key.pem"), "-out", str(path), "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"], check=True, capture_output=True)
    (place / "key.pem").chmod(0o644)  # a server's own user reads it
    return path
