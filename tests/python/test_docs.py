"""What docs/python.md and python/README.md show, run as it stands there."""

import contextlib
import io
import os
import pathlib
import re
import unittest

import numpy as np
from cluster import JOB, Cluster, with_keys

import meshwright
from meshwright import Client
from meshwright._job_files import toml_of

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(path: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(1)
        cls.addClassCleanup(cls.cluster.stop)
        cls.before = os.getcwd()
        os.chdir(cls.cluster.data)
        os.environ["MESHWRIGHT_ADDRESS"] = cls.cluster.address
        # A small job under the name of the example.
        os.mkdir("examples")
        example = with_keys(
            JOB, job={"name": "gpt-bytes"}, checkpoint={"enable": True, "interval": 50}
        )
        example["training"]["dataset_path"] = "../text.txt"
        pathlib.Path("examples/gpt-bytes.toml").write_text(toml_of(example))

    @classmethod
    def tearDownClass(cls) -> None:
        del os.environ["MESHWRIGHT_ADDRESS"]
        os.chdir(cls.before)

    def test_every_block_runs(self) -> None:
        random = np.random.default_rng(0)
        x = random.standard_normal((32, 4)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int32)
        with Client() as client:
            names = {"client": client, "meshwright": meshwright, "x": x, "batches": [(x, y)] * 3}
            pages = blocks("python/README.md") + blocks("docs/python.md")
            self.assertEqual(len(pages), 5)
            for block in pages:
                jobs = client.jobs()
                if "checkpoint" in block:
                    trained = next(job for job in jobs if job.name == "gpt-bytes")
                    block = block.replace("client.job(7)", f"client.job({trained.id})")
                    block = block.replace(
                        '"model.safetensors"', repr(f"{trained.directory}/model.safetensors")
                    )
                with self.subTest(block), contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(block, "the page", "exec"), names)  # noqa: S102
            self.assertEqual([job.state.name for job in client.jobs()], ["SUCCEEDED"] * 3)


if __name__ == "__main__":
    unittest.main()
