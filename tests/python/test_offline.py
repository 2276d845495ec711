"""What needs no controller."""

import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import meshwright
from meshwright import _ask_table, _files, _job_files, _reconnect, _tensors, _wire, graph
from meshwright._proto import meshwright_pb2 as pb

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Package(unittest.TestCase):
    def test_types_are_right(self) -> None:
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--cache-dir", cache],
                cwd=ROOT / "python",
                capture_output=True,
                text=True,
                timeout=300,
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_stubs_are_those_that_protoc_makes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [ROOT / "tools" / "make-python-stubs.sh", folder], check=True, timeout=60
            )
            made = sorted(os.listdir(folder))
            self.assertEqual(len(made), 4)
            for name in made:
                kept = ROOT / "python" / "meshwright" / "_proto" / name
                same = pathlib.Path(folder, name).read_bytes() == kept.read_bytes()
                self.assertTrue(same, f"{name} differs; run tools/make-python-stubs.sh")

    def test_everything_public_is_documented(self) -> None:
        modules = (meshwright, meshwright.graph, meshwright.checkpoints, meshwright.safetensors)
        for module in modules:
            self.assertTrue(module.__doc__)
            for name in getattr(module, "__all__", ["load", "Tensors"]):
                item = getattr(module, name)
                self.assertTrue(item.__doc__ or name == "News", name)
                members = vars(item) if isinstance(item, type) else {}
                for member, value in members.items():
                    if callable(value) and not member.startswith("_"):
                        self.assertTrue(value.__doc__, f"{name}.{member}")

    def test_it_is_installed_by_pip_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "source")
            shutil.copytree(ROOT / "python", source)
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                 "--no-build-isolation", "--disable-pip-version-check",
                 "--target", os.path.join(folder, "installed"), source],
                capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": "/nowhere"},
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            kept = {path.name for path in (ROOT / "python" / "meshwright").rglob("*.py*")}
            installed = pathlib.Path(folder, "installed", "meshwright")
            there = {path.name for path in installed.rglob("*") if path.suffix != ".pyc"}
            kept = {name for name in kept if not name.endswith(".pyc")}
            self.assertEqual(kept | {"py.typed"}, there & (kept | {"py.typed"}))

    def test_the_package_needs_three_others(self) -> None:
        text = (ROOT / "python" / "pyproject.toml").read_text()
        self.assertIn('dependencies = ["grpcio>=1.51", "numpy>=1.24", "protobuf>=4.21"]', text)


class Errors(unittest.TestCase):
    def test_a_message_is_a_cause_and_a_hint(self) -> None:
        error = meshwright.Error(meshwright.Code.NOT_FOUND, "there is no job 7; see client.jobs()")
        self.assertEqual((error.cause, error.hint), ("there is no job 7", "see client.jobs()"))
        self.assertEqual(str(error), "NOT_FOUND: there is no job 7; see client.jobs()")

    def test_a_hint_in_brackets_is_cut_without_them(self) -> None:
        for message, cause, hint in (
            ("no key 'a' (did you mean 'b'?)", "no key 'a'", "did you mean 'b'?"),
            ("no [a] (did you mean 'b'?); known: b", "no [a]", "did you mean 'b'?; known: b"),
            ("no [a] (did you mean 'b'?); not (c)", "no [a]", "did you mean 'b'?; not (c)"),
            ("'a' (it belongs to [b] (or c))", "'a'", "it belongs to [b] (or c)"),
            ("it is 0; at least 1 (or auto)", "it is 0", "at least 1 (or auto)"),
        ):
            with self.subTest(message):
                error = meshwright.Error(meshwright.Code.UNKNOWN, message)
                self.assertEqual((error.cause, error.hint), (cause, hint))

    def test_an_address_has_a_port(self) -> None:
        for address in (
            "10.0.0.2", "host", "host:", "host:x", ":77", "host:0", "host:65536", "a b:7", "[::1]",
            "::1:7000", "http://host:77", "dns:host", "dns:///host", "dns://1.1.1.1/host",
        ):  # fmt: skip
            with self.subTest(address):
                with self.assertRaises(meshwright.InvalidArgument) as refused:
                    meshwright.Client(address)
                self.assertIn(f"'{address}' is no address", refused.exception.cause)
                self.assertIn("HOST:PORT", refused.exception.hint)
        for address in (
            "10.0.0.2:7700", "host.name:1", "[::1]:7700", "unix:/tmp/x", "dns:host:7700",
            "dns:///host:7700", "dns://1.1.1.1/host:7700", "ipv4:10.0.0.2:7700",
        ):  # fmt: skip
            with self.subTest(address):
                meshwright.Client(address).close()

    def test_an_error_of_a_device_says_where(self) -> None:
        from meshwright._errors import error_of_wire

        error = error_of_wire(
            pb.RuntimeError(
                kind=pb.ERROR_STEP_FAILED, code=13, worker="w1", device=0, step=7, instruction=42,
                message="loss is no number",
            )
        )  # fmt: skip
        self.assertEqual((error.worker, error.device, error.step), ("w1", 0, 7))
        self.assertEqual((error.instruction, error.kind), (42, "StepFailed"))
        unknown = error_of_wire(pb.RuntimeError(code=99, device=-1, step=-1, instruction=-1))
        self.assertEqual(unknown.code, meshwright.Code.UNKNOWN)
        self.assertIsNone(unknown.instruction)


