"""Who a client is towards a controller: a folder that `meshwright cert` made (docs/security.md)."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

from ._errors import Code, make_error

# The name that certificates of a controller have, wherever it is reached.
CONTROLLER_NAME = "controller.meshwright"


class Identity(NamedTuple):
    """The three files of such a folder, in PEM."""

    ca: bytes
    cert: bytes
    key: bytes


def home() -> pathlib.Path:
    """Where identities lie when nobody says where."""
    if told := os.environ.get("MESHWRIGHT_TLS_HOME"):
        return pathlib.Path(told)
    if config := os.environ.get("XDG_CONFIG_HOME"):
        return pathlib.Path(config, "meshwright", "tls")
    return pathlib.Path.home() / ".config" / "meshwright" / "tls"


def is_loopback(address: str) -> bool:
    """Whether "host:port" or a socket of the file system is this machine for certain."""
    host = address.rsplit(":", 1)[0].strip("[]")
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")


def place(address: str, tls_dir: str | None) -> str:
    """The folder of the identity to show at an address; "": none, in the clear."""
    if address.startswith("unix:"):
        return ""
    told = tls_dir if tls_dir is not None else os.environ.get("MESHWRIGHT_TLS_DIR")
    if told is not None:
        return told
    own = home() / "operator"
    return str(own) if not is_loopback(address) and own.is_dir() else ""


def load(folder: str) -> Identity:
    """Raises NotFound naming the file, PermissionDenied where others may read the key."""
    read = {}
    for name in Identity._fields:
        path = pathlib.Path(folder, f"{name}.pem")
        try:
            read[name] = path.read_bytes()
        except FileNotFoundError:
            raise make_error(
                Code.NOT_FOUND, f"no {path}; `meshwright cert issue operator NAME` makes it"
            ) from None
    key = pathlib.Path(folder, "key.pem")
    if key.stat().st_mode & 0o077:
        raise make_error(
            Code.PERMISSION_DENIED, f"others can read the key {key}; run: chmod 600 {key}"
        )
    return Identity(**read)
