"""Client of Meshwright: submit jobs, follow them, drive them with NumPy arrays.

    from meshwright import Client

    job = Client().submit("job.toml", {"training.steps": 100})
    for news in job.follow():
        print(news)

Models of your own: `meshwright.graph`. Checkpoints: `meshwright.checkpoints`. See README.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._actors import ActorFate, ActorNews, ActorRef, Actors
from ._client import Client, ClusterInfo, WorkerInfo
from ._errors import (
    Code,
    DeadlineExceeded,
    Error,
    InvalidArgument,
    JobFailed,
    JobFileError,
    JobFileErrors,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from ._job_files import Resolved
from ._jobs import Event, Job, JobInfo, JobState, News, StateChange, Step
from ._session import Answer, Session, TensorType

if TYPE_CHECKING:
    from . import checkpoints, graph, safetensors

__version__ = "0.1.0"

_MODULES = ("checkpoints", "graph", "safetensors")

__all__ = [
    "ActorFate",
    "ActorNews",
    "ActorRef",
    "Actors",
    "Answer",
    "Client",
    "ClusterInfo",
    "Code",
    "DeadlineExceeded",
    "Error",
    "Event",
    "InvalidArgument",
    "Job",
    "JobFailed",
    "JobFileError",
    "JobFileErrors",
    "JobInfo",
    "JobState",
    "News",
    "NotFound",
    "Resolved",
    "Session",
    "StateChange",
    "Step",
    "TensorType",
    "Unauthenticated",
    "Unavailable",
    "WorkerInfo",
    "checkpoints",
    "graph",
    "safetensors",
]


def __getattr__(name: str) -> Any:
    # Who only submits jobs does not wait for these.
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
