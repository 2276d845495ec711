// What a job leaves open of a layout, as lists of what is tried: a pin is a list of one. And the
// candidates of the search for layouts, in the order in which they are looked at.
//
// A family is degrees and rows of a microbatch: layouts that differ in schedule and ZeRO only. Its
// bound is all work spread evenly over its devices; families whose stages cannot wait for one
// another much, and whose devices have room for their weights, come first.
//
// Thread rule: immutable values, pure functions. Ownership: the job outlives OpenChoices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/job.h"
#include "planner/plan.h"
#include "search/layout_cost.h"

namespace meshwright::search {

std::vector<int64_t> Divisors(int64_t n);  // ascending

// Holds less than zb-v and waits longer, whatever the costs are: no choice where zb-v fits.
bool IsForTightMemory(const std::string& schedule);

// What every layer's experts come out even on; 0: the model has none.
int64_t CommonExperts(const ir::JobRequest& job);
// Whether the job leaves the context axis to the search: its rows are long.
bool HasOpenContext(const ir::JobRequest& job);

// What layers may compute again, from cheap to dear; without the compiler programs are the graph as
// it is written.
std::vector<planner::Recompute> RecomputeModes(const ir::JobRequest& job);

class OpenChoices {
 public:
  explicit OpenChoices(const ir::JobRequest& job);

  // Of those that are open, the ones by which no weight of the model grows by more than an eighth
  // (planner/padding.h). `model`: its loss, or that of a shorter one with the same layers.
  std::vector<int64_t> TensorDegrees(int64_t devices, const ir::Graph& model) const;
  // Of replicas that share experts, where the model has some: powers of two, and all of them.
  static constexpr int64_t kAnyReplicas = 0;  // that all numbers divide
  std::vector<int64_t> ExpertDegrees(int64_t replicas) const;
  // Of devices that share the tokens of a row, each of which has enough to do: powers of two.
  std::vector<int64_t> ContextDegrees(int64_t most) const;
  std::vector<int64_t> PipelineDegrees(int64_t most) const;
  // Where there are many rows, every number; where there are few, powers of two of rows.
  std::vector<int64_t> Microbatches(int64_t rows_per_replica) const;
  // Open where the tensor degree is.
  std::vector<bool> SequenceModes(int64_t tensor) const;
  std::vector<std::string> Schedules(int64_t pipeline) const;
  // Whether there is a schedule in which each of several stages holds one part of the model.
  bool MayHoldOnePart() const;
  std::vector<int> Chunks(const std::string& schedule, int64_t pipeline) const;  // 0: as usual
  std::vector<int64_t> ZeroStages(int64_t data) const;
  // Every legal schedule, number of chunks and ZeRO stage of these degrees and microbatches.
  // `recompute`: of each layer, as in Layout.
  std::vector<planner::Layout> Members(const planner::Layout& degrees,
                                       const std::vector<planner::Recompute>& recompute) const;

 private:
  const ir::JobRequest& job_;
  const int64_t layer_count_;
  const int64_t experts_;
  const bool reads_whole_batch_;  // at once
};

struct Family {
  planner::Layout layout;
  double least_s = 0;   // no member is faster
  double likely_s = 0;  // what is looked at first
};

// All degrees with the tensor group of `of_group`. `whole`: layers on the rows of a whole batch,
// which no smaller number of rows beats per row, nor do devices that share rows or experts.
void AddFamilies(const ir::JobRequest& job, const OpenChoices& choices, const Family& of_group,
                 const LayoutInput& whole, std::vector<Family>& families);

// The likely best first; ties prefer fewer devices, stages, and devices that share rows.
void SortFamilies(std::vector<Family>& families);

// Per family: the least bound of it and of all that come after it.
std::vector<double> LeastOfRest(const std::vector<Family>& families);

}  // namespace meshwright::search
