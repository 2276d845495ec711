// Diagnosis: of ranks that stand still, who waits for whom, and for whom all of them wait.
//
// Programs are static, so a place in one says whom a rank waits for: a RECV for the rank that has
// not sent yet, a SEND on a full channel for the rank that has not received, a collective for the
// members that have entered it less often. Who waits for nobody, and is waited for, is the root: it
// computes, reads, or is stuck. Where there is no root, ranks wait for each other in a circle.
//
// Marks of ranks that go on are of different moments, and what comes out of them means nothing.
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "controller/step_lists.h"
#include "proto/mesh_marks.h"

namespace meshwright::controller {

// A rank, and what its process does as a whole.
struct RankAt {
  proto::RankMarks marks;
  std::string doing;  // "while it loaded the programs"
};

// A rank and where it is, in words: "at instruction 412 (RUN stage1/f of microbatch 3) of step 17".
struct RankPlaceText {
  int rank = -1;
  std::string where;
  friend bool operator==(const RankPlaceText&, const RankPlaceText&) = default;
};

struct Diagnosis {
  // The one that most ranks wait for, then the others. Of a circle: all in it.
  std::vector<RankPlaceText> roots;
  bool circle = false;
  // All that wait for the first root, or for the circle, directly or through others; by rank.
  std::vector<RankPlaceText> waiters;
  std::map<int, std::vector<int>> waits;  // by rank that waits: for whom, directly
};

// lists: null: only collectives are understood, and instructions have no names. Ranks of which
// there are no marks are known by those that wait for them.
Diagnosis Diagnose(const StepLists* lists, const std::vector<RankAt>& ranks);

// "rank 1 (worker 'b', device 0) at instruction ...; 3 ranks wait for it: rank 0 at ...". name: of
// a rank. REQUIRES a root.
std::string Describe(const Diagnosis& diagnosis, const std::function<std::string(int)>& name);

}  // namespace meshwright::controller
