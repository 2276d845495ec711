"""Client of Meshwright: submit jobs, follow them, drive them with NumPy arrays.

    from meshwright import Client

    job = Client().submit("job.toml", {"training.steps": 100})
    for news in job.follow():
        print(news)

Models of your own: `meshwright.graph`. Checkpoints: `meshwright.checkpoints`. See README.md.
"""

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
]
