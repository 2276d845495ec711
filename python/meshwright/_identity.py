"""Who a client is: the identity in a folder (docs/security.md), shown over TLS."""

import ipaddress
import os
import socket
import ssl
import stat
from typing import Any

from ._errors import Code, make_error

# Every certificate of a controller has this name, wherever it is reached.
_CONTROLLER_NAME = "controller.meshwright"


def is_loopback(address: str) -> bool:
    """Whether the host of "host:port" is this machine for certain."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def folder_of(address: str, tls_dir: str | None) -> str:
    """The folder of the identity to show, "" for none."""
    if address.startswith("unix:"):
        return ""
    if tls_dir is not None:
        return tls_dir
    return "" if is_loopback(address) else os.environ.get("MESHWRIGHT_TLS_DIR", "")


def speaks_tls(address: str, timeout: float = 2.0) -> bool:
    """Whether who listens there answers a greeting of TLS; nobody's certificate is looked at."""
    if address.startswith("unix:"):
        return False
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as plain:
            with context.wrap_socket(plain):
                return True
    except ssl.SSLError as error:
        # It refuses us in words of TLS, as who wants a certificate does.
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False


def _read(path: str, secret: bool = False) -> bytes:
    try:
        return _read_file(path, secret)
    except FileNotFoundError:
        raise make_error(
            Code.NOT_FOUND,
            f"there is no {path}; name a folder with ca.pem, cert.pem and key.pem, as "
            "`meshwright cert issue` makes it (docs/security.md)",
        ) from None
    except PermissionError as error:
        raise make_error(Code.PERMISSION_DENIED, str(error)) from None


def _read_file(path: str, secret: bool) -> bytes:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        refused = 0o037 if status.st_uid == 0 and os.geteuid() != 0 else 0o077
        if secret and stat.S_ISREG(status.st_mode) and status.st_mode & refused:
            raise PermissionError(
                f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others on this machine can "
                f"read it; chmod 600 {path}"
            )
        return file.read()


def open_channel(address: str, folder: str, options: list[tuple[str, Any]]) -> Any:
    """A channel of grpc; in the clear where the folder is ""."""
    import grpc

    if not folder:
        return grpc.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(
        _read(os.path.join(folder, "ca.pem")),
        _read(os.path.join(folder, "key.pem"), secret=True),
        _read(os.path.join(folder, "cert.pem")),
    )
    named = [*options, ("grpc.ssl_target_name_override", _CONTROLLER_NAME)]
    return grpc.secure_channel(address, credentials, options=named)
