// The agent's way to the controller: one session for control, another connection for bulk data.
//
// Thread rule: Session::Send and Close from any thread, Receive from one; the rest thread-safe.
// Ownership: sessions may not outlive their link.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "proto/file_messages.h"
#include "proto/messages.h"

namespace meshwright::worker {

class Session {
 public:
  virtual ~Session() = default;
  // Queues; false once the session has ended. Never blocks.
  virtual bool Send(proto::UpMessage message) = 0;
  // The next message. Error: why the session ended; kCancelled after Close().
  virtual Result<proto::DownMessage> Receive() = 0;
  // Ends the session after what is queued has been sent, within flush_ms.
  virtual void Close(int64_t flush_ms) = 0;
};

class ControllerLink {
 public:
  virtual ~ControllerLink() = default;
  // Errors: kUnavailable when there is no connection within connect_ms; kPermissionDenied,
  // kFailedPrecondition where TLS is why there never is one. Refusals come from Receive().
  virtual Result<std::unique_ptr<Session>> OpenSession(int64_t connect_ms) = 0;

  // Bulk calls ask this while they wait for a connection, many times a second, and between chunks
  // or tiles; true makes them return kCancelled.
  using CancelCheck = std::function<bool()>;

  // Appends the blob's bytes from `offset` on to `sink`, chunk by chunk. The sink's error ends the
  // call.
  using ChunkSink = std::function<Status(std::string_view)>;
  virtual Status FetchBlob(const std::string& sha256, int64_t offset, const CancelCheck& cancelled,
                           const ChunkSink& sink) = 0;

  // Sends tiles until `next` gives none. Errors: the controller's, naming the file; those of
  // `next`.
  using TileSource = std::function<Result<std::optional<proto::WeightTile>>()>;
  virtual Status PutTiles(const CancelCheck& cancelled, const TileSource& next) = 0;

  // A file of a save that lies with the controller: durable on return. Errors: the controller's,
  // naming the file.
  virtual Status PutShard(const CancelCheck& cancelled, const proto::ShardHead& head,
                          const std::vector<std::string_view>& parts) = 0;
  // A part of a file of a checkpoint there, chunk by chunk. Errors: the controller's; the sink's.
  virtual Status ReadFile(const CancelCheck& cancelled, const proto::FileRange& range,
                          const ChunkSink& sink) = 0;

  // Makes the bulk calls that are under way return kCancelled, also those that wait for a
  // connection.
  virtual void CancelBulk() = 0;
};

struct LinkOptions {
  std::string address;  // host:port
  std::string token;    // empty: none
  std::string tls_dir;  // of the worker's identity; empty: in the clear
};
// Without an identity that can be read every connection fails, with the reason.
std::unique_ptr<ControllerLink> MakeGrpcLink(LinkOptions options);

}  // namespace meshwright::worker
