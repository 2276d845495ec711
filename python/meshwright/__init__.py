"""Client of Meshwright: submit jobs, follow them, drive them with NumPy arrays.

    from meshwright import Client

    job = Client().submit("job.toml", {"training.steps": 100})
    for news in job.follow():
        print(news)

Models of your own: `meshwright.graph`. Checkpoints: `meshwright.checkpoints`. See README.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import checkpoints, graph, safetensors
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

__version__ = "0.1.0"

_MODULES = ("checkpoints", "graph", "safetensors")
_NAMES = {
    "_actors": ("ActorFate", "ActorNews", "ActorRef", "Actors"),
    "_client": ("Client", "ClusterInfo", "WorkerInfo"),
    "_errors": (
        "Code",
        "DeadlineExceeded",
        "Error",
        "InvalidArgument",
        "JobFailed",
        "JobFileError",
        "JobFileErrors",
        "NotFound",
        "Unauthenticated",
        "Unavailable",
    ),
    "_job_files": ("Resolved",),
    "_jobs": ("Event", "Job", "JobInfo", "JobState", "News", "StateChange", "Step"),
    "_session": ("Answer", "Session", "TensorType"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

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
    # What is not used is not waited for: protobuf and NumPy take longer to load than many a call.
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
