// What one controller gives to its callers at most. Strangers count: what is here holds before
// anyone has shown a token.
#pragma once

#include <cstdint>

#include "controller/blob_store.h"

namespace meshwright::controller {

struct Limits {
  int64_t max_connections = 4096;  // at once; fewer where the process may not have the descriptors
  int max_streams = 128;           // calls at once of one connection
  // Of messages under way. Beyond it calls are cancelled, from connections in turn.
  int64_t rpc_memory_bytes = int64_t{512} << 20;
  int max_call_threads = 1024;           // uploads and downloads have one each
  int64_t handshake_ms = 5000;           // then a connection that is no HTTP/2 is closed
  int64_t idle_connection_ms = 600'000;  // then a connection without calls is closed
  int64_t request_ms = 10'000;           // then a request that has not come whole is cancelled
  int64_t upload_idle_ms = 60'000;       // then an upload that sends nothing is cancelled
  // Of the disk of checkpoints that lie with the controller: a save that would leave less fails,
  // since the controller's own state may be on the same disk.
  int64_t keep_free_bytes = int64_t{256} << 20;
  BlobLimits blobs;
  // Of the requests of all jobs that have not ended: they are in memory and on disk.
  int64_t job_request_bytes = int64_t{256} << 20;
};

}  // namespace meshwright::controller
