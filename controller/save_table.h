// The save that a mesh has under way: copied by its launch, written by every member, committed by
// one of them.
//
// A pure value: the core tells it what comes in and does what it says. One save at a time; what
// comes for another one is not of this table. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/manifest.h"
#include "ir/checkpoint_spec.h"
#include "proto/messages.h"

namespace meshwright::controller {

struct SaveRequest {
  LaunchSeq save{0};
  int64_t step = 0;  // steps that are done
  ir::FolderRef folder;
  std::string temporary;
  checkpoint::Manifest head;  // without files and tensors
  std::string job;            // the request, for who has the folder alone
  int64_t keep = 0;
  std::string export_dtype = {};  // as CommitCheckpoint
};

// How long the slowest member took.
struct SaveSeconds {
  double copy = 0;  // the job stood still
  double write = 0;
};

class SaveTable {
 public:
  bool busy() const { return request_.has_value(); }
  // A member was asked to commit: there may be a checkpoint, whatever is heard of it.
  bool committing() const { return busy() && (committing_ || again_); }
  // Of the save that is being committed.
  const proto::CommitCheckpoint* commit() const {
    return busy() && committing_ ? &commit_ : nullptr;
  }
  const SaveRequest* current() const { return request_ ? &*request_ : nullptr; }

  // REQUIRES !busy(). `members`: those that write something. again: an earlier controller began it,
  // and may have had it committed.
  void Begin(SaveRequest request, size_t members, bool again = false);

  // What a member has written. The commit, once all have. Errors: the member's; kDataLoss: together
  // they are no cover. After an error the save is over. A message of another save: nothing.
  Result<std::optional<proto::CommitCheckpoint>> On(size_t member, const proto::StateSaved& m,
                                                    MeshGeneration mesh_gen);
  // The step whose checkpoint is there. Errors: the member's. After both the save is over. A
  // message of another save: nothing.
  Result<std::optional<int64_t>> On(const proto::CheckpointCommitted& m);
  void Abandon() { request_.reset(); }
  // Of the last save that began.
  const SaveSeconds& seconds() const { return seconds_; }

 private:
  bool IsCurrent(LaunchSeq save) const { return request_ && request_->save == save; }

  std::optional<SaveRequest> request_;
  checkpoint::Manifest manifest_;
  std::vector<bool> written_;  // by member
  bool committing_ = false;
  bool again_ = false;
  proto::CommitCheckpoint commit_;
  SaveSeconds seconds_;
};

}  // namespace meshwright::controller
