// StallWatch: whether the devices of a mesh still move, by the marks that come with heartbeats.
//
// The rule: while a program is launched, no mark of the mesh has moved for the longer of a base and
// a multiple of the usual step: the stall is named, once, by a diagnosis (controller/diagnosis.h).
// It is ended when nothing has moved for longer still, and nobody of those that all others wait for
// is at work: a rank at work computes, reads rows, would run if it had a core, or waits for a disk.
// So a slow peer is never ended, however slow it is, and one that is stopped or waits for what
// never comes is.
//
// The kernel says who is at work: the processor time of the rank's process in the last seconds, and
// the state of its thread at each heartbeat. A worker that is silent is not judged: its
// marks are old, and its lease ends.
//
// Thread rule: a value. Times are the core's, in milliseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/diagnosis.h"
#include "proto/mesh_marks.h"

namespace meshwright::controller {

struct StallRule {
  int64_t base_ms = 10'000;
  int64_t steps = 20;         // of the usual length
  int64_t end_ms = 60'000;    // 0: never
  int64_t silent_ms = 2'500;  // a worker that was heard before that is silent
};

enum class StallChange : uint8_t {
  kNone,
  kNamed,
  kMoves,  // it was named, and moves again
  kEnd,    // the mesh is to be ended
};
struct StallNews {
  StallChange change = StallChange::kNone;
  int64_t still_ms = 0;  // since it moved last
  Diagnosis diagnosis;   // kNamed, kEnd
  bool at_work = false;  // kNamed: one of its roots
  bool stopped = false;  // the process of the first root is, by a signal or a debugger
};

// A rank of which there are marks.
struct SeenRank {
  std::string worker;
  std::string doing;  // its process
  proto::RankMarks marks;
  int64_t heard_ms = 0;  // ago
  bool at_work = false;  // it computes, reads, would run if it had a core, or waits for a disk
  bool stopped = false;  // by a signal or a debugger
  int32_t pid = 0;       // of its process; 0: not known
};
struct StallView {
  int64_t still_ms = 0;     // since anything moved
  int64_t limit_ms = 0;     // of that, before it is a stall
  double usual_step_s = 0;  // 0: none is done yet
  std::map<int, SeenRank> ranks;
  Diagnosis diagnosis;
};

class StallWatch {
 public:
  explicit StallWatch(int64_t now_ms) : moved_ms_(now_ms) {}

  void Hear(const std::string& worker, const proto::MeshMarks& marks, int64_t now_ms);
  // A step that was done took so long.
  void OnStep(double seconds);
  // What there is to do, once for each change. workers: of the mesh; runs: a program is launched.
  StallNews Check(const StepLists* lists, const std::vector<std::string>& workers, bool runs,
                  const StallRule& rule, int64_t now_ms);
  bool named() const { return named_; }
  // What is known now, whether it is a stall or not.
  StallView See(const StepLists* lists, const StallRule& rule, int64_t now_ms) const;

 private:
  // One heartbeat.
  struct Seen {
    int64_t ms = 0;
    int64_t cpu_ms = 0;
    std::set<int> wants;  // ranks that ran, would have run or were in a disk
  };
  struct Member {
    proto::MeshMarks marks;
    int64_t heard_ms = 0;
    std::deque<Seen> lately;
  };

  bool IsAtWork(int rank) const;
  bool IsStopped(int rank) const;
  const Member* MemberOf(int rank) const;
  int64_t LimitMs(const StallRule& rule) const;
  std::vector<RankAt> RanksAt() const;
  const Diagnosis& Look(const StepLists* lists);

  int64_t moved_ms_;
  double usual_step_s_ = 0;  // 0: none is done yet
  bool named_ = false;
  int64_t looked_ms_ = -1;  // moved_ms_ that the diagnosis is of
  Diagnosis diagnosis_;
  std::map<std::string, Member> members_;  // by worker
};

}  // namespace meshwright::controller
