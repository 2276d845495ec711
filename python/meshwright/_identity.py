"""Who a client is: the identity in a folder (docs/security.md), shown over TLS."""

import ipaddress
import os
import re
import socket
import ssl
import stat
from dataclasses import dataclass
from typing import Any

from ._certificate import Certificate, read_certificate
from ._errors import Code, make_error, refuse

# Every certificate of a controller has this name, wherever it is reached.
_CONTROLLER_NAME = "controller.meshwright"
_HOST_AND_PORT = re.compile(r"(?:[^\s:/\[\]]+|\[[^\s\[\]]+\]):([0-9]{1,5})", re.ASCII)
# Forms of gRPC that have no port, or whose port gRPC asks for itself.
_OTHER_FORMS = ("unix:", "unix-abstract:", "ipv4:", "ipv6:")


@dataclass(frozen=True, repr=False)  # nobody prints its key
class Identity:
    """What is shown over TLS, in PEM: the authority alone where a token says who the client is."""

    ca: bytes
    key: bytes | None = None
    chain: bytes | None = None
    certificate: Certificate | None = None

    def refusal(self) -> str:
        """Why its certificate does not hold now, "" where it does."""
        return self.certificate.refusal() if self.certificate else ""


def check_address(address: str) -> None:
    """Refuses what names no port: gRPC would dial that of https."""
    if address.startswith(_OTHER_FORMS):
        return
    match = _HOST_AND_PORT.fullmatch(re.sub(r"^dns:(//[^/]*/)?", "", address))
    if not match or not 1 <= int(match[1]) <= 65535:
        refuse(
            f"'{address}' is no address: write HOST:PORT with a port of 1 to 65535, for example "
            "127.0.0.1:7700, or unix:/path/of/controller.sock"
        )


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


_MOST_BYTES = 64 << 10  # of a file of certificates or of a key


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
            "`meshwright cert issue` makes it, or with ca.pem alone to show a token "
            "(docs/security.md)",
        ) from None
    except PermissionError as error:
        raise make_error(Code.PERMISSION_DENIED, str(error)) from None
    except OSError as error:
        refuse(f"{path} cannot be read: {error.strerror}; name a folder of certificates (tls_dir)")


def _read_file(path: str, secret: bool) -> bytes:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        refused = 0o037 if status.st_uid == 0 and os.geteuid() != 0 else 0o077
        if secret and stat.S_ISREG(status.st_mode) and status.st_mode & refused:
            raise PermissionError(
                f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others on this machine can "
                f"read it; chmod 600 {path}"
            )
        text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            refuse(f"{path} is no certificate or key: it has more than {_MOST_BYTES} bytes")
        return text


def load_identity(folder: str) -> Identity:
    """The identity in a folder, which holds now. A folder with ca.pem alone has no certificate."""
    ca, key, chain = (os.path.join(folder, name) for name in ("ca.pem", "key.pem", "cert.pem"))
    if not os.path.lexists(key) and not os.path.lexists(chain):
        return Identity(_read(ca))
    pem = _read(chain)
    try:
        certificate = read_certificate(pem)
    except ValueError:
        refuse(f"{chain} has no certificate in PEM; make one with `meshwright cert issue`")
    identity = Identity(_read(ca), _read(key, secret=True), pem, certificate)
    if why := identity.refusal():
        raise make_error(Code.FAILED_PRECONDITION, f"{folder}: {why}")
    return identity


def open_channel(address: str, identity: Identity | None, options: list[tuple[str, Any]]) -> Any:
    """A channel of grpc; in the clear without an identity."""
    import grpc

    if identity is None:
        return grpc.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.chain)
    named = [*options, ("grpc.ssl_target_name_override", _CONTROLLER_NAME)]
    return grpc.secure_channel(address, credentials, options=named)
