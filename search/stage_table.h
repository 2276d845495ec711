// What every range of layers costs under every option: the tables that the stage search runs on.
//
// Options that another one of the same slot and port beats in all respects are left out (unless
// options are pinned), and so is what fits no memory at any depth of the pipeline.
//
// Thread rule: immutable after Make, which calls the problem's callables. Refers to nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "search/stage_inventory.h"
#include "search/stage_problem.h"

namespace meshwright::search {

// A range of layers under an option, but for the transfer to the next stage.
struct StageEntry {
  int option = 0;
  int slot = 0;
  int port = 0;
  int devices = 0;  // of the slot
  double fill_s = 0;
  double compute_s = 0;
  double tail_s = 0;
  int in_flight_max = 0;  // microbatches that fit its memory, of as many as there can be
};

class StageTable {
 public:
  // `extra_bytes`: how much more memory every device is taken to have. Ranges that pinned
  // beginnings exclude are empty. Errors: kInvalidArgument: range_cost or transfer_s returned
  // something that is not a cost.
  static Result<StageTable> Make(const StageProblem& problem, const StageInventory& inventory,
                                 int64_t extra_bytes);

  int layers() const { return layers_; }
  int ports() const { return ports_; }
  // By slot, then port, then option. REQUIRES: 0 <= first < end <= layers.
  std::span<const StageEntry> entries(int first, int end) const;
  // Seconds from a stage that ends before layer `cut` to the next one; 0 behind the last layer.
  double transfer_s(int cut, int from_port, int to_port) const;
  double period_s(double compute_s, double transfer_s) const;

  // Lower bound, whatever the inventory: what the fills of layers [0, end) add up to.
  double prefix_fill_s(int end) const { return prefix_fill_s_[static_cast<size_t>(end)]; }
  // Work is device-seconds of a microbatch, those of a class weighted by how fast it is: equal work
  // takes all classes as long. Lower bounds of that of layers [0, end) and [first, layers).
  double prefix_work_s(int end) const { return prefix_work_s_[static_cast<size_t>(end)]; }
  double suffix_work_s(int first) const { return suffix_work_s_[static_cast<size_t>(first)]; }
  double class_weight(int device_class) const {
    return class_weights_[static_cast<size_t>(device_class)];
  }

 private:
  explicit StageTable(const StageProblem& problem);

  Status AddTransfers(const StageProblem& problem);
  void AddBounds(const StageInventory& inventory);
  size_t Range(int first, int end) const;
  size_t Transfer(int cut, int from_port, int to_port) const;

  int layers_;
  int ports_;
  std::vector<size_t> begin_;  // per range: its first entry; one more at the end
  std::vector<StageEntry> entries_;
  std::vector<double> transfer_s_;  // [cut, from port, to port]
  std::vector<double> prefix_fill_s_;
  std::vector<double> class_weights_;
  std::vector<double> prefix_work_s_;
  std::vector<double> suffix_work_s_;
};

}  // namespace meshwright::search
