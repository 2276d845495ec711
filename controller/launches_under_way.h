// LaunchesUnderWay: what a mesh was told to run and has not reported whole, in its order.
//
// Members work in order, so only the oldest launch can be complete. Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/mesh_work.h"
#include "proto/messages.h"

namespace meshwright::controller {

class LaunchesUnderWay {
 public:
  // The number by which `members` members report it; numbers are never used again.
  LaunchSeq Add(PlannedLaunch launch, std::optional<AskId> ask, size_t members);
  // Of an earlier controller, the launches before this one are over. REQUIRES that none is under
  // way.
  void StartAt(LaunchSeq next);
  // What each member is told of the launch that was added last: for those that do not hear it.
  void Keep(std::vector<proto::DownBody> messages);
  // What a member was told of the launches behind `heard`, in order.
  std::vector<proto::DownBody> Unheard(size_t member, LaunchSeq heard) const;
  // What member number `member` reports. Errors: kNotFound: it has done so before, or nobody waits
  // for it; kInvalidArgument: of another number of steps.
  Status Report(size_t member, proto::LaunchDone report);
  // The oldest one, once all members have reported it.
  std::optional<LaunchResult> TakeComplete();
  // Nobody waits any more.
  void Abandon() { launches_.clear(); }

  size_t size() const { return launches_.size(); }
  bool empty() const { return launches_.empty(); }
  // The oldest one runs a program of its devices: it is not of the state.
  bool runs_program() const {
    return !launches_.empty() && launches_.front().launch.kind == LaunchKind::kProgram &&
           launches_.front().launch.count > 0;
  }

 private:
  struct Launch {
    LaunchSeq seq{0};
    PlannedLaunch launch;
    std::optional<AskId> ask;
    std::vector<std::optional<proto::LaunchDone>> reports;  // by member
    std::vector<proto::DownBody> messages;                  // by member; none: not kept
  };

  std::deque<Launch> launches_;
  uint64_t next_seq_ = 1;
};

}  // namespace meshwright::controller
