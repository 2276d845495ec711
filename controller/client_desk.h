// The clients of one job and what they have asked: checked, in order, answered exactly once.
//
// An ask waits here until the mesh takes it (Take), and is outstanding until its answer is told
// (Answer) or everything fails at once (FailAll). A client that is gone is told nothing more; what
// it asked is still carried out, since what was taken may have changed the state already, but what
// waits is dropped. Thread rule: one thread. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ir/job.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

using ClientId = Id<struct ClientTag, uint64_t>;

struct DeskLimits {
  int32_t credits = 64;                       // unanswered asks of a client
  int64_t waiting_bytes = int64_t{64} << 20;  // of all that waits
};

struct ClientAsk {
  ClientId client;
  uint64_t id = 0;
  proto::ClientAsk ask;
};

class ClientDesk {
 public:
  explicit ClientDesk(DeskLimits limits = {}) : limits_(limits) {}

  void Attach(ClientId client) { unanswered_.try_emplace(client); }
  // False: it was not attached.
  bool Detach(ClientId client);
  bool attached(ClientId client) const { return unanswered_.contains(client); }
  bool empty() const { return unanswered_.empty(); }
  std::vector<ClientId> clients() const;

  // Checks the ask against the job and keeps it. Errors: kNotFound: unknown program or tensor;
  // kInvalidArgument naming an input that is missing, unknown or of another type;
  // kFailedPrecondition: a program that this job's driver runs itself; kResourceExhausted: more
  // than credits or bytes allow. kAlreadyExists: an id that is unanswered, which is a defect of the
  // client.
  Status Offer(ClientId client, uint64_t id, proto::ClientAsk ask, const ir::JobRequest& job);

  // The next ask to carry out, or nothing. It counts as unanswered until Answer().
  std::optional<ClientAsk> Take();
  // The client may ask one more. False: it is gone, and hears nothing.
  bool Answer(ClientId client, uint64_t id);
  bool waiting() const { return !queue_.empty(); }

  // Everything that is unanswered, dropped: its clients are owed a failure.
  std::vector<std::pair<ClientId, uint64_t>> DropAll();

  const DeskLimits& limits() const { return limits_; }

 private:
  const DeskLimits limits_;
  std::map<ClientId, std::set<uint64_t>> unanswered_;  // of every client that is there
  std::deque<ClientAsk> queue_;
  int64_t waiting_bytes_ = 0;
};

// What a client may call on the job, and with which inputs.
std::vector<proto::ProgramSignature> SignaturesOf(const ir::JobRequest& job);

}  // namespace meshwright::controller
