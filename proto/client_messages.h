// What a client and the controller tell each other in a session, as plain values.
//
// A session belongs to one job. Its calls are numbered by the client and answered exactly once, in
// the order in which they came: by Done or by Failed. Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/job.h"
#include "proto/messages.h"

namespace meshwright::proto {

// ---- Client -> controller -----------------------------------------------------------------------

// First message: a job to submit, or one that is there.
struct SessionOpen {
  std::string op_id;  // of the submission; same op_id, same job
  std::optional<ir::JobRequest> job;
  int64_t job_id = 0;
};

struct CallProgram {
  std::string program;
  std::vector<NamedTensor> inputs;
  bool fetch = true;            // the program's tensors come back
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
};

// The client has finished: what it drives ends well.
struct SessionClose {};

using ClientUp = std::variant<SessionOpen, SessionAsk, SessionClose>;

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

using ClientDown = std::variant<SessionOpened, AskDone, AskFailed>;

}  // namespace meshwright::proto
