// MeshLog: what a worker was told of a mesh and what came of it, as far as a controller may have to
// be told again: one that was restarted, or this one behind a broken connection.
//
// The newest launches are kept with their reports; old ones are forgotten once they are done, so
// that the log is bounded. A mesh can be held without a session from when it is connected until it
// is to end. Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "proto/messages.h"

namespace meshwright::worker {

class MeshLog {
 public:
  // Launches that are done, of which this many are kept, and so many bytes of what they reported.
  static constexpr size_t kMostLaunches = 512;
  static constexpr size_t kMostBytes = size_t{8} << 20;

  explicit MeshLog(const proto::LoadMesh& load);

  void Note(const proto::DownBody& told);
  void Note(const proto::UpBody& said);

  JobId job() const { return job_; }
  // Behind the end of its session, if that is not to be its own.
  bool can_be_held() const { return connected_ && !ends_; }
  int64_t grace_ms() const { return grace_ms_; }
  bool released() const { return released_; }

  // The first that is said of it in another session, and what follows.
  proto::ResumeMesh Resume() const;
  std::vector<proto::UpBody> Rest() const;

 private:
  struct Launch {
    proto::ToldLaunch told;
    std::optional<proto::LaunchDone> done;
    size_t bytes = 0;  // of what it reported
  };

  void Add(LaunchSeq seq, proto::ToldLaunch told);
  void On(const proto::Launch& launch);
  void NoteDone(const proto::LaunchDone& done);
  void Forget();

  const MeshGeneration mesh_gen_;
  const JobId job_;
  const int64_t grace_ms_;
  const std::vector<std::string> programs_;
  bool connected_ = false;
  bool ends_ = false;
  bool released_ = false;
  int64_t steps_done_ = 0;  // by the launches so far
  uint64_t next_seq_ = 1;
  std::deque<Launch> launches_;  // up to next_seq_
  size_t bytes_ = 0;
  std::optional<proto::StateSaved> saved_;
  std::optional<proto::CheckpointCommitted> committed_;
  std::optional<proto::MeshError> error_;  // the first one
};

}  // namespace meshwright::worker
