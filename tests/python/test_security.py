"""A client that shows a certificate."""

import base64
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import tempfile
import unittest
from datetime import datetime, timedelta, timezone

import meshwright
from cluster import BINARY
from meshwright import Client, Code
from meshwright._certificate import _moment, read_certificate
from meshwright._identity import load_identity

TOKEN = "a-token-of-an-operator-of-this-test"


def with_validity(pem: str, begins: datetime, ends: datetime) -> str:
    """The certificate with other times, and so with a signature that is none."""
    times = [f"{moment:%y%m%d%H%M%SZ}".encode() for moment in (begins, ends)]
    made, count = re.subn(
        rb"\x17\x0d\d{12}Z\x17\x0d\d{12}Z",
        b"\x17\x0d" + times[0] + b"\x17\x0d" + times[1],
        ssl.PEM_cert_to_DER_cert(pem),
    )
    assert count == 1
    return ssl.DER_cert_to_PEM_cert(made)


class Certificates(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tls = self.folder / "tls"
        self.run_command("cert", "init", "--dir", str(self.tls))
        self.run_command(
            "cert", "issue", "viewer", "bob", "--dir", str(self.tls), "--out", str(self.tls / "bob")
        )
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        read, write = os.pipe()
        self.controller = subprocess.Popen(
            [
                BINARY, "--tls-dir", str(self.tls / "controller"), "controller", "--port", "0",
                "--metrics-port", "-1", "--state-dir", str(self.folder / "state"),
                "--ready-fd", str(write), "--token-file", str(token),
            ],
            pass_fds=[write],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(write)
        with os.fdopen(read) as ready:
            self.address = f"127.0.0.1:{ready.readline().split()[0]}"

    def tearDown(self) -> None:
        self.controller.terminate()
        self.controller.wait(30)

    def run_command(self, *args: str) -> None:
        subprocess.run([BINARY, *args], check=True, capture_output=True, timeout=60)

    def test_roles_say_what_a_client_may(self) -> None:
        with Client(self.address, tls_dir=str(self.tls / "operator")) as client:
            self.assertEqual(client.jobs(), [])
        with Client(self.address, tls_dir=str(self.tls / "bob")) as viewer:
            self.assertEqual(viewer.jobs(), [])
            with self.assertRaises(meshwright.Error) as refused:
                viewer.job(1).stop()
            self.assertEqual(refused.exception.code, Code.PERMISSION_DENIED)
            self.assertIn("viewer 'bob'", str(refused.exception))
        with Client(self.address, timeout=5) as nobody:
            with self.assertRaisesRegex(meshwright.Unavailable, "speaks TLS, and this was said"):
                nobody.jobs()
        self.run_command("cert", "init", "--dir", str(self.folder / "other"))
        stranger = str(self.folder / "other" / "operator")
        with Client(self.address, tls_dir=stranger, timeout=5) as foreign:
            with self.assertRaisesRegex(meshwright.Unavailable, "has not signed"):
                foreign.jobs()
        with self.assertRaisesRegex(meshwright.NotFound, "there is no .*ca.pem"):
            Client(self.address, tls_dir=str(self.folder / "nowhere"))
        with self.assertRaisesRegex(meshwright.InvalidArgument, "name a folder"):
            Client(self.address, tls_dir=str(self.tls / "bob" / "cert.pem"))

    def test_a_key_that_others_can_read_is_refused(self) -> None:
        (self.tls / "bob" / "key.pem").chmod(0o644)
        with self.assertRaisesRegex(meshwright.Error, "has mode 0644"):
            Client(self.address, tls_dir=str(self.tls / "bob"))

    def identity_of(self, begins: datetime, ends: datetime) -> str:
        """A folder with bob's identity, whose certificate has these times."""
        folder = self.folder / "changed"
        shutil.copytree(self.tls / "bob", folder, dirs_exist_ok=True)
        pem = (self.tls / "bob" / "cert.pem").read_text()
        (folder / "cert.pem").write_text(with_validity(pem, begins, ends))
        return str(folder)

    def test_a_certificate_that_does_not_hold_is_refused_before_it_is_shown(self) -> None:
        now, day = datetime.now(timezone.utc), timedelta(days=1)
        ended = f"{now - day:%Y-%m-%d %H:%M} UTC"
        with self.assertRaises(meshwright.Error) as old:
            Client(self.address, tls_dir=self.identity_of(now - 9 * day, now - day))
        self.assertEqual(old.exception.code, Code.FAILED_PRECONDITION)
        self.assertIn(f"the certificate of viewer 'bob' ended on {ended}", old.exception.cause)
        self.assertIn("`meshwright cert issue viewer bob`", old.exception.hint)
        with self.assertRaisesRegex(meshwright.Error, "'bob' begins on .* is the clock"):
            Client(self.address, tls_dir=self.identity_of(now + day, now + 9 * day))
        (self.folder / "changed" / "cert.pem").write_text("nothing")
        with self.assertRaisesRegex(meshwright.InvalidArgument, "cert.pem has no certificate"):
            Client(self.address, tls_dir=str(self.folder / "changed"))

    def test_a_certificate_that_ends_while_it_is_used_is_named(self) -> None:
        now, day = datetime.now(timezone.utc), timedelta(days=1)
        with Client(self.address, tls_dir=str(self.tls / "bob"), timeout=5) as client:
            client.jobs()
            self.controller.terminate()
            self.controller.wait(30)
            old = read_certificate(
                with_validity(
                    (self.tls / "bob" / "cert.pem").read_text(), now - 9 * day, now - day
                ).encode()
            )
            object.__setattr__(client._channel._identity, "certificate", old)
            with self.assertRaisesRegex(meshwright.Unavailable, "viewer 'bob' ended on"):
                client.jobs()

    def test_a_token_is_shown_over_tls_with_the_authority_alone(self) -> None:
        alone = self.folder / "caonly"
        alone.mkdir()
        shutil.copy(self.tls / "bob" / "ca.pem", alone)
        with Client(self.address, TOKEN, tls_dir=str(alone)) as client:
            self.assertEqual(client.jobs(), [])
        with Client(self.address, "wrong", tls_dir=str(alone)) as wrong:
            with self.assertRaises(meshwright.Unauthenticated):
                wrong.jobs()
        self.run_command("cert", "init", "--dir", str(self.folder / "other"))
        shutil.copy(self.folder / "other" / "operator" / "ca.pem", alone)
        with Client(self.address, TOKEN, tls_dir=str(alone), timeout=5) as foreign:
            with self.assertRaisesRegex(meshwright.Unavailable, "has not signed"):
                foreign.jobs()
        for one, other in (("cert.pem", "key.pem"), ("key.pem", "cert.pem")):
            shutil.copy(self.tls / "bob" / one, alone)
            with self.assertRaisesRegex(meshwright.NotFound, f"there is no .*{other}"):
                Client(self.address, TOKEN, tls_dir=str(alone))
            (alone / one).unlink()

    def test_certificates_are_read_as_ssl_reads_them(self) -> None:
        chain = (self.tls / "bob" / "cert.pem").read_bytes()
        authority = (self.tls / "ca" / "ca.pem").read_bytes()
        context = ssl.create_default_context(cafile=str(self.tls / "ca" / "ca.pem"))
        (known,) = context.get_ca_certs()
        read = read_certificate(authority)
        self.assertEqual(read.role, "")
        self.assertEqual(read.begins.timestamp(), ssl.cert_time_to_seconds(known["notBefore"]))
        self.assertEqual(read.ends.timestamp(), ssl.cert_time_to_seconds(known["notAfter"]))
        first = read_certificate(b"text before\n" + chain.replace(b"\n", b"\r\n") + authority)
        self.assertEqual((first.role, first.name), ("viewer", "bob"))
        self.assertEqual(_moment(0x17, "490102030405Z").year, 2049)
        self.assertEqual(_moment(0x17, "500102030405Z").year, 1950)
        self.assertEqual(_moment(0x18, "20500102030405Z").year, 2050)
        self.assertNotIn("PRIVATE", repr(load_identity(str(self.tls / "bob"))))

    def test_damaged_certificates_are_refused(self) -> None:
        der = ssl.PEM_cert_to_DER_cert((self.tls / "bob" / "cert.pem").read_text())
        for end in range(len(der)):
            with self.subTest(end), self.assertRaises(ValueError):
                read_certificate(ssl.DER_cert_to_PEM_cert(der[:end]).encode())
        for at in range(len(der)):
            for bit in range(8):
                changed = bytearray(der)
                changed[at] ^= 1 << bit
                text = base64.encodebytes(changed)
                try:
                    read_certificate(
                        b"-----BEGIN CERTIFICATE-----" + text + b"-----END CERTIFICATE-----"
                    )
                except ValueError:
                    pass


if __name__ == "__main__":
    unittest.main()
