from meshwright._proto import meshwright_pb2 as _meshwright_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
WANTED_DATA: WantedKind
WANTED_MODEL: WantedKind
WANTED_WEIGHTS: WantedKind

class ClientFile(_message.Message):
    __slots__ = ["below", "head", "path", "root", "sampled", "sha256", "size_bytes"]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    below: str
    head: bytes
    path: str
    root: str
    sampled: str
    sha256: str
    size_bytes: int
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., root: _Optional[str] = ..., below: _Optional[str] = ..., sampled: _Optional[str] = ..., head: _Optional[bytes] = ...) -> None: ...

class JobFileError(_message.Message):
    __slots__ = ["code", "column", "hint", "key", "line", "message", "place"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    code: int
    column: int
    hint: str
    key: str
    line: int
    message: str
    place: str
    def __init__(self, key: _Optional[str] = ..., place: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., code: _Optional[int] = ...) -> None: ...

class ResolveReply(_message.Message):
    __slots__ = ["errors", "job", "notes", "summary", "wanted"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[JobFileError]
    job: _meshwright_pb2.JobRequest
    notes: _containers.RepeatedScalarFieldContainer[str]
    summary: str
    wanted: _containers.RepeatedCompositeFieldContainer[WantedFiles]
    def __init__(self, job: _Optional[_Union[_meshwright_pb2.JobRequest, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[_Union[JobFileError, _Mapping]]] = ..., wanted: _Optional[_Iterable[_Union[WantedFiles, _Mapping]]] = ..., summary: _Optional[str] = ...) -> None: ...

class ResolveRequest(_message.Message):
    __slots__ = ["environment", "file", "files", "folder", "listed", "overrides", "own", "text", "working_folder"]
    class EnvironmentEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORKING_FOLDER_FIELD_NUMBER: _ClassVar[int]
    environment: _containers.ScalarMap[str, str]
    file: str
    files: _containers.RepeatedCompositeFieldContainer[ClientFile]
    folder: str
    listed: bool
    overrides: _containers.RepeatedScalarFieldContainer[str]
    own: _meshwright_pb2.JobRequest
    text: str
    working_folder: str
    def __init__(self, text: _Optional[str] = ..., file: _Optional[str] = ..., overrides: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., folder: _Optional[str] = ..., working_folder: _Optional[str] = ..., files: _Optional[_Iterable[_Union[ClientFile, _Mapping]]] = ..., listed: bool = ..., own: _Optional[_Union[_meshwright_pb2.JobRequest, _Mapping]] = ...) -> None: ...

class WantedFiles(_message.Message):
    __slots__ = ["key", "kind", "path", "weights"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    key: str
    kind: WantedKind
    path: str
    weights: bool
    def __init__(self, key: _Optional[str] = ..., path: _Optional[str] = ..., kind: _Optional[_Union[WantedKind, str]] = ..., weights: bool = ...) -> None: ...

class WantedKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
