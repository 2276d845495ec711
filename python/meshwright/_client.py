"""The client: submit jobs, find them, drive them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _files, _job_files
from ._channel import Channel
from ._job_files import JobFile, Overrides, Resolved
from ._jobs import Job, JobInfo
from ._proto import meshwright_pb2 as pb
from ._session import Session


@dataclass(frozen=True)
class WorkerInfo:
    """What the controller says of a worker."""

    name: str
    host: str
    state: str
    devices: int
    busy_devices: int
    memory_bytes: int
    address: str
    device_kind: str
    device_name: str
    data_roots: dict[str, str]
    checkpoint_roots: dict[str, str]
    note: str

    @staticmethod
    def of_wire(wire: Any) -> "WorkerInfo":
        """The info of a WorkerInfo of the wire."""
        return WorkerInfo(
            name=wire.name,
            host=wire.host,
            state=wire.state,
            devices=wire.devices,
            busy_devices=wire.busy_devices,
            memory_bytes=wire.memory_bytes,
            address=wire.address,
            device_kind=wire.device_kind or "cpu",
            device_name=wire.device_name,
            data_roots={root.name: root.path for root in wire.data_roots},
            checkpoint_roots={root.name: root.path for root in wire.checkpoint_roots},
            note=wire.note,
        )


@dataclass(frozen=True)
class ClusterInfo:
    """The controller, and how many jobs and workers are in which state."""

    cluster_id: str
    version: str
    jobs: dict[str, int]
    workers: dict[str, int]


class Client:
    """A connection to a controller; thread-safe. Times are seconds.

    address: None: $MESHWRIGHT_ADDRESS, else 127.0.0.1:7700. token: None: $MESHWRIGHT_TOKEN, else
    none. tls_dir: folder of the identity to show (docs/security.md), or with ca.pem alone to show
    the token over TLS; None: $MESHWRIGHT_TLS_DIR over a network, else in the clear. timeout: of
    every call that has no other. patience: `Job.follow` goes on over another connection when the
    controller dies or the network breaks, for so long. An address without a port, and a certificate
    that has ended or not begun, are refused at once.
    """

    def __init__(
        self,
        address: str | None = None,
        token: str | None = None,
        *,
        tls_dir: str | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
    ) -> None:
        self._channel = Channel(address, token, timeout, tls_dir)
        self._patience = patience

    @property
    def address(self) -> str:
        """Where the controller is asked."""
        return self._channel.address

    def close(self) -> None:
        """Ends all that is under way over this connection, sessions too."""
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(
        self,
        job: JobFile,
        set: Overrides | None = None,
        *,
        data_roots: Mapping[str, str] | None = None,
        upload: bool = False,
    ) -> Resolved:
        """What the controller makes of a job file, with all that is wrong with it. The files that
        it reads are sent."""
        return _job_files.resolve(self._channel, job, set or {}, data_roots or {}, upload)

    def submit(
        self,
        job: Any,
        set: Overrides | None = None,
        *,
        data_roots: Mapping[str, str] | None = None,
        upload: bool = False,
    ) -> Job:
        """A job of a job file (path), of a dict of its sections, or of the request of `resolve`.

        set: keys that count before those of the file: {"training.steps": 100}. data_roots: where
        this machine has the workers' data roots. upload: all files are uploaded, also those that
        workers could read in place. Raises JobFileErrors.
        """
        notes: list[str] = []
        if not isinstance(job, pb.JobRequest):
            resolved = self.resolve(job, set, data_roots=data_roots, upload=upload)
            job, notes = _job_files.check(resolved), resolved.notes
        request = pb.SubmitRequest(op_id=uuid.uuid4().hex, job=job)
        reply = self._channel.unary("Job.Submit", request, pb.SubmitReply)
        made = self.job(reply.job_id)
        made.notes = notes
        return made

    def open(
        self,
        job: Any,
        set: Overrides | None = None,
        *,
        open_timeout: float = 600.0,
        timeout: float = 60.0,
        reconnect: float = 60.0,
    ) -> Session:
        """Submits a job and drives it: returns when it runs. job: of `meshwright.graph.job`, or as
        `submit` takes it. timeout: of a call. reconnect: for so long a connection that broke is
        made again."""
        if not isinstance(job, pb.JobRequest):
            job = _job_files.check(self.resolve(job, set))
        return Session(
            self._channel,
            pb.SessionOpen(op_id=uuid.uuid4().hex, job=job),
            open_timeout=open_timeout,
            timeout=timeout,
            reconnect=reconnect,
        )

    def job(self, job_id: int) -> Job:
        """The job of an id. Whether there is one shows when it is asked."""
        return Job(self._channel, job_id, self._patience)

    def jobs(self) -> list[JobInfo]:
        """All jobs, newest first."""
        jobs: list[JobInfo] = []
        request = pb.ListJobsRequest()
        while True:
            reply = self._channel.unary("Job.List", request, pb.ListJobsReply)
            jobs += [JobInfo.of_wire(info) for info in reply.jobs]
            if not reply.truncated or not reply.jobs:
                return jobs
            request.before_id = jobs[-1].id

    def workers(self) -> list[WorkerInfo]:
        """All workers."""
        return [WorkerInfo.of_wire(worker) for worker in _files.workers_of(self._channel)]

    def cluster(self) -> ClusterInfo:
        """One cheap call: is there a controller, and does it know us?"""
        reply = self._channel.unary("Admin.State", pb.StateRequest(), pb.StateReply)
        return ClusterInfo(
            reply.cluster_id, reply.version, dict(reply.jobs), dict(reply.workers)
        )
