"""Whose a certificate is and from when to when it holds, read without a library of its own.

Only what says so in the certificate is read; whether it is signed is for the controller to say.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

_FIRST = re.compile(
    r"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----(.*?)-----END \1-----", re.DOTALL
)
# An alternative name that is a URI: a tag, the length, the text, which others follow.
_URI = re.compile(rb"\x86(.)(?=meshwright://)", re.DOTALL)
_SUBJECT = re.compile(rb"meshwright://(controller|worker|operator|viewer)/([A-Za-z0-9._-]{1,64})")
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0


@dataclass(frozen=True)
class Certificate:
    """What is read of a certificate. role and name are "" where it is not one of Meshwright's."""

    role: str
    name: str
    begins: datetime
    ends: datetime

    def refusal(self, now: datetime | None = None) -> str:
        """Why it does not hold now, "" where it does; as the command line says it."""
        now = now or datetime.now(timezone.utc)
        whose = f"the certificate of {self.role} '{self.name}'" if self.role else "the certificate"
        if now > self.ends:
            issue = f"{self.role} {self.name}" if self.role else "ROLE NAME"
            return (
                f"{whose} ended on {self.ends:%Y-%m-%d %H:%M} UTC; make a new one with "
                f"`meshwright cert issue {issue}`"
            )
        if now < self.begins:
            return (
                f"{whose} begins on {self.begins:%Y-%m-%d %H:%M} UTC; is the clock of this "
                "machine right?"
            )
        return ""


def _items(der: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, begin and end of the content of each item of DER that lies there."""
    at = begin
    while at < end:
        tag, length = der[at], der[at + 1]
        at += 2
        if length >= 0x80:
            more = length & 0x7F
            if not 1 <= more <= 4:
                raise ValueError("a length of DER")
            length = int.from_bytes(der[at : at + more], "big")
            at += more
        if at + length > end:
            raise ValueError("an item of DER goes beyond its end")
        yield tag, at, at + length
        at += length


def _moment(tag: int, text: str) -> datetime:
    """The time of a certificate: years of two digits are of 1950 to 2049 (RFC 5280)."""
    if tag == _UTC_TIME:
        text = ("19" if text >= "5" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)


def _validity(der: bytes) -> tuple[datetime, datetime]:
    _, begin, end = next(_items(der, 0, len(der)))  # the certificate
    _, begin, end = next(_items(der, begin, end))  # what is signed of it
    fields = [item for item in _items(der, begin, end) if item[0] != _VERSION]
    tag, begin, end = fields[3]  # behind serial number, algorithm and issuer
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    first, last = [
        _moment(tag, der[begin:end].decode("ascii")) for tag, begin, end in _items(der, begin, end)
    ]
    return first, last


def read_certificate(pem: bytes) -> Certificate:
    """The first certificate of a text in PEM. Raises ValueError where there is none."""
    found = _FIRST.search(pem.decode("latin-1"))
    if not found:
        raise ValueError("no certificate in PEM")
    try:
        der = base64.b64decode(found[2])
        begins, ends = _validity(der)
    except (binascii.Error, IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"no certificate in PEM: {error}") from None
    for uri in _URI.finditer(der):
        if subject := _SUBJECT.fullmatch(der[uri.end() : uri.end() + uri[1][0]]):
            return Certificate(subject[1].decode(), subject[2].decode(), begins, ends)
    return Certificate("", "", begins, ends)
