"""Jobs: submitted, followed, stopped, paused, and what is wrong with them."""

import json
import os
import pathlib
import shutil
import struct
import tempfile
import time
import unittest

from cluster import JOB, Cluster, with_keys

import meshwright
from meshwright import Client, Code, Event, JobState, StateChange, Step, graph
from meshwright._files import fetch, is_here
from meshwright._proto import meshwright_pb2 as pb

ROOT = pathlib.Path(__file__).resolve().parents[2]


def every_op() -> graph.Program:
    """A program with each method of the builder."""
    inputs = [
        graph.Input("x", "f32", (4, 6)),
        graph.Input("ids", "i32", (4,)),
        graph.Input("image", "f32", (4, 8, 8, 3)),
        graph.Input("q", "f32", (4, 8, 4, 2)),
        graph.Input("kv", "f32", (4, 8, 2, 2)),
        graph.Input("tokens", "i32", (4, 8)),
        graph.Input("one", "f32", (1, 6), batch=False),
    ]

    def body(g, x, ids, image, q, kv, tokens, one):
        out = [x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, x**2, -x, x @ g.param("w", (6, 5))]
        out += [x + x, x + one, one + x, x - one, one - x, x * one, x / one]
        for name in ("abs", "sign", "exp", "relu", "tanh", "sigmoid", "softplus", "gelu", "erf",
                     "gelu_erf", "silu", "square", "stop_gradient", "softmax", "log_softmax",
                     "logsumexp", "neg"):  # fmt: skip
            out.append(getattr(g, name)(x))
        positive = g.exp(x)
        out += [g.log(positive), g.sqrt(positive), g.rsqrt(positive), g.pow(positive, x)]
        out += [g.maximum(x, one), g.minimum(x, one)]
        flags = [x > 0, x < 0, x >= one, x <= one, g.equal(x, one), g.not_equal(x, one)]
        both = g.logical_and(flags[0], flags[1])
        out.append(g.where(g.logical_or(both, g.logical_not(flags[2])), x, one))
        out += [g.cast(flag, "f32") for flag in flags]
        out += [g.slice(x, -1, 1, 2), g.pad(x, 1, 1, 2), g.concat([x, x], 1)]
        out += [g.reshape(x, (2, -1)), g.transpose(x, (1, 0)), g.broadcast_to(one, (4, 6))]
        out += [g.reduce_sum(x, [0]), g.reduce_mean(x, [1], keep_dims=True)]
        out += [g.reduce_max(x, [-1]), g.reduce_min(x, [0, 1])]
        out += [g.top_k(x, 2)[0], g.cast(g.argmax(x, 0), "f32"), g.one_hot(ids, 6)]
        out += [g.gather(x, g.reshape(ids, (4, 1)), 1), g.cast(g.iota(3), "f32")]
        out += [g.uniform(x, "u"), g.normal(x, "n"), g.cast(g.bernoulli(g.sigmoid(x), "b"), "f32")]
        out += [g.cast(g.categorical(x, "c"), "f32"), g.dropout(x, 0.1, "d")]
        g.layer = 0
        out += [g.linear(x, "up", 3), g.layer_norm(x, "ln"), g.rms_norm(x, "rms")]
        out += [g.embedding(ids, "table", 10, 5), g.rotary(q)]
        g.layer = 1
        out += [g.attention(q, kv, kv), g.attention(q, kv, kv, causal=False)]
        out.append(g.attention(q, kv, kv, window=3, segments=g.segments(tokens, 0)))
        out.append(g.attention(q, kv, kv, dropout=0.1, name="probabilities"))
        out.append(g.conv2d(image, "conv", (3, 3), 5, strides=(2, 2), padding=(1, 1, 1, 1)))
        out += [g.max_pool(image, (2, 2), (2, 2)), g.avg_pool(image, (2, 2))]
        loss, count = g.cross_entropy(x, ids)
        return {"loss": loss, "count": count} | {f"y{i}": value for i, value in enumerate(out)}

    return graph.program("all", inputs, body)


