"""A client with the stubs of the first version, against the controller of today.

first_stubs/ is what python/meshwright/_proto was when the package was new. It is not made again: who
changes the wire so that this fails has broken the clients that people have installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TESTS = [
    "test_jobs.Jobs.test_a_dict_is_submitted_and_followed",
    "test_jobs.Jobs.test_all_errors_of_a_file_come_at_once",
    "test_sessions.Sessions.test_a_classifier_learns",
    "test_sessions.Sessions.test_the_state_is_read_and_written",
    "test_sessions.Sessions.test_actors_are_spawned_asked_and_watched",
]


class FirstStubs(unittest.TestCase):
    def test_a_client_of_the_first_version_works(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "meshwright")
            shutil.copytree(HERE.parents[1] / "python" / "meshwright", package)
            for stub in (HERE / "first_stubs").glob("*_pb2.py"):
                shutil.copy(stub, package / "_proto")
            done = subprocess.run(
                [sys.executable, "-m", "unittest", *TESTS],
                capture_output=True,
                text=True,
                timeout=200,
                cwd=HERE,
                env={**os.environ, "PYTHONPATH": folder},
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