class Wire(unittest.TestCase):
    def test_frames_are_those_of_protobuf(self) -> None:
        parts = [b"abc", b"", bytes(range(200)), b"z"]
        whole = b"".join(parts)
        for chunk in (1, 3, 100, 1 << 20):
            frames = list(_wire.cut_to_frames(list(parts), chunk))
            decoded = [pb.Frame.FromString(frame) for frame in frames]
            self.assertEqual(b"".join(frame.data for frame in decoded), whole)
            self.assertEqual([frame.last for frame in decoded], [False] * (len(frames) - 1) + [True])
            joiner = _wire.FrameJoiner(1000)
            joined = [joiner.add(frame.SerializeToString()) for frame in decoded]
            self.assertEqual(joined[:-1], [None] * (len(frames) - 1))
            self.assertEqual(bytes(joined[-1]), whole)
        self.assertEqual(list(_wire.cut_to_frames([], 10)), [b"\x0a\x00\x10\x01"])

    def test_a_message_that_is_too_long_is_refused(self) -> None:
        joiner = _wire.FrameJoiner(10)
        with self.assertRaises(ValueError):
            joiner.add(pb.Frame(data=b"x" * 11).SerializeToString())

    def test_damaged_messages_are_refused(self) -> None:
        whole = pb.ClientDown(done=pb.AskDone(id=300, step=7)).SerializeToString()
        for end in range(1, len(whole)):
            with self.subTest(end), self.assertRaises((ValueError, IndexError)):
                list(_wire.fields(memoryview(whole[:end])))
        with self.assertRaises(ValueError):
            _wire.read_varint(memoryview(b"\xff" * 12), 0)