def write_safetensors(path: pathlib.Path, tensors: dict) -> None:
    """A file of float32 tensors."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        offsets = [at, at + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(2)
        cls.addClassCleanup(cls.cluster.stop)
        cls.client = Client(cls.cluster.address)
        cls.before = os.getcwd()
        os.chdir(cls.cluster.data)

    @classmethod
    def tearDownClass(cls) -> None:
        os.chdir(cls.before)
        cls.client.close()

    def test_a_dict_is_submitted_and_followed(self) -> None:
        job = self.client.submit(JOB)
        news = list(job.follow(timeout=120))
        steps = [each for each in news if isinstance(each, Step)]
        self.assertEqual([step.step for step in steps], list(range(6)))
        self.assertLess(steps[-1].loss, steps[0].loss)
        self.assertGreater(steps[0].tokens, 0)
        states = [each.state for each in news if isinstance(each, StateChange)]
        self.assertEqual(states[-1], JobState.SUCCEEDED)
        self.assertIsInstance(news[-1], StateChange)
        self.assertTrue(all(isinstance(each, (Step, Event, StateChange)) for each in news))
        info = job.wait(timeout=10)
        self.assertEqual((info.name, info.steps_done, info.steps), ("small", 6, 6))
        self.assertEqual(job.metrics(), steps)
        self.assertIn(job.id, [each.id for each in self.client.jobs()])
        self.assertTrue(any("layout" in line or line for line in job.logs()))

    def test_the_loss_is_that_of_the_command_line(self) -> None:
        path = pathlib.Path("job.toml")
        path.write_text(
            "[job]\nname = \"small\"\n[model]\nname = \"gpt2\"\ndim = 32\nn_layers = 2\n"
            "n_heads = 4\nvocab_size = 256\n[training]\ndataset_path = \"text.txt\"\n"
            "global_batch_size = 8\nseq_len = 16\nsteps = 6\nseed = 3\n"
            "[parallelism]\ndata_parallel_replicate_degree = 1\n[metrics]\nlog_freq = 1\n"
        )
        ours = self.client.submit(path).wait(timeout=120)
        self.cluster.command("submit", "job.toml", "--address", self.cluster.address)
        theirs = self.client.jobs()[0]
        self.assertNotEqual(ours.id, theirs.id)
        self.assertEqual(ours.loss, theirs.loss)

    def test_data_is_read_in_place_or_uploaded(self) -> None:
        in_place = self.client.resolve(JOB).request.data.streams[0].files[0]
        self.assertEqual(in_place.path, "text.txt")
        self.assertNotEqual(in_place.root, "")
        sent = self.client.resolve(JOB, upload=True)
        self.assertEqual(sent.request.data.streams[0].files[0].root, "")
        self.assertEqual(len(sent.request.data.streams[0].files[0].sha256), 64)
        self.assertEqual(self.client.submit(sent.request).wait(timeout=120).steps_done, 6)

    def test_examples_are_resolved(self) -> None:
        for name in ("gpt-bytes", "llama-bytes", "moe-bytes"):
            with self.subTest(name):
                resolved = self.client.resolve(
                    ROOT / "examples" / f"{name}.toml", {"training.dataset_path": "text.txt"}
                )
                self.assertEqual(resolved.errors, [])
                self.assertNotEqual(resolved.summary, "")

    def test_a_hugging_face_folder_is_sent_with_its_weights(self) -> None:
        trained = self.client.submit(JOB, {"training.steps": 40})
        last = trained.wait(timeout=120).loss
        weights = trained.weights()
        folder = pathlib.Path("hf")
        folder.mkdir()
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 16}
        dropouts = {f"{name}_pdrop": 0.0 for name in ("embd", "attn", "resid")}
        config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes, **dropouts}
        (folder / "config.json").write_text(json.dumps(config))
        job = with_keys(JOB, model={"hf_path": "hf"}, training={"steps": 1})
        for key in ("name", "dim", "n_layers", "n_heads", "vocab_size"):
            del job["model"][key]
        with self.subTest("the configuration alone"):
            resolved = self.client.resolve(job)
            self.assertEqual(resolved.errors, [])
            self.assertEqual(resolved.request.init_weights.sha256, "")
            self.assertIn("no model.safetensors", "".join(resolved.notes))
        with self.subTest("one file"):
            shutil.copy(weights.path, folder / "model.safetensors")
            begun = self.client.submit(job)
            self.assertLess(begun.wait(timeout=120).loss, last + 0.5)
            os.remove(folder / "model.safetensors")
        with self.subTest("shards"):
            names = sorted(weights)
            index = {}
            for i, part in enumerate((names[::2], names[1::2])):
                file = f"model-{i + 1:05d}-of-00002.safetensors"
                write_safetensors(folder / file, {name: weights[name] for name in part})
                index.update({name: file for name in part})
            text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index})
            (folder / "model.safetensors.index.json").write_text(text)
            again = self.client.submit(job).wait(timeout=120)
            self.assertEqual(again.loss, begun.info().loss)
        with self.subTest("weights that do not fit"):
            (folder / "config.json").write_text(json.dumps({**config, "n_embd": 64}))
            resolved = self.client.resolve(job)
            self.assertEqual(len(resolved.errors), 1)
            self.assertEqual(resolved.errors[0].key, "model.hf_path")

    def test_all_errors_of_a_file_come_at_once(self) -> None:
        wrong = with_keys(JOB, training={"stepz": 3, "seq_len": 0}, modl={"x": 1})
        with self.assertRaises(meshwright.JobFileErrors) as caught:
            self.client.submit(wrong, {"optimizer.lr": "high"})
        errors = {error.key: error for error in caught.exception.errors}
        self.assertEqual(set(errors), {"training.stepz", "training.seq_len", "modl", "optimizer.lr"})
        self.assertEqual(errors["training.stepz"].hint, "did you mean 'steps'?")
        self.assertRegex(errors["modl"].hint, r"^did you mean 'model'\?; known: job, model, ")
        self.assertGreater(errors["training.stepz"].line, 0)
        self.assertEqual(errors["optimizer.lr"].line, 0)
        self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT)

    def test_a_model_and_its_data_are_judged_together(self) -> None:
        wrong = with_keys(JOB, model={"vocab_size": 100}, training={"dataset_path": "none.txt"})
        resolved = self.client.resolve(wrong)
        self.assertIsNone(resolved.request)
        keys = [error.key for error in resolved.errors]
        self.assertEqual(sorted(keys), ["model.vocab_size", "training.dataset_path"])
        self.assertIn(
            os.path.join(self.cluster.data, "none.txt"),
            "".join(error.message for error in resolved.errors),
        )

    def test_the_environment_counts_as_it_does_for_the_command_line(self) -> None:
        os.environ["MESHWRIGHT__TRAINING__STEPS"] = "4"
        try:
            self.assertEqual(self.client.resolve(JOB).request.train.steps, 4)
            again = self.client.resolve(JOB, {"training.steps": 5})
            self.assertEqual(again.request.train.steps, 5)
        finally:
            del os.environ["MESHWRIGHT__TRAINING__STEPS"]

    def test_every_op_has_the_type_that_the_controller_finds(self) -> None:
        made = self.client.resolve(graph.job("all", [every_op()], batch=4))
        self.assertEqual([str(error) for error in made.errors], [])
        self.assertEqual(made.request.driver.kind, "client")

    def test_a_graph_that_is_wrong_is_refused_by_the_controller(self) -> None:
        def wrong(g: graph.Graph, x: graph.Value) -> dict[str, graph.Value]:
            return {"y": g.node("tanh", [x], [("f32", (5, 5))])[0]}

        x = graph.Input("x", "f32", (4, 4))
        made = self.client.resolve(graph.job("wrong", [graph.program("p", [x], wrong)], batch=4))
        self.assertEqual(len(made.errors), 1)
        self.assertIn("tanh", made.errors[0].message)

    def test_a_job_is_stopped(self) -> None:
        job = self.client.submit(JOB, {"training.steps": 1000000})
        for news in job.follow(timeout=120):
            if isinstance(news, Step):
                break
        job.stop()
        with self.assertRaises(meshwright.JobFailed) as caught:
            job.wait(timeout=60)
        self.assertEqual(caught.exception.job.state, JobState.CANCELLED)
        self.assertEqual(caught.exception.code, Code.CANCELLED)

    def test_a_job_is_paused_and_resumed_and_its_checkpoint_read(self) -> None:
        import numpy as np

        job = self.client.submit(
            JOB, {"training.steps": 300, "checkpoint.enable": True, "checkpoint.interval": 1000}
        )
        for news in job.follow(timeout=120):
            if isinstance(news, Step) and news.step >= 3:
                break
        job.pause()
        due = time.monotonic() + 60
        while job.info().state is not JobState.PAUSED and time.monotonic() < due:
            time.sleep(0.05)
        self.assertIs(job.info().state, JobState.PAUSED)
        step = job.checkpoints()[0]
        checkpoint = job.checkpoint()
        self.assertEqual((checkpoint.step, checkpoint.cause), (step, "pause"))
        name = "transformer.wte.weight"
        self.assertIn(name, checkpoint.weights())
        self.assertEqual(checkpoint[name].shape, (256, 32))
        self.assertEqual(checkpoint[name].dtype, np.float32)
        self.assertTrue(np.isfinite(checkpoint[name]).all())
        self.assertEqual(checkpoint["opt.m/" + name].shape, (256, 32))
        job.resume()
        info = job.wait(timeout=120)
        self.assertEqual(info.steps_done, 300)
        weights = meshwright.safetensors.load(os.path.join(info.directory, "model.safetensors"))
        last = job.checkpoint()
        self.assertEqual(last.step, 300)
        np.testing.assert_array_equal(weights[name], last[name])

    def test_checkpoints_with_the_controller_are_read(self) -> None:
        job = self.client.submit(
            JOB,
            {
                "checkpoint.enable": True,
                "checkpoint.interval": 3,
                "checkpoint.root": "controller",
                "parallelism.data_parallel_replicate_degree": 2,
            },
        )
        info = job.wait(timeout=120)
        self.assertEqual(job.checkpoints(), [6, 3])
        weights = meshwright.safetensors.load(os.path.join(info.directory, "model.safetensors"))
        checkpoint = job.checkpoint(6)
        self.assertEqual(job.weights().path, weights.path)  # this machine is the controller's
        remote = meshwright.checkpoints.Checkpoint(
            meshwright.checkpoints._Remote(self.client._channel, job.id, 6)
        )
        blob = self.client._channel.unary("Job.Describe", job._request, pb.JobDescription).weights
        fetched = meshwright.safetensors.Tensors("fetched", fetch(self.client._channel, blob))
        self.assertEqual(sorted(fetched), sorted(weights))
        name = "transformer.wte.weight"
        for each in (checkpoint, remote, fetched):
            self.assertTrue((each[name] == weights[name]).all())
        for name in checkpoint:
            self.assertTrue((remote[name] == checkpoint[name]).all(), name)
        with open("other", "wb") as other:
            other.write(bytes(blob.size_bytes))
        self.assertFalse(is_here(self.client._channel, blob, "other"))

    def test_errors_say_what_to_do(self) -> None:
        with self.assertRaises(meshwright.NotFound):
            self.client.job(99999).info()
        with self.assertRaises(meshwright.NotFound):
            self.client.submit("no-such-file.toml")
        nobody = Client("127.0.0.1:1", timeout=5)
        with self.assertRaises(meshwright.Unavailable) as caught:
            nobody.cluster()
        self.assertIn("meshwright up", caught.exception.hint)
        self.assertIn("127.0.0.1:1", caught.exception.cause)
        nobody.close()
        with self.assertRaises(meshwright.Error) as refused:
            self.client.submit(JOB).pause()
        self.assertEqual(refused.exception.code, Code.FAILED_PRECONDITION)

    def test_workers_and_the_cluster(self) -> None:
        self.assertEqual([worker.name for worker in self.client.workers()], ["worker-0", "worker-1"])
        self.assertNotEqual(self.client.cluster().cluster_id, "")


class Token(unittest.TestCase):
    def test_a_wrong_token_is_refused(self) -> None:
        token = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "token")
        token.write_text("secret\n")
        token.chmod(0o600)
        cluster = Cluster(1, "--token-file", str(token))
        try:
            with Client(cluster.address, "wrong") as wrong:
                with self.assertRaises(meshwright.Unauthenticated):
                    wrong.jobs()
            with Client(cluster.address, "secret") as right:
                self.assertEqual(right.jobs(), [])
        finally:
            cluster.stop()


class AcrossARestart(unittest.TestCase):
    def test_following_goes_on_when_the_controller_is_back(self) -> None:
        cluster = Cluster(1, keep=True)
        before = os.getcwd()
        os.chdir(cluster.data)
        try:
            client = Client(cluster.address)
            job = client.submit(JOB, {"training.steps": 400})
            steps = []
            for news in job.follow(timeout=120):
                if isinstance(news, Step):
                    steps.append(news.step)
                    if news.step == 5:
                        cluster.kill_controller()
            self.assertEqual(steps, list(range(400)))
            client.close()
        finally:
            os.chdir(before)
            cluster.stop()


if __name__ == "__main__":
    unittest.main()
