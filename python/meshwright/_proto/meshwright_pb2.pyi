from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

ACTOR_EVENT_FAILED: ActorEventKind
ACTOR_EVENT_STARTED: ActorEventKind
ACTOR_EVENT_STOPPED: ActorEventKind
ACTOR_EVENT_UNSPECIFIED: ActorEventKind
ACTOR_FATE_GAVE_UP: ActorFate
ACTOR_FATE_RESTARTED: ActorFate
ACTOR_FATE_STOPPED: ActorFate
ACTOR_FATE_UNSPECIFIED: ActorFate
DESCRIPTOR: _descriptor.FileDescriptor
ERROR_CANCELLED: ErrorKind
ERROR_CONNECT_FAILED: ErrorKind
ERROR_CONTROLLER_RESTARTED: ErrorKind
ERROR_CONTROLLER_STOPPED: ErrorKind
ERROR_DIVERGED: ErrorKind
ERROR_EXECUTOR_LOST: ErrorKind
ERROR_INFEASIBLE: ErrorKind
ERROR_INTERNAL: ErrorKind
ERROR_LOAD_FAILED: ErrorKind
ERROR_NONE: ErrorKind
ERROR_PLAN_FAILED: ErrorKind
ERROR_PROTOCOL: ErrorKind
ERROR_QUEUE_TIMEOUT: ErrorKind
ERROR_REFUSED: ErrorKind
ERROR_SAVE_FAILED: ErrorKind
ERROR_STALLED: ErrorKind
ERROR_STEP_FAILED: ErrorKind
ERROR_STORE_FAILED: ErrorKind
ERROR_WORKER_LOST: ErrorKind
ERROR_WORKER_STOPPED: ErrorKind
JOB_STATE_CANCELLED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_PAUSED: JobState
JOB_STATE_PLANNING: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_RECOVERING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_STARTING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_UNSPECIFIED: JobState
STORY_FORM_TABLE: StoryForm
STORY_FORM_TABLE_JSON: StoryForm
STORY_FORM_TRACE: StoryForm
STORY_FORM_WHY: StoryForm
STORY_FORM_WHY_JSON: StoryForm
TOLD_PROGRAM: ToldKind
TOLD_READ: ToldKind
TOLD_RESTORE: ToldKind
TOLD_SAVE: ToldKind
TOLD_WRITE: ToldKind
WORKER_ORDER_CORDON: WorkerOrder
WORKER_ORDER_DRAIN: WorkerOrder
WORKER_ORDER_EVICT: WorkerOrder
WORKER_ORDER_UNCORDON: WorkerOrder
WORKER_ORDER_UNSPECIFIED: WorkerOrder