class Tensors(unittest.TestCase):
    def named(self, value: object, dtype: str | None = None) -> pb.NamedTensor:
        known = meshwright.TensorType(dtype, np.shape(value)) if dtype else None
        parts, size = _tensors.encode({"x": value}, {"x": known} if known else {}, 3)
        self.assertEqual(size, len(parts[-1]))
        return pb.CallProgram.FromString(b"".join(parts)).inputs[0]

    def test_every_type_goes_there_and_back(self) -> None:
        for kind, name in (
            ("float32", "f32"), ("float64", "f64"), ("float16", "f16"), ("int32", "i32"),
            ("int64", "i64"), ("bool", "bool"),
        ):  # fmt: skip
            array = (np.arange(6).reshape(2, 3) % 2).astype(kind)
            wire = self.named(array)
            self.assertEqual((wire.dtype, list(wire.dims)), (name, [2, 3]))
            back = _tensors.from_bytes(wire.dtype, list(wire.dims), wire.data)
            np.testing.assert_array_equal(back, array)
        self.assertEqual(self.named(np.arange(4, dtype=">i4")).data, np.arange(4, dtype="<i4").tobytes())
        self.assertEqual(self.named(np.ones((4, 4), np.float32).T[::2]).dims, [2, 4])

    def test_bf16_is_rounded_to_even(self) -> None:
        values = [1.0, 1.00390625, 1.01171875, -3.5, float("inf"), float("nan"), 3.4e38]
        wire = self.named(np.array(values, np.float32), "bf16")
        back = _tensors.from_bytes("bf16", [len(values)], wire.data)
        expected = [1.0, 1.0, 1.015625, -3.5, np.inf, np.nan, np.inf]
        np.testing.assert_array_equal(back, np.array(expected, np.float32))

    def test_values_are_not_changed_in_silence(self) -> None:
        self.assertEqual(self.named([1, 2], "f32").dtype, "f32")
        self.assertEqual(self.named(np.array([1, 2]), "i32").dtype, "i32")
        for value, dtype in (
            (np.array([1 << 40]), "i32"), (np.array([1.5]), "i32"), (np.array(["a"]), "f32"),
        ):  # fmt: skip
            with self.subTest(dtype), self.assertRaises((meshwright.InvalidArgument, ValueError)):
                self.named(value, dtype)
        with self.assertRaises(meshwright.InvalidArgument):
            self.named(np.zeros(3, np.complex64))

    def tile(self, whole: np.ndarray, *place: slice) -> memoryview:
        block = whole[place]
        bounds = [part.indices(n)[:2] for part, n in zip(place, whole.shape)]
        tile = pb.TensorTile(
            name="t", dtype="f32", dims=whole.shape, offset=[a for a, _ in bounds],
            size=block.shape, data=block.tobytes(),
        )  # fmt: skip
        return memoryview(bytearray(tile.SerializeToString()))

    def test_tiles_become_whole(self) -> None:
        whole = np.arange(24, dtype=np.float32).reshape(4, 6)
        tiles = [
            self.tile(whole, slice(a, a + 2), slice(b, b + 3)) for a in (0, 2) for b in (0, 3)
        ]
        np.testing.assert_array_equal(_tensors.assemble(tiles)["t"], whole)
        with self.assertRaises(meshwright.Error):
            _tensors.assemble(tiles[:3])
        with self.assertRaises(meshwright.Error):
            _tensors.assemble([*tiles[:3], tiles[0]] + tiles[3:])

    def test_a_whole_tile_is_a_view(self) -> None:
        whole = np.arange(24, dtype=np.float32).reshape(4, 6)
        view = self.tile(whole, slice(0, 4), slice(0, 6))
        array = _tensors.assemble([view])["t"]
        self.assertTrue(np.shares_memory(array, np.frombuffer(view, np.uint8)))
        self.assertTrue(array.flags.writeable)


class Asks(unittest.TestCase):
    def table(self, count: int) -> _ask_table.AskTable:
        from concurrent.futures import Future

        table = _ask_table.AskTable()
        for _ in range(count):
            table.add(_ask_table.Ask(2, pb.CallProgram(program="p"), [], Future()))
        return table

    def test_what_did_not_arrive_is_repeated_in_order(self) -> None:
        table = self.table(4)
        table.answered(2, 0)
        self.assertEqual(table.to_repeat([2, 3]), [1, 4])
        sent = pb.ClientUp.FromString(b"".join(table.message_of(1)))
        self.assertEqual((sent.call.id, list(sent.call.acked)), (1, [2]))
        self.assertIsNone(table.answered(2, 0))

    def test_large_answers_are_acknowledged_at_once(self) -> None:
        table = self.table(2)
        table.answered(1, 10)
        self.assertIsNone(table.due_acks())
        table.answered(2, 1 << 20)
        self.assertEqual(list(pb.ClientUp.FromString(b"".join(table.due_acks())).ack.ids), [1, 2])
        self.assertIsNone(table.due_acks())


class Reconnecting(unittest.TestCase):
    def test_pauses_double_until_patience_is_over(self) -> None:
        now = [0.0]
        reconnect = _reconnect.Reconnect(10, lambda: now[0])
        self.assertEqual(reconnect.pause_after(True), 0)
        pauses = []
        while (pause := reconnect.pause_after(False)) is not None:
            pauses.append(pause)
            now[0] += pause
        self.assertEqual(pauses[:7], [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0])
        self.assertGreaterEqual(now[0], 10)
        self.assertEqual(reconnect.pause_after(True), 0)


