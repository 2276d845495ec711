"""The connection to the controller: address, token, deadlines, and errors for people.

gRPC is loaded when the first connection is made: it takes as long as everything else together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ._errors import Code, Error, make_error
from ._identity import check_address, folder_of, load_identity, open_channel, speaks_tls

Reply = TypeVar("Reply")

DEFAULT_ADDRESS = "127.0.0.1:7700"
CHUNK_BYTES = 1 << 20
_MAX_MESSAGE_BYTES = 4 << 20
_SERVICES = {
    "Job": "meshwright.v1.JobService",
    "Log": "meshwright.v1.LogService",
    "Admin": "meshwright.v1.AdminService",
    "Blob": "meshwright.v1.BlobService",
    "Checkpoint": "meshwright.v1.CheckpointService",
    "JobFile": "meshwright.v1.JobFileService",
}


def _path(method: str) -> str:
    service, name = method.split(".")
    return f"/{_SERVICES[service]}/{name}"


def _as_it_is(message: bytes) -> bytes:
    return message


class Channel:
    """One connection; thread-safe. Every call has a deadline, in seconds."""

    def __init__(
        self,
        address: str | None,
        token: str | None,
        timeout: float,
        tls_dir: str | None = None,
    ) -> None:
        self.address = address or os.environ.get("MESHWRIGHT_ADDRESS") or DEFAULT_ADDRESS
        check_address(self.address)
        import grpc

        secret = token if token is not None else os.environ.get("MESHWRIGHT_TOKEN", "")
        self.timeout = timeout
        self._folder = folder_of(self.address, tls_dir)
        self._identity = load_identity(self._folder) if self._folder else None
        self._rpc_error = grpc.RpcError
        self._metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        keepalive_ms = 10_000
        self.grpc = open_channel(
            self.address,
            self._identity,
            options=[
                ("grpc.keepalive_time_ms", keepalive_ms),
                ("grpc.keepalive_timeout_ms", keepalive_ms // 2),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                # Large pieces in few frames, read as they come.
                ("grpc.http2.max_frame_size", 1 << 20),
                ("grpc.http2.lookahead_bytes", 8 << 20),
                ("grpc.experimental.tcp_read_chunk_size", 1 << 20),
                ("grpc.experimental.tcp_min_read_chunk_size", 1 << 20),
                ("grpc.experimental.tcp_max_read_chunk_size", 4 << 20),
                # Many clients of one process are many connections, as they are in C++.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self._calls: dict[str, Any] = {}

    def close(self) -> None:
        """Ends all calls."""
        self.grpc.close()

    def unary(
        self, method: str, request: Any, reply: type[Reply], timeout: float | None = None
    ) -> Reply:
        """One request, one reply: unary("Job.Get", JobIdRequest(...), JobInfo)."""
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self.grpc.unary_unary(
                _path(method),
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=reply.FromString,  # type: ignore[attr-defined]
            )
        given = self.timeout if timeout is None else timeout
        try:
            answer: Reply = call(request, timeout=given, metadata=self._metadata)
            return answer
        except self._rpc_error as error:
            raise self.explain(error, given) from None

    def stream(
        self,
        method: str,
        request: Any,
        decode: Callable[[bytes], Reply],
        timeout: float | None,
    ) -> Iterator[Reply]:
        """One request, many replies. Who stops to iterate ends the call."""
        call: Any = self.grpc.unary_stream(
            _path(method),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=decode,
        )(request, timeout=timeout, metadata=self._metadata)
        try:
            yield from call
        except self._rpc_error as error:
            raise self.explain(error, timeout or 0) from None
        finally:
            call.cancel()

    def send(
        self, method: str, requests: Iterable[Any], reply: type[Reply], timeout: float
    ) -> Reply:
        """Many requests, one reply."""
        call = self.grpc.stream_unary(
            _path(method),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,  # type: ignore[attr-defined]
        )
        try:
            answer: Reply = call(iter(requests), timeout=timeout, metadata=self._metadata)
            return answer
        except self._rpc_error as error:
            raise self.explain(error, timeout) from None

    def converse(self, method: str, requests: Iterator[bytes]) -> Any:
        """Many requests, many replies, both as bytes: a call of grpc."""
        return self.grpc.stream_stream(
            _path(method), request_serializer=_as_it_is, response_deserializer=None
        )(requests, metadata=self._metadata)

    def explain(self, error: Any, timeout: float) -> Error:
        """The exception of a failed call."""
        code = error.code().value[0]
        details = error.details() or ""
        if code == Code.DEADLINE_EXCEEDED:
            details = (
                f"the controller at {self.address} did not answer within {timeout:g} s; see "
                "whether its process is stopped or its machine overloaded, or name another address"
            )
        elif code == Code.UNAVAILABLE and self._identity and self._identity.refusal():
            # It held when this client was made.
            details = f"{self._folder}: {self._identity.refusal()}"
        elif code == Code.UNAVAILABLE and self._folder and "CERTIFICATE_VERIFY" in details:
            details = (
                f"who answers at {self.address} shows a certificate that the authority in "
                f"{self._folder}/ca.pem has not signed; use an identity of that cluster "
                "(docs/security.md)"
            )
        elif code == Code.UNAVAILABLE and not self._folder and speaks_tls(self.address):
            details = (
                f"who answers at {self.address} speaks TLS, and this was said in the clear; name "
                "the folder of an identity by Client(tls_dir=...) or MESHWRIGHT_TLS_DIR"
            )
        elif code == Code.UNAVAILABLE:
            details = (
                f"no controller answers at {self.address} ({details.replace('; ', ', ')}); start "
                "one with `meshwright up` or `meshwright controller`, or name it by "
                "Client(address) or MESHWRIGHT_ADDRESS"
            )
        return make_error(code, details)
