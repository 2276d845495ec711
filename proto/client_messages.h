// What a client and the controller tell each other in a session, as plain values.
//
// A session belongs to one job. Its calls are numbered by the client and answered exactly once, in
// the order in which they came: by Done or by Failed. A session with a name outlives its stream:
// answers are kept until the client says that they have come, a client that opens a stream with
// the same name again is told those that it missed, and what it asks twice is done once. Thread
// rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/job.h"
#include "proto/actor_ref.h"
#include "proto/messages.h"

namespace meshwright::proto {

// Initial metadata of a stream that the controller has taken: it comes before anything is said,
// which is long where the job waits for devices.
inline constexpr const char* kSessionTaken = "meshwright-session-taken";

// ---- Client -> controller -----------------------------------------------------------------------

// First message: a job to submit, or one that is there.
struct SessionOpen {
  std::string op_id;  // of the submission; same op_id, same job
  std::optional<ir::JobRequest> job;
  int64_t job_id = 0;
  std::string session;    // a name that nobody else uses; "": the session ends with its stream
  bool again = false;     // it was open before, so it must not begin anew
  std::string tool = {};  // of a job that is submitted: the command whose session it is
};

struct CallProgram {
  std::string program;
  std::vector<NamedTensor> inputs;
  Fetch fetch = Fetch::kAll;
  std::optional<int64_t> step;  // what the program's noise and data are keyed by; else it counts on
  friend bool operator==(const CallProgram&, const CallProgram&) = default;
};

// Tensors of the state as they are after the calls before; none named: all weights.
struct ReadState {
  std::vector<std::string> names;
  friend bool operator==(const ReadState&, const ReadState&) = default;
};

struct WriteState {
  std::vector<NamedTensor> tensors;
  friend bool operator==(const WriteState&, const WriteState&) = default;
};

using ClientAsk = std::variant<CallProgram, ReadState, WriteState>;

struct SessionAsk {
  uint64_t id = 0;
  ClientAsk ask;
  std::vector<uint64_t> acked;  // asks whose answers have come since the last message
};
struct SessionAck {
  std::vector<uint64_t> ids;
};

// Host actors of the session's job (controller/actor_table.h). Answered by ActorDone or AskFailed,
// in no order among each other or with asks. At most so many may be unanswered:
inline constexpr size_t kMostActorAsks = 256;
inline constexpr size_t kMostActorWatches = 1024;  // these are counted by themselves
struct SpawnHostActor {
  std::string type;
  std::string args;
  std::string worker;  // "": any
  friend bool operator==(const SpawnHostActor&, const SpawnHostActor&) = default;
};
struct AskHostActor {
  ActorRef ref;
  std::string payload;
  int64_t deadline_ms = 0;  // from its arrival at the controller
  bool tell = false;        // done once its mailbox has it
  friend bool operator==(const AskHostActor&, const AskHostActor&) = default;
};
struct StopHostActor {
  ActorRef ref;
  friend bool operator==(const StopHostActor&, const StopHostActor&) = default;
};
// Done once this life of it is over.
struct WatchHostActor {
  ActorRef ref;
  friend bool operator==(const WatchHostActor&, const WatchHostActor&) = default;
};
using ActorAsk = std::variant<SpawnHostActor, AskHostActor, StopHostActor, WatchHostActor>;
struct SessionActorAsk {
  uint64_t id = 0;
  ActorAsk ask;
};

// The client has finished, and has the answers that it wants: what is unanswered may be dropped.
struct SessionClose {
  bool end_job = false;  // whoever else drives the job: it ends well
};

using ClientUp = std::variant<SessionOpen, SessionAsk, SessionAck, SessionActorAsk, SessionClose>;

// ---- Controller -> client -----------------------------------------------------------------------

struct ProgramSignature {
  std::string name;
  std::vector<NamedTensor> inputs;  // that come from the client; without bytes
  friend bool operator==(const ProgramSignature&, const ProgramSignature&) = default;
};

// The job runs: calls may come, at most `credits` unanswered ones at a time.
struct SessionOpened {
  int64_t job_id = 0;
  int32_t credits = 0;
  std::vector<ProgramSignature> programs;
  std::vector<uint64_t> held;  // asks of this session that came, or were answered, before
  friend bool operator==(const SessionOpened&, const SessionOpened&) = default;
};

// Tensors come as the blocks that devices hold: together they cover each one.
struct AskDone {
  uint64_t id = 0;
  int64_t step = 0;
  double seconds = 0;
  std::map<std::string, double> values;
  std::vector<TensorTile> tensors;
  friend bool operator==(const AskDone&, const AskDone&) = default;
};

struct AskFailed {
  uint64_t id = 0;
  RuntimeError error;
  friend bool operator==(const AskFailed&, const AskFailed&) = default;
};

struct ActorDone {
  uint64_t id = 0;
  ActorRef ref;         // of SpawnHostActor; of WatchHostActor: the life that has begun
  std::string payload;  // of AskHostActor
  ActorFate fate = ActorFate::kUnspecified;  // of WatchHostActor
  RuntimeError why = {};                     // of WatchHostActor
  friend bool operator==(const ActorDone&, const ActorDone&) = default;
};

// The stream ends, and the session with it. A stream that ends without it has broken.
struct SessionEnd {
  friend bool operator==(const SessionEnd&, const SessionEnd&) = default;
};

using ClientDown = std::variant<SessionOpened, AskDone, AskFailed, ActorDone, SessionEnd>;

}  // namespace meshwright::proto