class AbortMesh(_message.Message):
    __slots__ = ["cause", "mesh_gen"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    cause: RuntimeError
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., cause: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class ActorDone(_message.Message):
    __slots__ = ["fate", "id", "payload", "ref", "why"]
    FATE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    fate: ActorFate
    id: int
    payload: bytes
    ref: HostActorRef
    why: RuntimeError
    def __init__(self, id: _Optional[int] = ..., ref: _Optional[_Union[HostActorRef, _Mapping]] = ..., payload: _Optional[bytes] = ..., fate: _Optional[_Union[ActorFate, str]] = ..., why: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class ActorEvent(_message.Message):
    __slots__ = ["actor", "code", "generation", "job_id", "kind", "message"]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    actor: int
    code: int
    generation: int
    job_id: int
    kind: ActorEventKind
    message: str
    def __init__(self, job_id: _Optional[int] = ..., actor: _Optional[int] = ..., generation: _Optional[int] = ..., kind: _Optional[_Union[ActorEventKind, str]] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ActorMessage(_message.Message):
    __slots__ = ["actor", "ask", "deadline_ms", "generation", "job_id", "payload", "tell"]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TELL_FIELD_NUMBER: _ClassVar[int]
    actor: int
    ask: int
    deadline_ms: int
    generation: int
    job_id: int
    payload: bytes
    tell: bool
    def __init__(self, job_id: _Optional[int] = ..., actor: _Optional[int] = ..., generation: _Optional[int] = ..., ask: _Optional[int] = ..., tell: bool = ..., deadline_ms: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ActorReply(_message.Message):
    __slots__ = ["ask", "code", "message", "payload"]
    ASK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ask: int
    code: int
    message: str
    payload: bytes
    def __init__(self, ask: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ActorSource(_message.Message):
    __slots__ = ["args", "deadline_ms", "type", "validation_rows"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_ROWS_FIELD_NUMBER: _ClassVar[int]
    args: bytes
    deadline_ms: int
    type: str
    validation_rows: int
    def __init__(self, type: _Optional[str] = ..., args: _Optional[bytes] = ..., validation_rows: _Optional[int] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class AskDone(_message.Message):
    __slots__ = ["id", "seconds", "step", "tensors", "values"]
    class ValuesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    id: int
    seconds: float
    step: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorTile]
    values: _containers.ScalarMap[str, float]
    def __init__(self, id: _Optional[int] = ..., step: _Optional[int] = ..., seconds: _Optional[float] = ..., values: _Optional[_Mapping[str, float]] = ..., tensors: _Optional[_Iterable[_Union[TensorTile, _Mapping]]] = ...) -> None: ...

class AskFailed(_message.Message):
    __slots__ = ["error", "id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    id: int
    def __init__(self, id: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class AskHostActor(_message.Message):
    __slots__ = ["deadline_ms", "id", "payload", "ref", "tell"]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    TELL_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    id: int
    payload: bytes
    ref: HostActorRef
    tell: bool
    def __init__(self, id: _Optional[int] = ..., ref: _Optional[_Union[HostActorRef, _Mapping]] = ..., payload: _Optional[bytes] = ..., deadline_ms: _Optional[int] = ..., tell: bool = ...) -> None: ...

class BlobChunk(_message.Message):
    __slots__ = ["data", "size_bytes"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class BlobRef(_message.Message):
    __slots__ = ["name", "sha256", "size_bytes"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    size_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class CallProgram(_message.Message):
    __slots__ = ["acked", "fetch", "fetch_largest", "id", "inputs", "program", "step"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_LARGEST_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedScalarFieldContainer[int]
    fetch: bool
    fetch_largest: bool
    id: int
    inputs: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    program: str
    step: int
    def __init__(self, id: _Optional[int] = ..., program: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ..., fetch: bool = ..., step: _Optional[int] = ..., acked: _Optional[_Iterable[int]] = ..., fetch_largest: bool = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class CheckpointCommitted(_message.Message):
    __slots__ = ["error", "mesh_gen", "save"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    mesh_gen: int
    save: int
    def __init__(self, mesh_gen: _Optional[int] = ..., save: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class CheckpointSpec(_message.Message):
    __slots__ = ["enable", "export_dtype", "folder", "interval", "interval_s", "keep_best", "keep_latest_k", "last_save_in_hf", "waits"]
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    EXPORT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    KEEP_BEST_FIELD_NUMBER: _ClassVar[int]
    KEEP_LATEST_K_FIELD_NUMBER: _ClassVar[int]
    LAST_SAVE_IN_HF_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    enable: bool
    export_dtype: str
    folder: FolderRef
    interval: int
    interval_s: int
    keep_best: str
    keep_latest_k: int
    last_save_in_hf: bool
    waits: bool
    def __init__(self, enable: bool = ..., folder: _Optional[_Union[FolderRef, _Mapping]] = ..., interval: _Optional[int] = ..., interval_s: _Optional[int] = ..., keep_latest_k: _Optional[int] = ..., waits: bool = ..., last_save_in_hf: bool = ..., export_dtype: _Optional[str] = ..., keep_best: _Optional[str] = ...) -> None: ...

class ClientDown(_message.Message):
    __slots__ = ["actor_done", "done", "end", "failed", "opened"]
    ACTOR_DONE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    actor_done: ActorDone
    done: AskDone
    end: SessionEnd
    failed: AskFailed
    opened: SessionOpened
    def __init__(self, opened: _Optional[_Union[SessionOpened, _Mapping]] = ..., done: _Optional[_Union[AskDone, _Mapping]] = ..., failed: _Optional[_Union[AskFailed, _Mapping]] = ..., actor_done: _Optional[_Union[ActorDone, _Mapping]] = ..., end: _Optional[_Union[SessionEnd, _Mapping]] = ...) -> None: ...

class ClientUp(_message.Message):
    __slots__ = ["ack", "ask_actor", "call", "close", "open", "read", "spawn_actor", "stop_actor", "watch_actor", "write"]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ASK_ACTOR_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    SPAWN_ACTOR_FIELD_NUMBER: _ClassVar[int]
    STOP_ACTOR_FIELD_NUMBER: _ClassVar[int]
    WATCH_ACTOR_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    ack: SessionAck
    ask_actor: AskHostActor
    call: CallProgram
    close: SessionClose
    open: SessionOpen
    read: ReadState
    spawn_actor: SpawnHostActor
    stop_actor: StopHostActor
    watch_actor: WatchHostActor
    write: WriteState
    def __init__(self, open: _Optional[_Union[SessionOpen, _Mapping]] = ..., call: _Optional[_Union[CallProgram, _Mapping]] = ..., read: _Optional[_Union[ReadState, _Mapping]] = ..., write: _Optional[_Union[WriteState, _Mapping]] = ..., close: _Optional[_Union[SessionClose, _Mapping]] = ..., spawn_actor: _Optional[_Union[SpawnHostActor, _Mapping]] = ..., ask_actor: _Optional[_Union[AskHostActor, _Mapping]] = ..., stop_actor: _Optional[_Union[StopHostActor, _Mapping]] = ..., ack: _Optional[_Union[SessionAck, _Mapping]] = ..., watch_actor: _Optional[_Union[WatchHostActor, _Mapping]] = ...) -> None: ...

class CommUp(_message.Message):
    __slots__ = ["error", "mesh_gen"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class CommitCheckpoint(_message.Message):
    __slots__ = ["export_dtype", "folder", "job", "keep", "manifest", "mesh_gen", "save", "temporary"]
    EXPORT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    export_dtype: str
    folder: FolderRef
    job: bytes
    keep: int
    manifest: bytes
    mesh_gen: int
    save: int
    temporary: str
    def __init__(self, mesh_gen: _Optional[int] = ..., save: _Optional[int] = ..., folder: _Optional[_Union[FolderRef, _Mapping]] = ..., temporary: _Optional[str] = ..., manifest: _Optional[bytes] = ..., job: _Optional[bytes] = ..., keep: _Optional[int] = ..., export_dtype: _Optional[str] = ...) -> None: ...

class Connect(_message.Message):
    __slots__ = ["invitations", "mesh_gen"]
    INVITATIONS_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    invitations: _containers.RepeatedScalarFieldContainer[bytes]
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., invitations: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CopySnapshot(_message.Message):
    __slots__ = ["cluster_id", "job_id", "mesh_gen", "parts", "process_id", "secret", "step"]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    job_id: int
    mesh_gen: int
    parts: _containers.RepeatedCompositeFieldContainer[SnapshotPart]
    process_id: int
    secret: bytes
    step: int
    def __init__(self, mesh_gen: _Optional[int] = ..., step: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[SnapshotPart, _Mapping]]] = ..., job_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., process_id: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class DataField(_message.Message):
    __slots__ = ["element", "item", "name", "slices", "validation"]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    element: str
    item: _containers.RepeatedScalarFieldContainer[int]
    name: str
    slices: _containers.RepeatedCompositeFieldContainer[DataSlice]
    validation: _containers.RepeatedCompositeFieldContainer[DataSlice]
    def __init__(self, name: _Optional[str] = ..., element: _Optional[str] = ..., item: _Optional[_Iterable[int]] = ..., slices: _Optional[_Iterable[_Union[DataSlice, _Mapping]]] = ..., validation: _Optional[_Iterable[_Union[DataSlice, _Mapping]]] = ...) -> None: ...

class DataPart(_message.Message):
    __slots__ = ["items", "name", "weight"]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    items: int
    name: str
    weight: int
    def __init__(self, name: _Optional[str] = ..., items: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class DataRoot(_message.Message):
    __slots__ = ["name", "path"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class DataSlice(_message.Message):
    __slots__ = ["begin_bytes", "file", "items"]
    BEGIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    begin_bytes: int
    file: int
    items: int
    def __init__(self, file: _Optional[int] = ..., begin_bytes: _Optional[int] = ..., items: _Optional[int] = ...) -> None: ...

class DataSpec(_message.Message):
    __slots__ = ["blob", "format", "streams", "validation_fraction"]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FRACTION_FIELD_NUMBER: _ClassVar[int]
    blob: BlobRef
    format: str
    streams: _containers.RepeatedCompositeFieldContainer[DataStream]
    validation_fraction: float
    def __init__(self, blob: _Optional[_Union[BlobRef, _Mapping]] = ..., format: _Optional[str] = ..., validation_fraction: _Optional[float] = ..., streams: _Optional[_Iterable[_Union[DataStream, _Mapping]]] = ...) -> None: ...

class DataStream(_message.Message):
    __slots__ = ["actor", "fields", "files", "name", "parts", "records", "validation_fraction", "validation_parts"]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FRACTION_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_PARTS_FIELD_NUMBER: _ClassVar[int]
    actor: ActorSource
    fields: _containers.RepeatedCompositeFieldContainer[DataField]
    files: _containers.RepeatedCompositeFieldContainer[FileRef]
    name: str
    parts: _containers.RepeatedCompositeFieldContainer[DataPart]
    records: bool
    validation_fraction: float
    validation_parts: _containers.RepeatedCompositeFieldContainer[DataPart]
    def __init__(self, name: _Optional[str] = ..., records: bool = ..., files: _Optional[_Iterable[_Union[FileRef, _Mapping]]] = ..., fields: _Optional[_Iterable[_Union[DataField, _Mapping]]] = ..., validation_fraction: _Optional[float] = ..., actor: _Optional[_Union[ActorSource, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[DataPart, _Mapping]]] = ..., validation_parts: _Optional[_Iterable[_Union[DataPart, _Mapping]]] = ...) -> None: ...

class Down(_message.Message):
    __slots__ = ["abort_mesh", "actor_message", "commit_checkpoint", "connect", "copy_snapshot", "drained", "drop_snapshots", "fetch_log", "launch", "load_mesh", "piece", "query_snapshots", "read_tensors", "release_mesh", "restore_state", "save_state", "save_weights", "spawn_actor", "stop_actor", "term", "welcome", "write_tensors"]
    ABORT_MESH_FIELD_NUMBER: _ClassVar[int]
    ACTOR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    COPY_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    DROP_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    FETCH_LOG_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    LOAD_MESH_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    QUERY_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    READ_TENSORS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_MESH_FIELD_NUMBER: _ClassVar[int]
    RESTORE_STATE_FIELD_NUMBER: _ClassVar[int]
    SAVE_STATE_FIELD_NUMBER: _ClassVar[int]
    SAVE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SPAWN_ACTOR_FIELD_NUMBER: _ClassVar[int]
    STOP_ACTOR_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    WRITE_TENSORS_FIELD_NUMBER: _ClassVar[int]
    abort_mesh: AbortMesh
    actor_message: ActorMessage
    commit_checkpoint: CommitCheckpoint
    connect: Connect
    copy_snapshot: CopySnapshot
    drained: Drained
    drop_snapshots: DropSnapshots
    fetch_log: FetchLog
    launch: Launch
    load_mesh: LoadMesh
    piece: Frame
    query_snapshots: QuerySnapshots
    read_tensors: ReadTensors
    release_mesh: ReleaseMesh
    restore_state: RestoreState
    save_state: SaveState
    save_weights: SaveWeights
    spawn_actor: SpawnActor
    stop_actor: StopActor
    term: int
    welcome: Welcome
    write_tensors: WriteTensors
    def __init__(self, term: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., load_mesh: _Optional[_Union[LoadMesh, _Mapping]] = ..., connect: _Optional[_Union[Connect, _Mapping]] = ..., launch: _Optional[_Union[Launch, _Mapping]] = ..., save_weights: _Optional[_Union[SaveWeights, _Mapping]] = ..., abort_mesh: _Optional[_Union[AbortMesh, _Mapping]] = ..., release_mesh: _Optional[_Union[ReleaseMesh, _Mapping]] = ..., read_tensors: _Optional[_Union[ReadTensors, _Mapping]] = ..., write_tensors: _Optional[_Union[WriteTensors, _Mapping]] = ..., spawn_actor: _Optional[_Union[SpawnActor, _Mapping]] = ..., actor_message: _Optional[_Union[ActorMessage, _Mapping]] = ..., stop_actor: _Optional[_Union[StopActor, _Mapping]] = ..., piece: _Optional[_Union[Frame, _Mapping]] = ..., save_state: _Optional[_Union[SaveState, _Mapping]] = ..., restore_state: _Optional[_Union[RestoreState, _Mapping]] = ..., commit_checkpoint: _Optional[_Union[CommitCheckpoint, _Mapping]] = ..., query_snapshots: _Optional[_Union[QuerySnapshots, _Mapping]] = ..., drop_snapshots: _Optional[_Union[DropSnapshots, _Mapping]] = ..., copy_snapshot: _Optional[_Union[CopySnapshot, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ..., fetch_log: _Optional[_Union[FetchLog, _Mapping]] = ...) -> None: ...

class Drained(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DriverSpec(_message.Message):
    __slots__ = ["batches", "grace_s", "kind", "program"]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    batches: int
    grace_s: int
    kind: str
    program: str
    def __init__(self, kind: _Optional[str] = ..., program: _Optional[str] = ..., batches: _Optional[int] = ..., grace_s: _Optional[int] = ...) -> None: ...

class DropSnapshots(_message.Message):
    __slots__ = ["before", "job_id"]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    before: int
    job_id: int
    def __init__(self, job_id: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class FaultToleranceSpec(_message.Message):
    __slots__ = ["copies", "elastic", "enable", "max_recoveries", "max_wait_for_spare_s", "min_devices", "orphan_grace_s", "snapshot_every", "stall_s"]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    MAX_RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FOR_SPARE_S_FIELD_NUMBER: _ClassVar[int]
    MIN_DEVICES_FIELD_NUMBER: _ClassVar[int]
    ORPHAN_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_EVERY_FIELD_NUMBER: _ClassVar[int]
    STALL_S_FIELD_NUMBER: _ClassVar[int]
    copies: int
    elastic: str
    enable: bool
    max_recoveries: int
    max_wait_for_spare_s: int
    min_devices: int
    orphan_grace_s: int
    snapshot_every: int
    stall_s: int
    def __init__(self, enable: bool = ..., max_recoveries: _Optional[int] = ..., elastic: _Optional[str] = ..., min_devices: _Optional[int] = ..., max_wait_for_spare_s: _Optional[int] = ..., stall_s: _Optional[int] = ..., snapshot_every: _Optional[int] = ..., copies: _Optional[int] = ..., orphan_grace_s: _Optional[int] = ...) -> None: ...

class FetchLog(_message.Message):
    __slots__ = ["ask", "job_id", "lines", "most_bytes", "since_unix_ms"]
    ASK_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ask: int
    job_id: int
    lines: int
    most_bytes: int
    since_unix_ms: int
    def __init__(self, ask: _Optional[int] = ..., lines: _Optional[int] = ..., since_unix_ms: _Optional[int] = ..., job_id: _Optional[int] = ..., most_bytes: _Optional[int] = ..., **kwargs) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ["data"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class FileRef(_message.Message):
    __slots__ = ["name", "path", "root", "sampled", "sha256", "size_bytes"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    root: str
    sampled: str
    sha256: str
    size_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., name: _Optional[str] = ..., root: _Optional[str] = ..., path: _Optional[str] = ..., sampled: _Optional[str] = ...) -> None: ...

class FolderRef(_message.Message):
    __slots__ = ["path", "root"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    path: str
    root: str
    def __init__(self, root: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ["data", "last"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: bool = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ["offset", "sha256"]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    offset: int
    sha256: str
    def __init__(self, sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetFileRequest(_message.Message):
    __slots__ = ["checkpoint", "count", "job_id", "mesh", "name", "offset", "step"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    count: int
    job_id: int
    mesh: MeshKey
    name: str
    offset: int
    step: int
    def __init__(self, mesh: _Optional[_Union[MeshKey, _Mapping]] = ..., job_id: _Optional[int] = ..., checkpoint: _Optional[str] = ..., step: _Optional[int] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class GroupMarks(_message.Message):
    __slots__ = ["done", "entered", "name"]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ENTERED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    done: int
    entered: int
    name: str
    def __init__(self, name: _Optional[str] = ..., entered: _Optional[int] = ..., done: _Optional[int] = ...) -> None: ...

class HangReply(_message.Message):
    __slots__ = ["text"]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...

class HangRequest(_message.Message):
    __slots__ = ["job_id", "json"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    json: bool
    def __init__(self, job_id: _Optional[int] = ..., json: bool = ...) -> None: ...

class HasBlobReply(_message.Message):
    __slots__ = ["present", "size_bytes"]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    present: bool
    size_bytes: int
    def __init__(self, present: bool = ..., size_bytes: _Optional[int] = ...) -> None: ...

class HasBlobRequest(_message.Message):
    __slots__ = ["sha256"]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    def __init__(self, sha256: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ["meshes"]
    MESHES_FIELD_NUMBER: _ClassVar[int]
    meshes: _containers.RepeatedCompositeFieldContainer[MeshMarks]
    def __init__(self, meshes: _Optional[_Iterable[_Union[MeshMarks, _Mapping]]] = ...) -> None: ...

class HeldMesh(_message.Message):
    __slots__ = ["job_id", "mesh_gen"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., job_id: _Optional[int] = ...) -> None: ...

class HeldSlot(_message.Message):
    __slots__ = ["mesh_gen", "secret", "shards", "slot", "step"]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    mesh_gen: int
    secret: bytes
    shards: bytes
    slot: str
    step: int
    def __init__(self, mesh_gen: _Optional[int] = ..., step: _Optional[int] = ..., slot: _Optional[str] = ..., secret: _Optional[bytes] = ..., shards: _Optional[bytes] = ...) -> None: ...

class HostActorRef(_message.Message):
    __slots__ = ["generation", "id", "worker"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    generation: int
    id: int
    worker: str
    def __init__(self, worker: _Optional[str] = ..., id: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class JobDescription(_message.Message):
    __slots__ = ["job", "weights"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    job: JobRequest
    weights: BlobRef
    def __init__(self, job: _Optional[_Union[JobRequest, _Mapping]] = ..., weights: _Optional[_Union[BlobRef, _Mapping]] = ...) -> None: ...

class JobIdRequest(_message.Message):
    __slots__ = ["job_id"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class JobInfo(_message.Message):
    __slots__ = ["checkpoint_folder", "checkpoint_step", "device_budget_bytes", "device_memory_bytes", "directory", "ended_unix_ms", "id", "layout", "loss", "message", "name", "peak_flops_per_s", "reason", "started_unix_ms", "state", "steps", "steps_done", "submitted_unix_ms", "tool"]
    CHECKPOINT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_STEP_FIELD_NUMBER: _ClassVar[int]
    DEVICE_BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PEAK_FLOPS_PER_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    checkpoint_folder: FolderRef
    checkpoint_step: int
    device_budget_bytes: int
    device_memory_bytes: int
    directory: str
    ended_unix_ms: int
    id: int
    layout: str
    loss: float
    message: str
    name: str
    peak_flops_per_s: float
    reason: str
    started_unix_ms: int
    state: JobState
    steps: int
    steps_done: int
    submitted_unix_ms: int
    tool: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., steps_done: _Optional[int] = ..., steps: _Optional[int] = ..., loss: _Optional[float] = ..., layout: _Optional[str] = ..., directory: _Optional[str] = ..., submitted_unix_ms: _Optional[int] = ..., started_unix_ms: _Optional[int] = ..., ended_unix_ms: _Optional[int] = ..., device_memory_bytes: _Optional[int] = ..., device_budget_bytes: _Optional[int] = ..., peak_flops_per_s: _Optional[float] = ..., checkpoint_step: _Optional[int] = ..., checkpoint_folder: _Optional[_Union[FolderRef, _Mapping]] = ..., tool: _Optional[str] = ...) -> None: ...

class JobProgram(_message.Message):
    __slots__ = ["graph", "inputs", "name", "trained"]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    graph: str
    inputs: _containers.RepeatedCompositeFieldContainer[ProgramInput]
    name: str
    trained: bool
    def __init__(self, name: _Optional[str] = ..., graph: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[ProgramInput, _Mapping]]] = ..., trained: bool = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ["checkpoint", "config_text", "data", "driver", "fault_tolerance", "init_weights", "name", "optimizer", "pins", "programs", "queue", "save_weights", "start", "train"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    FAULT_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    INIT_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SAVE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    checkpoint: CheckpointSpec
    config_text: str
    data: DataSpec
    driver: DriverSpec
    fault_tolerance: FaultToleranceSpec
    init_weights: FileRef
    name: str
    optimizer: OptimizerSpec
    pins: str
    programs: _containers.RepeatedCompositeFieldContainer[JobProgram]
    queue: QueueSpec
    save_weights: bool
    start: StartPoint
    train: TrainSpec
    def __init__(self, name: _Optional[str] = ..., optimizer: _Optional[_Union[OptimizerSpec, _Mapping]] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., init_weights: _Optional[_Union[FileRef, _Mapping]] = ..., pins: _Optional[str] = ..., train: _Optional[_Union[TrainSpec, _Mapping]] = ..., save_weights: bool = ..., config_text: _Optional[str] = ..., programs: _Optional[_Iterable[_Union[JobProgram, _Mapping]]] = ..., driver: _Optional[_Union[DriverSpec, _Mapping]] = ..., checkpoint: _Optional[_Union[CheckpointSpec, _Mapping]] = ..., start: _Optional[_Union[StartPoint, _Mapping]] = ..., fault_tolerance: _Optional[_Union[FaultToleranceSpec, _Mapping]] = ..., queue: _Optional[_Union[QueueSpec, _Mapping]] = ...) -> None: ...

class JobUpdate(_message.Message):
    __slots__ = ["info", "log_lines", "next_log_line", "next_step_record", "steps"]
    INFO_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_LOG_LINE_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_RECORD_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    info: JobInfo
    log_lines: _containers.RepeatedScalarFieldContainer[str]
    next_log_line: int
    next_step_record: int
    steps: _containers.RepeatedCompositeFieldContainer[StepMetrics]
    def __init__(self, info: _Optional[_Union[JobInfo, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[StepMetrics, _Mapping]]] = ..., log_lines: _Optional[_Iterable[str]] = ..., next_step_record: _Optional[int] = ..., next_log_line: _Optional[int] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ["count", "fetch", "fetch_largest", "first_step", "inputs", "launch_seq", "mesh_gen", "program", "record", "sent_ns", "snapshot"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_LARGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    count: int
    fetch: bool
    fetch_largest: bool
    first_step: int
    inputs: _containers.RepeatedCompositeFieldContainer[LaunchInput]
    launch_seq: int
    mesh_gen: int
    program: int
    record: StepRange
    sent_ns: int
    snapshot: bool
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., first_step: _Optional[int] = ..., count: _Optional[int] = ..., program: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[LaunchInput, _Mapping]]] = ..., fetch: bool = ..., fetch_largest: bool = ..., snapshot: bool = ..., record: _Optional[_Union[StepRange, _Mapping]] = ..., sent_ns: _Optional[int] = ...) -> None: ...

class LaunchDone(_message.Message):
    __slots__ = ["begin_ns", "error", "heard_ns", "launch_seq", "mesh_gen", "recorded", "reports", "said_ns", "sent_ns", "snapshot", "tensors"]
    BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HEARD_NS_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SAID_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    begin_ns: int
    error: RuntimeError
    heard_ns: int
    launch_seq: int
    mesh_gen: int
    recorded: _containers.RepeatedCompositeFieldContainer[StepRecord]
    reports: _containers.RepeatedCompositeFieldContainer[StepReport]
    said_ns: int
    sent_ns: int
    snapshot: SnapshotTaken
    tensors: _containers.RepeatedCompositeFieldContainer[TensorTile]
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ..., reports: _Optional[_Iterable[_Union[StepReport, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[TensorTile, _Mapping]]] = ..., snapshot: _Optional[_Union[SnapshotTaken, _Mapping]] = ..., recorded: _Optional[_Iterable[_Union[StepRecord, _Mapping]]] = ..., sent_ns: _Optional[int] = ..., heard_ns: _Optional[int] = ..., said_ns: _Optional[int] = ..., begin_ns: _Optional[int] = ...) -> None: ...

class LaunchInput(_message.Message):
    __slots__ = ["data", "first_row", "input", "rows"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    first_row: int
    input: int
    rows: int
    def __init__(self, input: _Optional[int] = ..., data: _Optional[bytes] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ["drain_ms", "error", "reason"]
    DRAIN_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    drain_ms: int
    error: RuntimeError
    reason: str
    def __init__(self, reason: _Optional[str] = ..., drain_ms: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class ListCheckpointsReply(_message.Message):
    __slots__ = ["root", "steps"]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    root: str
    steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, root: _Optional[str] = ..., steps: _Optional[_Iterable[int]] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ["job_id"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ["jobs", "total", "truncated"]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobInfo]
    total: int
    truncated: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobInfo, _Mapping]]] = ..., total: _Optional[int] = ..., truncated: bool = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ["before_id", "limit"]
    BEFORE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    before_id: int
    limit: int
    def __init__(self, before_id: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class LoadMesh(_message.Message):
    __slots__ = ["cluster_id", "data", "files_key", "graph", "init_weights", "inputs", "job_id", "members", "mesh_gen", "orphan_grace_ms", "programs", "ranks", "secret", "seed", "sequence", "tf32", "vocabulary"]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILES_KEY_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    INIT_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    ORPHAN_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TF32_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    data: DataSpec
    files_key: str
    graph: BlobRef
    init_weights: FileRef
    inputs: _containers.RepeatedScalarFieldContainer[str]
    job_id: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    mesh_gen: int
    orphan_grace_ms: int
    programs: _containers.RepeatedScalarFieldContainer[str]
    ranks: _containers.RepeatedCompositeFieldContainer[RankPrograms]
    secret: bytes
    seed: int
    sequence: int
    tf32: bool
    vocabulary: int
    def __init__(self, mesh_gen: _Optional[int] = ..., job_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., secret: _Optional[bytes] = ..., seed: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[RankPrograms, _Mapping]]] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., sequence: _Optional[int] = ..., vocabulary: _Optional[int] = ..., init_weights: _Optional[_Union[FileRef, _Mapping]] = ..., graph: _Optional[_Union[BlobRef, _Mapping]] = ..., tf32: bool = ..., programs: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Iterable[str]] = ..., orphan_grace_ms: _Optional[int] = ..., files_key: _Optional[str] = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ["error", "invitation", "mesh_gen"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INVITATION_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    invitation: bytes
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ..., invitation: _Optional[bytes] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ["lines"]
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[str]] = ...) -> None: ...

class LogLines(_message.Message):
    __slots__ = ["dropped", "lines"]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    lines: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, lines: _Optional[_Iterable[bytes]] = ..., dropped: _Optional[int] = ...) -> None: ...

class LogPiece(_message.Message):
    __slots__ = ["ask", "code", "end", "message", "next", "text"]
    ASK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ask: int
    code: int
    end: bool
    message: str
    next: int
    text: bytes
    def __init__(self, ask: _Optional[int] = ..., text: _Optional[bytes] = ..., next: _Optional[int] = ..., end: bool = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ["address", "host_id", "process_id", "worker"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    address: str
    host_id: str
    process_id: int
    worker: str
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ..., host_id: _Optional[str] = ..., process_id: _Optional[int] = ...) -> None: ...

class MeshError(_message.Message):
    __slots__ = ["error", "mesh_gen"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class MeshKey(_message.Message):
    __slots__ = ["key", "mesh_gen"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    key: str
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class MeshMarks(_message.Message):
    __slots__ = ["cpu_ms", "doing", "mesh_gen", "pid", "ranks"]
    CPU_MS_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    cpu_ms: int
    doing: str
    mesh_gen: int
    pid: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankMarks]
    def __init__(self, mesh_gen: _Optional[int] = ..., doing: _Optional[str] = ..., cpu_ms: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankMarks, _Mapping]]] = ..., pid: _Optional[int] = ...) -> None: ...

class MeshReleased(_message.Message):
    __slots__ = ["mesh_gen"]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ["text", "truncated"]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    text: str
    truncated: bool
    def __init__(self, text: _Optional[str] = ..., truncated: bool = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class NamedTensor(_message.Message):
    __slots__ = ["data", "dims", "dtype", "name"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    dims: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    name: str
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., dims: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class OptimizerSpec(_message.Message):
    __slots__ = ["beta1", "beta2", "clip_threshold", "decay_rate", "eps", "lr", "max_norm", "min_lr", "moments_dtype", "momentum", "name", "schedule", "total_steps", "unscaled", "warmup_steps", "weight_decay"]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    CLIP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DECAY_RATE_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    MAX_NORM_FIELD_NUMBER: _ClassVar[int]
    MIN_LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_DTYPE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    UNSCALED_FIELD_NUMBER: _ClassVar[int]
    WARMUP_STEPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    beta1: float
    beta2: float
    clip_threshold: float
    decay_rate: float
    eps: float
    lr: float
    max_norm: float
    min_lr: float
    moments_dtype: str
    momentum: float
    name: str
    schedule: str
    total_steps: int
    unscaled: bool
    warmup_steps: int
    weight_decay: float
    def __init__(self, name: _Optional[str] = ..., lr: _Optional[float] = ..., beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., eps: _Optional[float] = ..., weight_decay: _Optional[float] = ..., momentum: _Optional[float] = ..., max_norm: _Optional[float] = ..., warmup_steps: _Optional[int] = ..., total_steps: _Optional[int] = ..., schedule: _Optional[str] = ..., min_lr: _Optional[float] = ..., moments_dtype: _Optional[str] = ..., unscaled: bool = ..., decay_rate: _Optional[float] = ..., clip_threshold: _Optional[float] = ...) -> None: ...

class OrderWorkerReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class OrderWorkerRequest(_message.Message):
    __slots__ = ["deadline_ms", "name", "order"]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    name: str
    order: WorkerOrder
    def __init__(self, name: _Optional[str] = ..., order: _Optional[_Union[WorkerOrder, str]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class PauseReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ProgramInput(_message.Message):
    __slots__ = ["from_client", "from_output", "name"]
    FROM_CLIENT_FIELD_NUMBER: _ClassVar[int]
    FROM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    from_client: bool
    from_output: ProgramOutput
    name: str
    def __init__(self, name: _Optional[str] = ..., from_client: bool = ..., from_output: _Optional[_Union[ProgramOutput, _Mapping]] = ...) -> None: ...

class ProgramOutput(_message.Message):
    __slots__ = ["name", "program"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    program: str
    def __init__(self, program: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ProgramSignature(_message.Message):
    __slots__ = ["inputs", "name"]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    name: str
    def __init__(self, name: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class PutBlobChunk(_message.Message):
    __slots__ = ["data", "sha256", "size_bytes"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    sha256: str
    size_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutBlobReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class PutShardChunk(_message.Message):
    __slots__ = ["data", "folder", "mesh", "name", "size_bytes", "temporary"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    folder: str
    mesh: MeshKey
    name: str
    size_bytes: int
    temporary: str
    def __init__(self, mesh: _Optional[_Union[MeshKey, _Mapping]] = ..., folder: _Optional[str] = ..., temporary: _Optional[str] = ..., name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutShardReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class PutTilesReply(_message.Message):
    __slots__ = ["tiles"]
    TILES_FIELD_NUMBER: _ClassVar[int]
    tiles: int
    def __init__(self, tiles: _Optional[int] = ...) -> None: ...

class QuerySnapshots(_message.Message):
    __slots__ = ["job_id", "query"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    query: int
    def __init__(self, job_id: _Optional[int] = ..., query: _Optional[int] = ...) -> None: ...

class QueueSpec(_message.Message):
    __slots__ = ["max_wait_s", "preemptible", "priority"]
    MAX_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIBLE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    max_wait_s: int
    preemptible: bool
    priority: int
    def __init__(self, priority: _Optional[int] = ..., preemptible: bool = ..., max_wait_s: _Optional[int] = ...) -> None: ...

class RankMarks(_message.Message):
    __slots__ = ["age_ms", "awaits_rows", "groups", "in_step", "instruction", "program", "rank", "state", "step", "steps_begun"]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_ROWS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    IN_STEP_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEPS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    awaits_rows: bool
    groups: _containers.RepeatedCompositeFieldContainer[GroupMarks]
    in_step: bool
    instruction: int
    program: str
    rank: int
    state: str
    step: int
    steps_begun: int
    def __init__(self, rank: _Optional[int] = ..., in_step: bool = ..., program: _Optional[str] = ..., step: _Optional[int] = ..., steps_begun: _Optional[int] = ..., instruction: _Optional[int] = ..., age_ms: _Optional[int] = ..., awaits_rows: bool = ..., state: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[GroupMarks, _Mapping]]] = ...) -> None: ...

class RankPrograms(_message.Message):
    __slots__ = ["local_device", "programs", "rank", "snapshot_slots"]
    LOCAL_DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    local_device: int
    programs: _containers.RepeatedCompositeFieldContainer[BlobRef]
    rank: int
    snapshot_slots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., local_device: _Optional[int] = ..., programs: _Optional[_Iterable[_Union[BlobRef, _Mapping]]] = ..., snapshot_slots: _Optional[_Iterable[str]] = ...) -> None: ...

class RankSeconds(_message.Message):
    __slots__ = ["rank", "seconds"]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    seconds: float
    def __init__(self, rank: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class RankTiles(_message.Message):
    __slots__ = ["rank", "slots"]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    slots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., slots: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadState(_message.Message):
    __slots__ = ["acked", "id", "names"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedScalarFieldContainer[int]
    id: int
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., acked: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadTensors(_message.Message):
    __slots__ = ["launch_seq", "mesh_gen", "ranks"]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    launch_seq: int
    mesh_gen: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankTiles]
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankTiles, _Mapping]]] = ...) -> None: ...

class RecordReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RecordRequest(_message.Message):
    __slots__ = ["job_id", "steps"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    steps: StepRange
    def __init__(self, job_id: _Optional[int] = ..., steps: _Optional[_Union[StepRange, _Mapping]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ["actor_types", "address", "checkpoint_roots", "cluster_id", "cpus", "data_roots", "device_kind", "device_name", "device_profile", "devices", "disk_bytes", "host_cores", "host_id", "host_memory_bytes", "incarnation", "keeps_log", "max_term", "memory_bytes", "meshes", "metrics_address", "name", "no_scratch_dir", "protocol_major", "protocol_minor", "threads_per_device", "version"]
    ACTOR_TYPES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ROOTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    DATA_ROOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_PROFILE_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOST_CORES_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KEEPS_LOG_FIELD_NUMBER: _ClassVar[int]
    MAX_TERM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESHES_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NO_SCRATCH_DIR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAJOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    THREADS_PER_DEVICE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    actor_types: _containers.RepeatedScalarFieldContainer[str]
    address: str
    checkpoint_roots: _containers.RepeatedCompositeFieldContainer[DataRoot]
    cluster_id: str
    cpus: _containers.RepeatedScalarFieldContainer[int]
    data_roots: _containers.RepeatedCompositeFieldContainer[DataRoot]
    device_kind: str
    device_name: str
    device_profile: str
    devices: int
    disk_bytes: int
    host_cores: int
    host_id: str
    host_memory_bytes: int
    incarnation: int
    keeps_log: bool
    max_term: int
    memory_bytes: int
    meshes: _containers.RepeatedCompositeFieldContainer[HeldMesh]
    metrics_address: str
    name: str
    no_scratch_dir: bool
    protocol_major: int
    protocol_minor: int
    threads_per_device: int
    version: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., devices: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., address: _Optional[str] = ..., host_id: _Optional[str] = ..., version: _Optional[str] = ..., protocol_major: _Optional[int] = ..., protocol_minor: _Optional[int] = ..., metrics_address: _Optional[str] = ..., cluster_id: _Optional[str] = ..., max_term: _Optional[int] = ..., device_profile: _Optional[str] = ..., threads_per_device: _Optional[int] = ..., host_cores: _Optional[int] = ..., cpus: _Optional[_Iterable[int]] = ..., device_kind: _Optional[str] = ..., device_name: _Optional[str] = ..., data_roots: _Optional[_Iterable[_Union[DataRoot, _Mapping]]] = ..., actor_types: _Optional[_Iterable[str]] = ..., checkpoint_roots: _Optional[_Iterable[_Union[DataRoot, _Mapping]]] = ..., meshes: _Optional[_Iterable[_Union[HeldMesh, _Mapping]]] = ..., host_memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., no_scratch_dir: bool = ..., keeps_log: bool = ...) -> None: ...

class ReleaseMesh(_message.Message):
    __slots__ = ["mesh_gen"]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ...) -> None: ...

class RemoveCheckpointReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RemoveCheckpointRequest(_message.Message):
    __slots__ = ["job_id", "step"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    step: int
    def __init__(self, job_id: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class RestoreState(_message.Message):
    __slots__ = ["checkpoint", "exclude", "launch_seq", "manifest", "mesh_gen", "sources"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    checkpoint: FolderRef
    exclude: _containers.RepeatedScalarFieldContainer[str]
    launch_seq: int
    manifest: bytes
    mesh_gen: int
    sources: _containers.RepeatedCompositeFieldContainer[SnapshotSource]
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., checkpoint: _Optional[_Union[FolderRef, _Mapping]] = ..., exclude: _Optional[_Iterable[str]] = ..., manifest: _Optional[bytes] = ..., sources: _Optional[_Iterable[_Union[SnapshotSource, _Mapping]]] = ...) -> None: ...

class ResumeMesh(_message.Message):
    __slots__ = ["committed", "done", "first_seq", "launches", "mesh_gen", "saved"]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    committed: CheckpointCommitted
    done: _containers.RepeatedCompositeFieldContainer[LaunchDone]
    first_seq: int
    launches: _containers.RepeatedCompositeFieldContainer[ToldLaunch]
    mesh_gen: int
    saved: StateSaved
    def __init__(self, mesh_gen: _Optional[int] = ..., first_seq: _Optional[int] = ..., launches: _Optional[_Iterable[_Union[ToldLaunch, _Mapping]]] = ..., done: _Optional[_Iterable[_Union[LaunchDone, _Mapping]]] = ..., saved: _Optional[_Union[StateSaved, _Mapping]] = ..., committed: _Optional[_Union[CheckpointCommitted, _Mapping]] = ...) -> None: ...

class ResumeReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RuntimeError(_message.Message):
    __slots__ = ["blame", "code", "device", "instruction", "kind", "message", "step", "worker"]
    BLAME_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    blame: int
    code: int
    device: int
    instruction: int
    kind: ErrorKind
    message: str
    step: int
    worker: str
    def __init__(self, kind: _Optional[_Union[ErrorKind, str]] = ..., code: _Optional[int] = ..., blame: _Optional[int] = ..., worker: _Optional[str] = ..., device: _Optional[int] = ..., step: _Optional[int] = ..., instruction: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class SaveState(_message.Message):
    __slots__ = ["folder", "launch_seq", "mesh_gen", "ranks", "temporary"]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    folder: FolderRef
    launch_seq: int
    mesh_gen: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankTiles]
    temporary: str
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., folder: _Optional[_Union[FolderRef, _Mapping]] = ..., temporary: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankTiles, _Mapping]]] = ...) -> None: ...

class SaveWeights(_message.Message):
    __slots__ = ["mesh_gen", "ranks"]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    mesh_gen: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankTiles]
    def __init__(self, mesh_gen: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankTiles, _Mapping]]] = ...) -> None: ...

class SessionAck(_message.Message):
    __slots__ = ["ids"]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionClose(_message.Message):
    __slots__ = ["end_job"]
    END_JOB_FIELD_NUMBER: _ClassVar[int]
    end_job: bool
    def __init__(self, end_job: bool = ...) -> None: ...

class SessionEnd(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SessionOpen(_message.Message):
    __slots__ = ["again", "job", "job_id", "op_id", "session", "tool"]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OP_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    again: bool
    job: JobRequest
    job_id: int
    op_id: str
    session: str
    tool: str
    def __init__(self, op_id: _Optional[str] = ..., job: _Optional[_Union[JobRequest, _Mapping]] = ..., job_id: _Optional[int] = ..., session: _Optional[str] = ..., again: bool = ..., tool: _Optional[str] = ...) -> None: ...

class SessionOpened(_message.Message):
    __slots__ = ["credits", "held", "job_id", "programs"]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    held: _containers.RepeatedScalarFieldContainer[int]
    job_id: int
    programs: _containers.RepeatedCompositeFieldContainer[ProgramSignature]
    def __init__(self, job_id: _Optional[int] = ..., credits: _Optional[int] = ..., programs: _Optional[_Iterable[_Union[ProgramSignature, _Mapping]]] = ..., held: _Optional[_Iterable[int]] = ...) -> None: ...

class SnapshotCopied(_message.Message):
    __slots__ = ["error", "mesh_gen", "step"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    mesh_gen: int
    step: int
    def __init__(self, mesh_gen: _Optional[int] = ..., step: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ["address", "boxes", "process_id", "worker"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    address: str
    boxes: _containers.RepeatedScalarFieldContainer[bytes]
    process_id: int
    worker: str
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ..., process_id: _Optional[int] = ..., boxes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SnapshotSource(_message.Message):
    __slots__ = ["address", "mesh_gen", "process_id", "secret", "slot"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    address: str
    mesh_gen: int
    process_id: int
    secret: bytes
    slot: str
    def __init__(self, address: _Optional[str] = ..., process_id: _Optional[int] = ..., mesh_gen: _Optional[int] = ..., secret: _Optional[bytes] = ..., slot: _Optional[str] = ...) -> None: ...

class SnapshotTaken(_message.Message):
    __slots__ = ["bytes", "error", "seconds", "step"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    error: RuntimeError
    seconds: float
    step: int
    def __init__(self, step: _Optional[int] = ..., seconds: _Optional[float] = ..., bytes: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class SnapshotsHeld(_message.Message):
    __slots__ = ["job_id", "query", "slots"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    query: int
    slots: _containers.RepeatedCompositeFieldContainer[HeldSlot]
    def __init__(self, job_id: _Optional[int] = ..., query: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[HeldSlot, _Mapping]]] = ...) -> None: ...

class SpawnActor(_message.Message):
    __slots__ = ["actor", "args", "generation", "job_id", "type"]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    actor: int
    args: bytes
    generation: int
    job_id: int
    type: str
    def __init__(self, job_id: _Optional[int] = ..., actor: _Optional[int] = ..., generation: _Optional[int] = ..., type: _Optional[str] = ..., args: _Optional[bytes] = ...) -> None: ...

class SpawnHostActor(_message.Message):
    __slots__ = ["args", "id", "type", "worker"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    args: bytes
    id: int
    type: str
    worker: str
    def __init__(self, id: _Optional[int] = ..., type: _Optional[str] = ..., args: _Optional[bytes] = ..., worker: _Optional[str] = ...) -> None: ...

class StartPoint(_message.Message):
    __slots__ = ["checkpoint", "exclude", "step"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    checkpoint: FolderRef
    exclude: _containers.RepeatedScalarFieldContainer[str]
    step: int
    def __init__(self, checkpoint: _Optional[_Union[FolderRef, _Mapping]] = ..., step: _Optional[int] = ..., exclude: _Optional[_Iterable[str]] = ...) -> None: ...

class StateReply(_message.Message):
    __slots__ = ["cluster_id", "jobs", "term", "unix_ms", "version", "workers"]
    class JobsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class WorkersEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    jobs: _containers.ScalarMap[str, int]
    term: int
    unix_ms: int
    version: str
    workers: _containers.ScalarMap[str, int]
    def __init__(self, cluster_id: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[str] = ..., jobs: _Optional[_Mapping[str, int]] = ..., workers: _Optional[_Mapping[str, int]] = ..., unix_ms: _Optional[int] = ...) -> None: ...

class StateRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StateSaved(_message.Message):
    __slots__ = ["copy_seconds", "error", "mesh_gen", "save", "shards", "write_seconds"]
    COPY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    copy_seconds: float
    error: RuntimeError
    mesh_gen: int
    save: int
    shards: bytes
    write_seconds: float
    def __init__(self, mesh_gen: _Optional[int] = ..., save: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ..., shards: _Optional[bytes] = ..., copy_seconds: _Optional[float] = ..., write_seconds: _Optional[float] = ...) -> None: ...

class StepMetrics(_message.Message):
    __slots__ = ["grad_norm", "loss", "lr", "seconds", "step", "tokens", "validation_loss", "values"]
    class ValuesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_LOSS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    grad_norm: float
    loss: float
    lr: float
    seconds: float
    step: int
    tokens: float
    validation_loss: float
    values: _containers.ScalarMap[str, float]
    def __init__(self, step: _Optional[int] = ..., loss: _Optional[float] = ..., grad_norm: _Optional[float] = ..., lr: _Optional[float] = ..., tokens: _Optional[float] = ..., seconds: _Optional[float] = ..., validation_loss: _Optional[float] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class StepRange(_message.Message):
    __slots__ = ["count", "first"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    count: int
    first: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class StepRecord(_message.Message):
    __slots__ = ["begin_ns", "end_ns", "instruction", "lane", "left_out", "node", "ns", "program", "rank", "step"]
    BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    begin_ns: int
    end_ns: int
    instruction: _containers.RepeatedScalarFieldContainer[int]
    lane: int
    left_out: int
    node: _containers.RepeatedScalarFieldContainer[int]
    ns: _containers.RepeatedScalarFieldContainer[int]
    program: str
    rank: int
    step: int
    def __init__(self, rank: _Optional[int] = ..., lane: _Optional[int] = ..., program: _Optional[str] = ..., step: _Optional[int] = ..., begin_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., left_out: _Optional[int] = ..., instruction: _Optional[_Iterable[int]] = ..., node: _Optional[_Iterable[int]] = ..., ns: _Optional[_Iterable[int]] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ["busy", "seconds", "step", "values"]
    class ValuesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    BUSY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    busy: _containers.RepeatedCompositeFieldContainer[RankSeconds]
    seconds: float
    step: int
    values: _containers.ScalarMap[str, float]
    def __init__(self, step: _Optional[int] = ..., seconds: _Optional[float] = ..., values: _Optional[_Mapping[str, float]] = ..., busy: _Optional[_Iterable[_Union[RankSeconds, _Mapping]]] = ...) -> None: ...

class StopActor(_message.Message):
    __slots__ = ["actor", "generation", "job_id"]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    actor: int
    generation: int
    job_id: int
    def __init__(self, job_id: _Optional[int] = ..., actor: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class StopHostActor(_message.Message):
    __slots__ = ["id", "ref"]
    ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    id: int
    ref: HostActorRef
    def __init__(self, id: _Optional[int] = ..., ref: _Optional[_Union[HostActorRef, _Mapping]] = ...) -> None: ...

class StoryChunk(_message.Message):
    __slots__ = ["text"]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...

class StoryRequest(_message.Message):
    __slots__ = ["form", "job_id", "steps"]
    FORM_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    form: StoryForm
    job_id: int
    steps: StepRange
    def __init__(self, job_id: _Optional[int] = ..., steps: _Optional[_Union[StepRange, _Mapping]] = ..., form: _Optional[_Union[StoryForm, str]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ["job_id"]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ["job", "op_id", "tool"]
    JOB_FIELD_NUMBER: _ClassVar[int]
    OP_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    job: JobRequest
    op_id: str
    tool: str
    def __init__(self, op_id: _Optional[str] = ..., job: _Optional[_Union[JobRequest, _Mapping]] = ..., tool: _Optional[str] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ["follow", "job_id"]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    follow: bool
    job_id: int
    def __init__(self, job_id: _Optional[int] = ..., follow: bool = ...) -> None: ...

class TensorTile(_message.Message):
    __slots__ = ["data", "dims", "dtype", "largest", "name", "offset", "size"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    dims: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    largest: bool
    name: str
    offset: _containers.RepeatedScalarFieldContainer[int]
    size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., dims: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., size: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., largest: bool = ...) -> None: ...

class TileChunk(_message.Message):
    __slots__ = ["data", "dtype", "last", "mesh_gen", "offset", "param", "size"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    dtype: str
    last: bool
    mesh_gen: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    param: str
    size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mesh_gen: _Optional[int] = ..., param: _Optional[str] = ..., dtype: _Optional[str] = ..., offset: _Optional[_Iterable[int]] = ..., size: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., last: bool = ...) -> None: ...

class ToldLaunch(_message.Message):
    __slots__ = ["asked", "count", "first_step", "kind", "launch_seq", "program"]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    asked: bool
    count: int
    first_step: int
    kind: ToldKind
    launch_seq: int
    program: int
    def __init__(self, launch_seq: _Optional[int] = ..., kind: _Optional[_Union[ToldKind, str]] = ..., program: _Optional[int] = ..., first_step: _Optional[int] = ..., count: _Optional[int] = ..., asked: bool = ...) -> None: ...

class TrainSpec(_message.Message):
    __slots__ = ["compile", "compute_dtype", "early_stop_metric", "early_stop_patience", "global_batch", "gradient_dtype", "log_every", "loss_scale", "loss_scale_window", "seed", "sequence", "steps", "steps_per_launch", "tf32", "validate_every", "validation_batches"]
    COMPILE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_DTYPE_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOP_METRIC_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOP_PATIENCE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    LOG_EVERY_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_LAUNCH_FIELD_NUMBER: _ClassVar[int]
    TF32_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_EVERY_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_BATCHES_FIELD_NUMBER: _ClassVar[int]
    compile: bool
    compute_dtype: str
    early_stop_metric: str
    early_stop_patience: int
    global_batch: int
    gradient_dtype: str
    log_every: int
    loss_scale: float
    loss_scale_window: int
    seed: int
    sequence: int
    steps: int
    steps_per_launch: int
    tf32: bool
    validate_every: int
    validation_batches: int
    def __init__(self, global_batch: _Optional[int] = ..., sequence: _Optional[int] = ..., steps: _Optional[int] = ..., seed: _Optional[int] = ..., steps_per_launch: _Optional[int] = ..., log_every: _Optional[int] = ..., validate_every: _Optional[int] = ..., validation_batches: _Optional[int] = ..., compile: bool = ..., compute_dtype: _Optional[str] = ..., tf32: bool = ..., gradient_dtype: _Optional[str] = ..., loss_scale: _Optional[float] = ..., loss_scale_window: _Optional[int] = ..., early_stop_patience: _Optional[int] = ..., early_stop_metric: _Optional[str] = ...) -> None: ...

class Up(_message.Message):
    __slots__ = ["actor_event", "actor_reply", "checkpoint_committed", "comm_up", "heartbeat", "launch_done", "leave", "loaded", "log_lines", "log_piece", "mesh_error", "mesh_released", "piece", "register", "resume_mesh", "snapshot_copied", "snapshots_held", "state_saved", "term", "weights_saved"]
    ACTOR_EVENT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_REPLY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMM_UP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_DONE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    LOG_PIECE_FIELD_NUMBER: _ClassVar[int]
    MESH_ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_RELEASED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    RESUME_MESH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_HELD_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COPIED_FIELD_NUMBER: _ClassVar[int]
    STATE_SAVED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_SAVED_FIELD_NUMBER: _ClassVar[int]
    actor_event: ActorEvent
    actor_reply: ActorReply
    checkpoint_committed: CheckpointCommitted
    comm_up: CommUp
    heartbeat: Heartbeat
    launch_done: LaunchDone
    leave: Leave
    loaded: Loaded
    log_lines: LogLines
    log_piece: LogPiece
    mesh_error: MeshError
    mesh_released: MeshReleased
    piece: Frame
    register: Register
    resume_mesh: ResumeMesh
    snapshot_copied: SnapshotCopied
    snapshots_held: SnapshotsHeld
    state_saved: StateSaved
    term: int
    weights_saved: WeightsSaved
    def __init__(self, term: _Optional[int] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., loaded: _Optional[_Union[Loaded, _Mapping]] = ..., comm_up: _Optional[_Union[CommUp, _Mapping]] = ..., launch_done: _Optional[_Union[LaunchDone, _Mapping]] = ..., weights_saved: _Optional[_Union[WeightsSaved, _Mapping]] = ..., mesh_released: _Optional[_Union[MeshReleased, _Mapping]] = ..., mesh_error: _Optional[_Union[MeshError, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., actor_reply: _Optional[_Union[ActorReply, _Mapping]] = ..., actor_event: _Optional[_Union[ActorEvent, _Mapping]] = ..., piece: _Optional[_Union[Frame, _Mapping]] = ..., state_saved: _Optional[_Union[StateSaved, _Mapping]] = ..., checkpoint_committed: _Optional[_Union[CheckpointCommitted, _Mapping]] = ..., snapshots_held: _Optional[_Union[SnapshotsHeld, _Mapping]] = ..., snapshot_copied: _Optional[_Union[SnapshotCopied, _Mapping]] = ..., resume_mesh: _Optional[_Union[ResumeMesh, _Mapping]] = ..., log_lines: _Optional[_Union[LogLines, _Mapping]] = ..., log_piece: _Optional[_Union[LogPiece, _Mapping]] = ...) -> None: ...

class WatchHostActor(_message.Message):
    __slots__ = ["id", "ref"]
    ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    id: int
    ref: HostActorRef
    def __init__(self, id: _Optional[int] = ..., ref: _Optional[_Union[HostActorRef, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ["from_log_line", "from_step_record", "job_id"]
    FROM_LOG_LINE_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_RECORD_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    from_log_line: int
    from_step_record: int
    job_id: int
    def __init__(self, job_id: _Optional[int] = ..., from_step_record: _Optional[int] = ..., from_log_line: _Optional[int] = ...) -> None: ...

class WeightsSaved(_message.Message):
    __slots__ = ["error", "mesh_gen"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    error: RuntimeError
    mesh_gen: int
    def __init__(self, mesh_gen: _Optional[int] = ..., error: _Optional[_Union[RuntimeError, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ["cluster_id", "heartbeat_ms", "meshes", "takes_logs", "worker_lost_ms"]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    MESHES_FIELD_NUMBER: _ClassVar[int]
    TAKES_LOGS_FIELD_NUMBER: _ClassVar[int]
    WORKER_LOST_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    heartbeat_ms: int
    meshes: _containers.RepeatedScalarFieldContainer[int]
    takes_logs: bool
    worker_lost_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., heartbeat_ms: _Optional[int] = ..., worker_lost_ms: _Optional[int] = ..., meshes: _Optional[_Iterable[int]] = ..., takes_logs: bool = ...) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ["address", "busy_devices", "checkpoint_roots", "data_roots", "device_kind", "device_name", "device_profile", "devices", "disk_bytes", "host", "host_cores", "host_memory_bytes", "last_seen_s", "memory_bytes", "metrics_address", "name", "no_scratch_dir", "note", "state", "threads_per_device", "version"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BUSY_DEVICES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ROOTS_FIELD_NUMBER: _ClassVar[int]
    DATA_ROOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_PROFILE_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOST_CORES_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    HOST_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    NO_SCRATCH_DIR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    THREADS_PER_DEVICE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    address: str
    busy_devices: int
    checkpoint_roots: _containers.RepeatedCompositeFieldContainer[DataRoot]
    data_roots: _containers.RepeatedCompositeFieldContainer[DataRoot]
    device_kind: str
    device_name: str
    device_profile: str
    devices: int
    disk_bytes: int
    host: str
    host_cores: int
    host_memory_bytes: int
    last_seen_s: float
    memory_bytes: int
    metrics_address: str
    name: str
    no_scratch_dir: bool
    note: str
    state: str
    threads_per_device: int
    version: str
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., state: _Optional[str] = ..., devices: _Optional[int] = ..., busy_devices: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., address: _Optional[str] = ..., metrics_address: _Optional[str] = ..., last_seen_s: _Optional[float] = ..., device_profile: _Optional[str] = ..., threads_per_device: _Optional[int] = ..., host_cores: _Optional[int] = ..., device_kind: _Optional[str] = ..., device_name: _Optional[str] = ..., data_roots: _Optional[_Iterable[_Union[DataRoot, _Mapping]]] = ..., checkpoint_roots: _Optional[_Iterable[_Union[DataRoot, _Mapping]]] = ..., note: _Optional[str] = ..., host_memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., no_scratch_dir: bool = ..., version: _Optional[str] = ...) -> None: ...

class WorkerLogReply(_message.Message):
    __slots__ = ["end", "live", "next", "note", "text"]
    END_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    end: bool
    live: bool
    next: int
    note: str
    text: bytes
    def __init__(self, text: _Optional[bytes] = ..., next: _Optional[int] = ..., end: bool = ..., live: bool = ..., note: _Optional[str] = ...) -> None: ...

class WorkerLogRequest(_message.Message):
    __slots__ = ["kept", "what", "worker"]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    kept: bool
    what: FetchLog
    worker: str
    def __init__(self, worker: _Optional[str] = ..., what: _Optional[_Union[FetchLog, _Mapping]] = ..., kept: bool = ...) -> None: ...

class WorkersReply(_message.Message):
    __slots__ = ["truncated", "workers"]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    truncated: bool
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class WorkersRequest(_message.Message):
    __slots__ = ["after_name"]
    AFTER_NAME_FIELD_NUMBER: _ClassVar[int]
    after_name: str
    def __init__(self, after_name: _Optional[str] = ...) -> None: ...

class WriteState(_message.Message):
    __slots__ = ["acked", "id", "tensors"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedScalarFieldContainer[int]
    id: int
    tensors: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, id: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ..., acked: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteTensors(_message.Message):
    __slots__ = ["launch_seq", "mesh_gen", "tensors"]
    LAUNCH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESH_GEN_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    launch_seq: int
    mesh_gen: int
    tensors: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, mesh_gen: _Optional[int] = ..., launch_seq: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class ErrorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ActorEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ToldKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ActorFate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StoryForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class WorkerOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
