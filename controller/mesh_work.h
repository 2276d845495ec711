// What a run hands to its mesh, and what comes back: launches, and questions about the state.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "controller/client_desk.h"
#include "controller/driver.h"
#include "ir/step_record.h"
#include "proto/client_messages.h"
#include "proto/messages.h"

namespace meshwright::controller {

// Who waits for the answer of an ask.
struct AskId {
  SeatId seat;
  uint64_t id = 0;
};

struct ClientWork {
  AskId id;
  proto::ClientAsk ask;
};

struct MeshWork {
  PlannedLaunch launch;              // count 0: of the state, it runs no program
  std::optional<ClientWork> client;  // none: it is the driver's
  ir::StepRange record = {};         // of its steps, those that devices write down
};

// What a member wrote down of a launch.
struct MemberRecord {
  size_t member = 0;
  ir::ClockRound round;
  int64_t begin_ns = 0;  // it came to the launch, and was through it, by its worker's clock
  int64_t said_ns = 0;
  std::vector<ir::StepRecord> steps;
};

// All members have reported.
struct LaunchResult {
  PlannedLaunch launch;
  std::optional<AskId> ask;
  std::vector<proto::StepReport> reports;  // one per step, of all members together
  std::vector<proto::TensorTile> tensors;
  proto::SnapshotTaken snapshot = {};       // of the slowest member; of one that failed, the first
  std::vector<MemberRecord> recorded = {};  // of every member
};

}  // namespace meshwright::controller
