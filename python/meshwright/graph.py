"""Models of your own: programs written as formulas, sent as the text form of graphs.

    from meshwright import Client, graph

    def logits(g, x):
        return g.linear(g.gelu(g.linear(x, "up", 64)), "head", 3)

    rows = [graph.Input("x", "f32", (32, 4)), graph.Input("y", "i32", (32,))]
    train = graph.trained(rows, lambda g, x, y: g.cross_entropy(logits(g, x), y))
    predict = graph.program("predict", rows[:1], lambda g, x: {"logits": logits(g, x)})
    job = graph.job("iris", [train, predict], batch=32)

    with Client().open(job) as session:
        answer = session.run("step", {"x": x, "y": y})      # answer.values["loss"]
        answer = session.run("predict", {"x": x})           # answer.tensors["logits"]

A weight is the same in every program that names it. What a graph means is checked by the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._errors import refuse
from ._ops import Graph, Value
from ._proto import meshwright_pb2 as pb

__all__ = ["Graph", "Input", "OwnJob", "Program", "Value", "job", "program", "trained"]


@dataclass(frozen=True)
class Input:
    """A named, typed input of a program. Its first dim is that of the batch, unless batch is False:
    then there is one value for the whole step.

    of: it is what another program gave out when it was last called: ("encode", "hidden").
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    batch: bool = True
    of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Program:
    """A program of a job, as `program` and `trained` make it. graph: its text."""

    name: str
    graph: str
    inputs: tuple[Input, ...]
    trained: bool = False

    def to_wire(self) -> Any:
        """The JobProgram of the wire."""
        wire = pb.JobProgram(name=self.name, graph=self.graph, trained=self.trained)
        for each in self.inputs:
            if each.of is None:
                wire.inputs.add(name=each.name, from_client=True)
            else:
                source = pb.ProgramOutput(program=each.of[0], name=each.of[1])
                wire.inputs.add(name=each.name, from_output=source)
        return wire


def _fed(graph: Graph, inputs: Sequence[Input]) -> list[Value]:
    names = [each.name for each in inputs]
    if len(set(names)) != len(names):
        refuse(f"program '{graph.name}' has an input twice: {', '.join(names)}")
    return [graph.feed(each.name, each.dtype, each.dims, each.batch) for each in inputs]


def program(
    name: str,
    inputs: Sequence[Input],
    body: Callable[..., Mapping[str, Value]],
    dtype: str = "f32",
) -> Program:
    """A program. body: takes the graph and a value for each input, and returns what the program
    gives out: scalars are reported, tensors go to who asks. dtype: of what the graph makes."""
    graph = Graph(name, dtype)
    outputs = body(graph, *_fed(graph, inputs))
    for output, value in outputs.items():
        graph.set_output(output, value)
    if not graph.outputs:
        refuse(f"program '{name}' gives nothing out; return a dict with something")
    return Program(name, graph.text(), tuple(inputs))


def trained(
    inputs: Sequence[Input],
    body: Callable[..., tuple[Value, Value]],
    dtype: str = "f32",
) -> Program:
    """The program that a job trains. body returns the sum of the losses and how many they are, as
    `Graph.cross_entropy` does; what it names by `Graph.set_output` is reported with every step."""
    graph = Graph("loss", dtype)
    loss_sum, count = body(graph, *_fed(graph, inputs))
    graph.set_output("loss_sum", loss_sum)
    graph.set_output("count", count)
    return Program("loss", graph.text(), tuple(inputs), trained=True)


@dataclass(frozen=True)
class OwnJob:
    """A job of programs of one's own, as `job` makes it; `Client.open` takes it."""

    name: str
    programs: tuple[Program, ...]
    settings: Mapping[str, Mapping[str, Any]]
    grace: int

    def to_wire(self) -> Any:
        """Its programs and driver, as a JobRequest of the wire."""
        request = pb.JobRequest(name=self.name)
        request.programs.extend(each.to_wire() for each in self.programs)
        request.driver.kind = "client"
        request.driver.grace_s = self.grace
        return request


def job(
    name: str,
    programs: Sequence[Program],
    *,
    batch: int,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    grace: int = 60,
) -> OwnJob:
    """A job that a session drives, for `Client.open`.

    batch: rows of the inputs of its first program. settings: sections and keys of a job file
    (docs/config.md): {"optimizer": {"lr": 0.01}, "parallelism": {"tensor_parallel_degree": 2}}.
    grace: seconds that it waits for a client that was lost.
    """
    sections = {section: dict(keys) for section, keys in (settings or {}).items()}
    sections.setdefault("job", {}).setdefault("name", name)
    training = sections.setdefault("training", {})
    training.setdefault("global_batch_size", batch)
    training.setdefault("seq_len", 1)
    return OwnJob(name, tuple(programs), sections, grace)
