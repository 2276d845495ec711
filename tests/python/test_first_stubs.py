"""A client with the stubs of the first version, against the controller of today.

first_stubs/ is what python/meshwright/_proto was when the package was new. It is not made again: who
changes the wire so that this fails has broken the clients that people have installed.
"""

import os
import subprocess
import sys
import unittest

CODE = """
import importlib.util, sys

# Before the package reads its own.
for name in ("meshwright_pb2", "resolve_pb2"):
    full = "meshwright._proto." + name
    spec = importlib.util.spec_from_file_location(full, f"first_stubs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    import meshwright._proto
    spec.loader.exec_module(module)
    setattr(meshwright._proto, name, module)
import meshwright._client
assert "first_stubs" in meshwright._client.pb.__file__, meshwright._client.pb.__file__
import unittest
names = [
    "test_jobs.Jobs.test_a_dict_is_submitted_and_followed",
    "test_jobs.Jobs.test_all_errors_of_a_file_come_at_once",
    "test_sessions.Sessions.test_a_classifier_learns",
    "test_sessions.Sessions.test_the_state_is_read_and_written",
    "test_sessions.Sessions.test_actors_are_spawned_asked_and_watched",
]
sys.path.insert(0, ".")
suite = unittest.defaultTestLoader.loadTestsFromNames(names)
sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
"""


class FirstStubs(unittest.TestCase):
    def test_a_client_of_the_first_version_works(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            timeout=200,
            cwd=os.path.dirname(os.path.abspath(__file__)),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
