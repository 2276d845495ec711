"""A client that shows a certificate."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import meshwright
from cluster import BINARY
from meshwright import Client, Code


class Certificates(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tls = self.folder / "tls"
        self.run_command("cert", "init", "--dir", str(self.tls))
        self.run_command(
            "cert", "issue", "viewer", "bob", "--dir", str(self.tls), "--out", str(self.tls / "bob")
        )
        read, write = os.pipe()
        self.controller = subprocess.Popen(
            [
                BINARY, "--tls-dir", str(self.tls / "controller"), "controller", "--port", "0",
                "--metrics-port", "-1", "--state-dir", str(self.folder / "state"),
                "--ready-fd", str(write),
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

    def test_a_key_that_others_can_read_is_refused(self) -> None:
        (self.tls / "bob" / "key.pem").chmod(0o644)
        with self.assertRaisesRegex(meshwright.Error, "has mode 0644"):
            Client(self.address, tls_dir=str(self.tls / "bob"))


if __name__ == "__main__":
    unittest.main()
