// JobSnapshots: what is known of the snapshots of a job in the memory of workers: who may hold
// some, and, between two runs, who has said what it holds.
//
// Thread rule: the core's thread. A value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/snapshot_start.h"

namespace meshwright::controller {

class JobSnapshots {
 public:
  // For a worker to say what it holds; then it counts as holding nothing.
  static constexpr int64_t kAnswerMs = 3'000;

  // A worker of a mesh that takes snapshots.
  void Add(const std::string& worker, MeshGeneration mesh_gen) {
    oldest_.emplace(worker, mesh_gen);
  }
  std::set<std::string> workers() const;
  // A snapshot of this mesh is whole on its members: nobody else holds what is needed. Returns who
  // may hold some of meshes before, which are to be dropped.
  std::set<std::string> NoteWhole(MeshGeneration mesh_gen, const std::set<std::string>& members);

  // Who held some when the controller died, and may come back until then.
  void Expect(const std::string& worker, int64_t until_ms) { expected_[worker] = until_ms; }
  // It has come. True: the last question is its, too.
  bool Arrive(const std::string& worker, int64_t now_ms);
  uint64_t query() const { return query_; }

  // A snapshot that members have and others are copying. One at a time.
  struct Copying {
    proto::SnapshotTaken taken;
    double step_seconds = 0;
    std::set<std::string> awaited;
  };
  void AwaitCopies(Copying copying) { copying_ = std::move(copying); }
  // The snapshot, once this worker was the last.
  std::optional<Copying> Copied(const std::string& worker, int64_t step);
  // The same, where it does not come to it any more.
  std::optional<Copying> CopierLost(const std::string& worker);
  // A copy of this mesh failed: there are no more of it.
  void GiveUpCopies(MeshGeneration mesh_gen) { no_copies_ = mesh_gen; }
  bool Copies(MeshGeneration mesh_gen) const { return no_copies_ != mesh_gen; }

  // Asks anew: earlier answers are forgotten. The number of the question.
  uint64_t Ask(std::set<std::string> workers, int64_t now_ms);
  // The same question, asked again now and then so that nobody thinks that it is over; nothing: it
  // is not time for it.
  static constexpr int64_t kAskAgainMs = 120'000;
  std::optional<uint64_t> AskAgain(int64_t now_ms);
  // What nobody waits for is nothing.
  void Answer(uint64_t query, SnapshotHolder holder);
  // The worker's memory is gone.
  void Lose(const std::string& worker);
  // Whether a start needs this worker's memory, once somebody has found out; nothing: not by these
  // answers.
  std::optional<bool> Needs(const std::string& worker) const;
  void NoteNeed(const std::string& worker, bool needs) { needs_[worker] = needs; }
  // Everyone has answered, or had the time to; nobody is expected any more.
  bool Settled(int64_t now_ms) const;
  std::vector<SnapshotHolder> holders() const;

 private:
  std::map<std::string, MeshGeneration> oldest_;  // that a worker may hold
  std::optional<Copying> copying_;
  MeshGeneration no_copies_{0};
  std::map<std::string, int64_t> expected_;  // until when
  uint64_t query_ = 0;                       // 0: nothing was asked
  int64_t asked_ms_ = 0;
  int64_t asked_again_ms_ = 0;
  std::set<std::string> awaited_;
  std::map<std::string, SnapshotHolder> answers_;
  std::map<std::string, bool> needs_;
};

}  // namespace meshwright::controller
