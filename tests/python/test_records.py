"""The event files of `meshwright records`, read by TensorBoard itself."""

import csv
import json
import os
import pathlib
import unittest

from cluster import JOB, Cluster, with_keys

try:
    import tbparse
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    if os.environ.get("CI") == "true":
        raise
    event_accumulator = None

STEPS = 6


@unittest.skipIf(event_accumulator is None, "tensorboard is not installed (tools/install-python.sh)")
class RecordsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.folder = pathlib.Path(cls.cluster.folder)
        cls._submit(cls.cluster, "first", 0.001)
        cls._submit(cls.cluster, "second", 0.01)

    @staticmethod
    def _submit(cluster: Cluster, name: str, lr: float) -> None:
        job = with_keys(
            JOB,
            job={"name": name},
            optimizer={"lr": lr},
            validation={"interval": 3, "batches": 1},
            metrics={"tensorboard_dir": os.path.join(cluster.folder, "live")},
        )
        text = ""
        for section, keys in job.items():
            text += f"[{section}]\n"
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        path = pathlib.Path(cluster.data, f"{name}.toml")
        path.write_text(text)
        cluster.command("submit", "--address", cluster.address, str(path))

    def _command(self, *args: str) -> str:
        return self.cluster.command(*args, "--address", self.cluster.address)

    def _read(self, folder: pathlib.Path) -> event_accumulator.EventAccumulator:
        events = event_accumulator.EventAccumulator(str(folder))
        events.Reload()
        return events

    def _check(self, folder: pathlib.Path) -> list[dict]:
        """What TensorBoard reads is what metrics.jsonl says."""
        steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], list(range(STEPS)))
        events = self._read(folder)
        parsed = tbparse.SummaryReader(str(folder)).scalars
        self.assertEqual(events.file_version, 2.0)
        for tag, key in [
            ("loss_metrics/global_avg_loss", "loss"),
            ("grad_norm", "grad_norm"),
            ("lr", "lr"),
            ("time_metrics/end_to_end(s)", "seconds"),
        ]:
            scalars = events.Scalars(tag)
            self.assertEqual([each.step for each in scalars], list(range(1, STEPS + 1)), tag)
            for each, step in zip(scalars, steps, strict=True):
                self.assertAlmostEqual(each.value, step[key], delta=1e-6 * abs(step[key]), msg=tag)
            table = parsed[parsed["tag"] == tag]
            self.assertEqual(list(table["step"]), [each.step for each in scalars], tag)
            self.assertEqual(list(table["value"]), [each.value for each in scalars], tag)
        self.assertEqual([each.step for each in events.Scalars("validation_metrics/loss")], [3, 6])
        self.assertEqual(events.Scalars("n_tokens_seen")[-1].value, STEPS * 8 * 16)
        self.assertGreater(events.Scalars("tflops")[-1].value, 0)
        times = [each.wall_time for each in events.Scalars("lr")]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 1.7e9)
        return steps

    def test_tensorboard_reads_what_records_writes(self) -> None:
        out = self._command("records", "1", "--to", str(self.folder / "tb"),
                            "--format", "tensorboard,jsonl,csv")  # fmt: skip
        self.assertIn("6 steps of job 1", out)
        steps = self._check(self.folder / "tb" / "first-1")
        with open(self.folder / "tb" / "first-1" / "metrics.csv") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([float(row["loss"]) for row in rows], [step["loss"] for step in steps])
        self.assertEqual(rows[0]["validation_loss"], "")

    def test_tensorboard_reads_what_submit_writes_as_steps_come(self) -> None:
        self._check(self.folder / "live" / "first-1")
        self._check(self.folder / "live" / "second-2")

    def test_again_replaces_and_both_runs_are_beside_each_other(self) -> None:
        for job in ("1", "2", "2"):
            self._command("records", job, "--to", str(self.folder / "both"), "--follow")
        for run in ("first-1", "second-2"):
            self.assertEqual(len(list((self.folder / "both" / run).glob("events.out.*"))), 1)
            self.assertEqual(len(self._read(self.folder / "both" / run).Scalars("lr")), STEPS)

    def test_compare_of_jobs_and_of_files_says_the_same(self) -> None:
        for job in ("1", "2"):
            self._command("records", job, "--to", str(self.folder / "c"), "--format", "jsonl")
        picture = self.folder / "curves.svg"
        jobs = json.loads(self._command("compare", "1", "2", "-o", "json", "--svg", str(picture)))
        files = json.loads(
            self.cluster.command("compare", "-o", "json", str(self.folder / "c" / "first-1"),
                                 str(self.folder / "c" / "second-2" / "metrics.jsonl"))
        )  # fmt: skip
        self.assertEqual(jobs["changed_keys"], {"optimizer.lr": ["0.001", "0.01"]})
        self.assertEqual(files["changed_keys"], jobs["changed_keys"])
        self.assertEqual(files["at_steps"], jobs["at_steps"])
        self.assertEqual(len(jobs["at_steps"]), STEPS)
        self.assertEqual(jobs["runs"][0]["devices"], 1)
        self.assertIn("<polyline", picture.read_text())
        self.assertIn("optimizer.lr", self._command("compare", "1", "2"))

    def test_what_cannot_be_written_is_said(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "job 99"):
            self._command("records", "99", "--to", str(self.folder))
        with self.assertRaisesRegex(RuntimeError, "text.txt"):
            self._command("records", "1", "--to", os.path.join(self.cluster.data, "text.txt"))
        with self.assertRaisesRegex(RuntimeError, "has no steps"):
            self._command("compare", "1", os.path.join(self.cluster.data, "text.txt"))


if __name__ == "__main__":
    unittest.main()
