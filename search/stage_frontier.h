// The least sum of fills of stages whose periods and tails keep limits: the inner problem of the
// stage search, by dynamic programming from the last stage to the first.
//
// value(first, depth, port, free) = the least sum over stages that have layers [first, layers) on
// what is free, when `depth` stages are left to the end and the first of them has `port`. Depth
// decides how many microbatches are in flight, and so what fits memory; where it makes no
// difference from some depth on, the last depth stands for all greater ones. Every stage adds its
// fill and a tiny cost per stage and per device, so that among equals the fewest stages, then the
// fewest devices win.
//
// With L layers, F free states, E runs' entries, D depths and P ports a call takes
// O(L^2 D P^2 E) additions in unit stride; limits on the period make that far less near the
// optimum: few options keep them, and states with too few free devices for the layers behind, or
// too many for those before to have enough, do not matter.
//
// Thread rule: one thread at a time (it keeps its tables). Ownership: table and inventory outlive
// it. Source: Alpa (Zheng et al., OSDI'22) section 5, equation 3, with the state above.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "search/stage_inventory.h"
#include "search/stage_table.h"

namespace meshwright::search {

// What stages at depth d (the last stage: 1) must keep.
struct StageDepths {
  std::vector<int> in_flight;      // [d - 1]
  std::vector<int> pinned_option;  // [d - 1]; -1: any
  bool open = true;  // the last depth stands for greater ones too; false: exactly so many stages
  int count() const { return static_cast<int>(in_flight.size()); }
};

struct StageTies {
  double stage_s = 0;   // per stage
  double device_s = 0;  // per device that it takes
};

struct StageLimits {
  double period_s = std::numeric_limits<double>::infinity();
  double tail_s = std::numeric_limits<double>::infinity();
  double fill_s = std::numeric_limits<double>::infinity();  // only sums below this matter
};

struct StageFill {
  double fill_s = 0;  // with what ties add
  std::vector<StageChoice> stages;
};

class StageFrontier {
 public:
  StageFrontier(const StageTable& table, const StageInventory& inventory, StageDepths depths,
                StageTies ties);

  // Nothing: no stages keep the limits, or `stop` said so (then stopped() is true).
  std::optional<StageFill> Minimize(const StageLimits& limits, const std::function<bool()>& stop);
  bool stopped() const { return stopped_; }

 private:
  // An option of a range next to a port of the stage behind it.
  struct Candidate {
    int slot = 0;
    int port = 0;
    int next_port = 0;
    int option = 0;
    int in_flight_max = 0;
    double cost_s = 0;
  };
  // The states of a row that have a value lie in [begin, end).
  struct Extent {
    int begin = 0;
    int end = 0;
    double least_s = std::numeric_limits<double>::infinity();
  };

  size_t RowOf(int first, int depth, int port) const;
  double* Values(size_t row);
  void FindCandidates(int first, int end, const StageLimits& limits);
  bool Allows(const Candidate& candidate, int depth) const;
  void Weigh();
  void FillFirst(int first, const StageLimits& limits);
  void ApplyDepth(int first, int end, int depth, const StageLimits& limits);
  void ApplySlot(int first, int end, int depth, int slot, const StageLimits& limits);
  void Apply(size_t to_row, size_t from_row, int slot, double cost_s);
  // What states of the row that is filled, and of those behind the range at hand, must have free.
  struct Window {
    double most = 0;   // more leaves too little to the layers before
    double least = 0;  // less is too little for the layers behind
  };
  void Close(size_t row);
  template <typename Visit>
  bool VisitNext(int end, int depth, int next_port, const Visit& visit) const;
  std::optional<StageFill> Walk(const StageLimits& limits);
  bool WalkStage(StageChoice& stage, int& depth, int& port, int& state, const StageLimits& limits);

  const StageTable& table_;
  const StageInventory& inventory_;
  StageDepths depths_;
  StageTies ties_;
  bool stopped_ = false;
  Window window_;
  std::vector<double> free_;           // [state]: devices, weighted like work
  double tolerance_ = 0;               // of their sums
  std::vector<double> values_;         // [row, state]
  std::vector<Extent> extents_;        // [row]
  std::vector<Candidate> candidates_;  // of the range at hand
  std::vector<double> slot_cost_s_;    // [port, next port] of the slot at hand
  std::vector<double> chain_cost_s_;   // [chain, port, next port]: the least so far
  int chains_ = 0;
};

}  // namespace meshwright::search
