// One reading of a stage problem, ready to be searched: an inventory, the table of costs on it, and
// the frontier over both.
//
// Thread rule: one thread at a time. Ownership: the problem outlives the space.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "search/stage_frontier.h"
#include "search/stage_inventory.h"
#include "search/stage_problem.h"
#include "search/stage_table.h"

namespace meshwright::search {

struct StageSpaceOptions {
  StageInventory::Limits limits;
  StageInventory::Counts counts = StageInventory::Counts::kRelaxed;
  int64_t extra_bytes = 0;  // of every device
};

class StageSpace {
 public:
  // Errors: those of StageTable::Make.
  static Result<std::unique_ptr<StageSpace>> Make(const StageProblem& problem,
                                                  const StageSpaceOptions& options);

  StageSpace(const StageProblem& problem, StageInventory inventory, StageTable table);
  StageSpace(const StageSpace&) = delete;
  StageSpace& operator=(const StageSpace&) = delete;

  const StageInventory& inventory() const { return inventory_; }
  const StageTable& table() const { return table_; }
  StageFrontier& frontier() { return frontier_; }

  // All devices, weighted like work (search/stage_table.h). > 0.
  double weighted_devices() const;

  // What ties add to the fills of stages, and the most that they can.
  double TieCost(std::span<const StageChoice> stages) const;
  double tie_limit_s() const { return tie_limit_s_; }

 private:
  StageInventory inventory_;
  StageTable table_;
  double tie_limit_s_;
  StageTies ties_;
  StageFrontier frontier_;  // refers to the inventory and the table
};

}  // namespace meshwright::search
