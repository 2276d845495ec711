"""Sessions: programs of one's own, called with arrays."""

import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
from cluster import ACTOR_WORKER, JOB, Cluster

import meshwright
from meshwright import ActorFate, Client, Code, graph

ROWS = [graph.Input("x", "f32", (32, 4)), graph.Input("y", "i32", (32,))]


def logits(g: graph.Graph, x: graph.Value) -> graph.Value:
    return g.linear(g.gelu(g.linear(x, "up", 16)), "head", 3)


def iris(**settings: dict) -> graph.OwnJob:
    train = graph.trained(ROWS, lambda g, x, y: g.cross_entropy(logits(g, x), y))
    predict = graph.program("predict", ROWS[:1], lambda g, x: {"logits": logits(g, x)})
    return graph.job(
        "iris", [train, predict], batch=32, settings={"optimizer": {"lr": 0.05}, **settings}
    )


def rows(step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(step)
    x = random.standard_normal((32, 4)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0)}


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(3, "--worker-binary", ACTOR_WORKER)
        cls.addClassCleanup(cls.cluster.stop)
        cls.client = Client(cls.cluster.address)

        cls.shared = cls.client.open(iris())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.shared.close()
        cls.client.close()

    def test_a_classifier_learns(self) -> None:
        with self.client.open(iris()) as session:
            self.assertEqual(session.programs["predict"]["x"].dims, (32, 4))
            losses = [session.run("step", rows(step)).values["loss"] for step in range(60)]
            self.assertLess(losses[-1], 0.7 * losses[0])
            fed = rows(1)
            answer = session.run("predict", {"x": fed["x"]})
            self.assertEqual(answer.tensors["logits"].shape, (32, 3))
            right = (answer.tensors["logits"].argmax(1) == fed["y"]).mean()
            self.assertGreater(right, 0.7)
            job_id = session.job_id
        info = self.client.job(job_id).wait(timeout=60)
        self.assertIs(info.state, meshwright.JobState.SUCCEEDED)

    def test_layouts_give_the_same_numbers(self) -> None:
        losses = {}
        for degree in (1, 2):
            keys = {"data_parallel_replicate_degree": degree, "tensor_parallel_degree": 1}
            with self.client.open(iris(parallelism=keys)) as session:
                losses[degree] = [
                    session.run("step", rows(step)).values["loss"] for step in range(4)
                ]
        np.testing.assert_allclose(losses[1], losses[2], rtol=1e-5)

    def test_many_calls_are_under_way_at_once(self) -> None:
        session = self.shared
        futures = [session.call("step", rows(step)) for step in range(20)]
        steps = [future.result(60).step for future in futures]
        self.assertEqual(steps, sorted(steps))

    def test_the_state_is_read_and_written(self) -> None:
        session = self.shared
        session.run("step", rows(0))
        state = session.read_state()
        self.assertEqual(state["up.weight"].shape, (4, 16))
        moments = session.read_state(["opt.m/up.weight"])
        self.assertEqual(moments["opt.m/up.weight"].shape, (4, 16))
        session.write_state({"head.weight": np.zeros((16, 3), np.float32)})
        answer = session.run("predict", {"x": rows(0)["x"]})
        bias = session.read_state(["head.bias"])["head.bias"]
        expected = np.broadcast_to(bias, (32, 3))
        np.testing.assert_allclose(answer.tensors["logits"], expected, atol=1e-6)

    def test_what_is_larger_than_a_message_travels_in_pieces(self) -> None:
        big = [graph.Input("x", "f32", (1024, 4096))]
        double = graph.program("double", big, lambda g, x: {"y": x * 2.0})
        x = np.arange(1024 * 4096, dtype=np.float32).reshape(1024, 4096)
        with self.client.open(graph.job("big", [double], batch=1024)) as session:
            y = session.run("double", {"x": x}).tensors["y"]
            np.testing.assert_array_equal(y, x * 2)
            y[0, 0] = 7  # it is the caller's
            again = session.run("double", {"x": x}, fetch=False)
            self.assertEqual(again.tensors, {})

    def test_more_than_a_call_takes_is_refused_here(self) -> None:
        session = self.shared
        with self.assertRaises(meshwright.Error) as caught:
            session.write_state({"up.weight": np.zeros((64 << 20) // 4 + 1, np.float32)})
        self.assertEqual(caught.exception.code, Code.RESOURCE_EXHAUSTED)

    def test_what_is_wrong_with_a_call_is_its_answer(self) -> None:
        session = self.shared
        with self.assertRaises(meshwright.NotFound):
            session.run("nothing", {})
        with self.assertRaises(meshwright.InvalidArgument) as caught:
            session.run("predict", {"x": np.zeros((3, 4), np.float32)})
        self.assertIn("[32, 4]", str(caught.exception))
        with self.assertRaises(meshwright.Error):
            session.run("predict", {})
        session.run("step", rows(0))  # it goes on

    def test_another_client_attaches_to_a_job(self) -> None:
        with self.client.open(iris()) as session:
            with Client(self.cluster.address) as other:
                with other.job(session.job_id).attach() as second:
                    answer = second.run("predict", {"x": rows(0)["x"]})
                    self.assertEqual(answer.tensors["logits"].shape, (32, 3))
            session.run("step", rows(0))

    def test_outputs_stay_on_the_devices(self) -> None:
        x = graph.Input("x", "f32", (32, 4))
        h = graph.Input("h", "f32", (32, 8), of=("encode", "hidden"))
        encode = graph.program(
            "encode", [x], lambda g, x: {"hidden": g.gelu(g.linear(x, "up", 8))}
        )
        decode = graph.program(
            "decode", [h], lambda g, h: {"sum": g.reduce_sum(h, [0, 1]), "h": h}
        )
        with self.client.open(graph.job("two", [encode, decode], batch=32)) as session:
            hidden = session.run("encode", {"x": rows(0)["x"]}).tensors["hidden"]
            answer = session.run("decode")
            np.testing.assert_array_equal(answer.tensors["h"], hidden)
            self.assertAlmostEqual(answer.values["sum"], float(hidden.sum()), places=3)

    def test_actors_are_spawned_asked_and_watched(self) -> None:
        session = self.shared
        actors = session.actors
        adder = actors.spawn("adder", b"10")
        answers = [actors.ask(adder, str(n).encode()) for n in (1, 2, 3)]
        self.assertEqual([answer.result(30) for answer in answers], [b"11", b"13", b"16"])
        actors.tell(adder, b"4").result(30)
        self.assertEqual(actors.ask(adder, b"0").result(30), b"20")
        echo = actors.spawn("echo", worker=adder.worker)
        kept = actors.ask(echo, b"keep", timeout=0.2)
        self.assertIsInstance(kept.exception(30), meshwright.DeadlineExceeded)
        news = actors.watch(echo)
        failed = actors.ask(echo, b"fail").exception(30)
        self.assertEqual(failed.code, Code.ABORTED)
        self.assertIs(news.result(30).fate, ActorFate.RESTARTED)
        self.assertIsInstance(actors.ask(echo, b"x").exception(30), meshwright.NotFound)
        again = news.result().next
        self.assertEqual(actors.ask(again, b"x").result(30), b"x")
        stopped = actors.watch(again)
        actors.stop(again)
        self.assertIs(stopped.result(30).fate, ActorFate.STOPPED)
        with self.assertRaises(meshwright.NotFound):
            actors.spawn("no such type")

    def test_a_job_that_trains_is_asked_between_its_steps(self) -> None:
        before = os.getcwd()
        os.chdir(self.cluster.data)
        try:
            job = self.client.submit(JOB, {"training.steps": 100000})
        finally:
            os.chdir(before)
        with job.attach() as session:
            window = np.frombuffer(b"The quick brown f", np.uint8).astype(np.int32)[None, :]
            answer = session.run("predict", {"window": window})
            self.assertEqual(answer.tensors["logits"].shape, (1, 16, 256))
        job.stop()

    def test_what_goes_wrong_on_a_device_ends_the_session_with_its_cause(self) -> None:
        with self.client.open(iris()) as session:
            self.client.job(session.job_id).stop()
            with self.assertRaises(meshwright.Error) as caught:
                for step in range(1000):
                    session.run("step", rows(step))
            self.assertIn(caught.exception.code, (Code.CANCELLED, Code.FAILED_PRECONDITION))


class Interrupted(unittest.TestCase):
    """Ctrl-C returns at once, whatever is waited for."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(1)
        cls.addClassCleanup(cls.cluster.stop)

    def interrupt(self, body: str) -> None:
        code = (
            "import sys, time\nfrom meshwright import Client, graph\n"
            f"client = Client('{self.cluster.address}')\n" + body
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.cluster.data,
        )
        try:
            self.assertEqual(process.stdout.readline(), "waiting\n")
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            _, errors = process.communicate(timeout=20)
            took = time.monotonic() - began
        finally:
            process.kill()
            process.wait()
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertLess(took, 2, "it did not return at once")

    def test_a_call_to_a_controller_that_hangs(self) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            self.interrupt(
                f"client = Client('127.0.0.1:{port}', timeout=60)\nprint('waiting', flush=True)\n"
                "client.cluster()\n"
            )

    def test_following_a_job(self) -> None:
        self.interrupt(
            "job = client.submit({'training': {'dataset_path': 'text.txt', 'seq_len': 16,"
            " 'steps': 100000}, 'model': {'dim': 32, 'n_heads': 4, 'n_layers': 1,"
            " 'vocab_size': 256}, 'parallelism': {'data_parallel_replicate_degree': 7}})\n"
            "print('waiting', flush=True)\nfor news in job.follow(): pass\n"
        )

    def test_waiting_for_a_session(self) -> None:
        self.interrupt(
            "x = graph.Input('x', 'f32', (8, 2))\n"
            "p = graph.program('p', [x], lambda g, x: {'y': x * 2.0})\n"
            "job = graph.job('j', [p], batch=8,"
            " settings={'parallelism': {'data_parallel_replicate_degree': 4}})\n"
            "print('waiting', flush=True)\nclient.open(job)\n"
        )


class BrokenConnection(unittest.TestCase):
    def test_calls_go_on_over_the_next_connection(self) -> None:
        from cuttable import Proxy

        cluster = Cluster(1)
        try:
            with Proxy(cluster.address) as proxy, Client(proxy.address) as client:
                with client.open(iris()) as session:
                    steps = []
                    for step in range(30):
                        futures = [session.call("step", rows(step)) for _ in range(3)]
                        if step in (5, 15):
                            proxy.cut()
                        steps += [future.result(60).step for future in futures]
                    self.assertEqual(steps, list(range(steps[0], steps[0] + 90)))
        finally:
            cluster.stop()

    def test_a_controller_that_is_gone_for_good_ends_the_session(self) -> None:
        cluster = Cluster(1)
        try:
            with Client(cluster.address) as client:
                session = client.open(iris(), reconnect=0.5)
                session.run("step", rows(0))
                cluster.kill_controller()
                with self.assertRaises(meshwright.Unavailable):
                    session.run("step", rows(1))
                session.abandon()
        finally:
            cluster.stop()


if __name__ == "__main__":
    unittest.main()