class JobFiles(unittest.TestCase):
    def test_a_dict_is_toml(self) -> None:
        import tomllib

        job = {
            "job": {"name": 'a "b"\\\n\x7f é'},
            "training": {"steps": 3, "lr": 1e-05, "on": True, "list": ["a", "b"]},
        }
        self.assertEqual(tomllib.loads(_job_files.toml_of(job)), job)
        with self.assertRaises(meshwright.InvalidArgument):
            _job_files.toml_of({"training": {"steps": None}})
        with self.assertRaises(meshwright.InvalidArgument):
            _job_files.toml_of({"steps": 3})

    def test_files_that_a_job_names(self) -> None:
        from meshwright._proto import resolve_pb2

        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.bin", "a.idx", "b.bin", ".hidden", "config.json", "model.safetensors"):
                pathlib.Path(folder, name).write_text(name)

            def found(path: str, kind: int, weights: bool = False) -> list[str]:
                wanted = resolve_pb2.WantedFiles(path=path, kind=kind, weights=weights)
                files = _files.find(wanted, ["/nowhere", folder])
                return sorted(os.path.basename(file) for file in files)

            data, model, weights = 0, 1, 2
            self.assertEqual(found("*.bin", data), ["a.bin", "a.idx", "b.bin"])
            self.assertEqual(found("a", data), ["a.bin", "a.idx"])
            self.assertEqual(found("c", data), [])
            self.assertNotIn(".hidden", found(".", data))
            self.assertEqual(found(".", model), ["config.json"])
            self.assertEqual(found(".", model, True), ["config.json", "model.safetensors"])
            self.assertEqual(found("config.json", model, True), ["config.json"])
            self.assertEqual(found(".", weights), ["model.safetensors"])

    def test_a_root_holds_a_file_if_all_ready_workers_have_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "deep"))
            path = os.path.join(folder, "deep", "x")
            pathlib.Path(path).write_text("x")
            outside = tempfile.NamedTemporaryFile()
            os.symlink(outside.name, os.path.join(folder, "link"))
            roots = [pb.DataRoot(name="data", path=folder)]
            one = pb.WorkerInfo(state="READY", data_roots=roots)
            two = pb.WorkerInfo(state="READY")
            self.assertEqual(
                _files.DataRoots.of([one, one], {}).find(path), ("data", os.path.join("deep", "x"))
            )
            self.assertIsNone(_files.DataRoots.of([one, two], {}).find(path))
            lost = pb.WorkerInfo(state="LOST")
            self.assertIsNotNone(_files.DataRoots.of([one, lost], {}).find(path))
            link = os.path.join(folder, "link")
            self.assertIsNone(_files.DataRoots.of([one], {}).find(link))
            outside.close()


class Safetensors(unittest.TestCase):
    def test_the_vector_of_the_format(self) -> None:
        header = (
            b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
            b'"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}'
        )
        data = np.arange(4, dtype="<f4").tobytes() + struct.pack("<3H", 0x3F80, 0x4000, 0xC040)
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(struct.pack("<Q", len(header)) + header + data)
            file.flush()
            tensors = meshwright.safetensors.load(file.name)
            np.testing.assert_array_equal(tensors["a"], [[0, 1], [2, 3]])
            np.testing.assert_array_equal(tensors["b"], [1, 2, -3])
            self.assertEqual(list(tensors), ["a", "b"])
            self.assertEqual(tensors.metadata, {"format": "pt"})
            file.truncate(8 + len(header) + 10)
            with self.assertRaises(meshwright.Error):
                meshwright.safetensors.load(file.name)["a"]

    def test_another_file_is_refused(self) -> None:
        for content in (b"", b"\xff" * 20, struct.pack("<Q", 4) + b"nope"):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                with self.assertRaises((meshwright.Error, ValueError)):
                    meshwright.safetensors.load(file.name)


class Checkpoints(unittest.TestCase):
    def test_boxes_become_whole(self) -> None:
        whole = np.arange(12, dtype="<f4").reshape(3, 4)
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder, "step-00000020")
            at.mkdir()
            (at / "a").write_bytes(b"pad." + whole[:2].tobytes())
            (at / "b").write_bytes(whole[2:].tobytes())
            boxes = [
                {"at": [0, 0], "size": [2, 4], "file": 0, "begin": 4, "digests": []},
                {"at": [2, 0], "size": [1, 4], "file": 1, "begin": 0, "digests": []},
            ]
            manifest = {
                "format": "meshwright-checkpoint/1", "step": 20, "cause": "end", "layout": "",
                "saved_unix_ms": 5, "files": [{"name": "a"}, {"name": "b"}],
                "tensors": {
                    "w": {"dtype": "f32", "shape": [3, 4], "kind": "weights", "boxes": boxes}
                },
            }  # fmt: skip
            (at / "manifest.json").write_text(json.dumps(manifest))
            checkpoint = meshwright.checkpoints.open(folder)
            self.assertEqual(checkpoint.step, 20)
            np.testing.assert_array_equal(checkpoint["w"], whole)
            self.assertEqual(meshwright.checkpoints.steps(folder), [20])
            with self.assertRaises(meshwright.NotFound):
                meshwright.checkpoints.open(folder, 30)
            with self.assertRaises(meshwright.NotFound) as elsewhere:
                meshwright.checkpoints.open("gpt-bytes/7", step=40)
            self.assertIn("no folder gpt-bytes/7 on this machine", elsewhere.exception.cause)
            self.assertIn("client.job(ID).checkpoint(STEP)", elsewhere.exception.hint)
            self.assertIn("`meshwright checkpoint export ID", elsewhere.exception.hint)
            manifest["format"] = "meshwright-checkpoint/9"
            (at / "manifest.json").write_text(json.dumps(manifest))
            with self.assertRaises(meshwright.Error):
                meshwright.checkpoints.open(at)


class Graphs(unittest.TestCase):
    def test_the_text_is_that_of_the_grammar(self) -> None:
        x = graph.Input("x", "f32", (4, 2))
        made = graph.program("p", [x], lambda g, x: {"y": g.linear(x, "up", 3)})
        self.assertEqual(
            made.graph,
            'graph "p" {\n'
            '  %0 = feed {source="x"} : f32[4,2]\n'
            '  %1 = param {decay=1, export_name="up.weight", init="normal", mean=0.0, '
            'name="up.weight", std=0.02} : f32[2,3]\n'
            '  %2 = einsum(%0, %1) {equation="ay,yz->az"} : f32[4,3]\n'
            '  %3 = param {decay=0, export_name="up.bias", init="zeros", name="up.bias"} : f32[3]\n'
            "  %4 = add(%2, %3) : f32[4,3]\n"
            '  output "y" %4\n'
            "}\n",
        )

    def test_what_cannot_be_is_said_where_it_is_written(self) -> None:
        g = graph.Graph("g")
        x = g.fill((2, 3), 1.0)
        for wrong in (
            lambda: g.add(x, g.fill((2, 4), 1.0)),
            lambda: g.einsum("ab,bc->ad", x, x),
            lambda: g.reshape(x, (4, 2)),
            lambda: g.transpose(x, (0, 0)),
            lambda: g.slice(x, 1, 2, 2),
            lambda: g.reduce_sum(x, [2]),
            lambda: g.add(x, g.iota(3)),
            lambda: g.add(x, graph.Graph("other").fill((3,), 1.0)),
            lambda: [g.param("w", (1,)), g.param("w", (1,))],
            lambda: graph.program("p", [], lambda g: {}),
        ):
            with self.assertRaises(meshwright.InvalidArgument):
                wrong()

    def test_python_prints_nothing(self) -> None:
        out = io.StringIO()
        print(graph.Graph("g").fill((2,), 1.0), file=out)
        self.assertIn("dtype", out.getvalue())


class Import(unittest.TestCase):
    def test_every_name_is_there_and_only_loaded_when_it_is_used(self) -> None:
        for name in meshwright.__all__:
            self.assertIsNotNone(getattr(meshwright, name), name)
        self.assertLessEqual(set(meshwright.__all__), set(dir(meshwright)))
        with self.assertRaises(AttributeError):
            meshwright.nothing  # noqa: B018
        code = "import sys, meshwright; sys.exit(any(m in sys.modules for m in ('numpy', 'grpc')))"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], timeout=60).returncode, 0)
