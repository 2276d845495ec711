#include "search/reshard_table.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "mesh/reshard_steps.h"
#include "planner/cost_model.h"
#include "search/choice_problem.h"

namespace meshwright::search {

namespace {

// What the device packs or unpacks, as planner::PackingOf does of the collective that the step is.
int64_t PackedBytes(const ir::TensorType& before, const ir::TensorType& after,
                    const mesh::ReshardStep& step) {
  switch (step.kind) {
    case mesh::StepKind::kAllGather:
      return planner::BytesOfBlocks(after, step.dim);
    case mesh::StepKind::kReduceScatter:
      return planner::BytesOfBlocks(before, step.dim);
    case mesh::StepKind::kAllToAll:
      return planner::BytesOfBlocks(before, step.dim) +
             planner::BytesOfBlocks(after, step.from_dim);
    default:
      return 0;
  }
}

}  // namespace

ReshardTable::ReshardTable(ir::TensorType type, mesh::Mesh mesh, AxisLinks links,
                           mesh::LinkCost copy)
    : type_(std::move(type)), mesh_(std::move(mesh)), links_(std::move(links)), copy_(copy) {}

int ReshardTable::Form(const mesh::Sharding& sharding) {
  const auto [it, fresh] = numbers_.emplace(sharding, static_cast<int>(states_.size()));
  if (fresh) {
    states_.push_back(sharding);
    steps_.emplace_back();
    expanded_.push_back(false);
    seconds_.emplace_back();
  }
  return it->second;
}

double ReshardTable::Seconds(int from, int to) {
  if (from == to) return 0;
  if (const std::optional<mesh::Sharding> before = BeforeMadePartial(from, to)) {
    const ir::TensorType local{type_.dtype, mesh::LocalDims(type_.dims, *before, mesh_)};
    const double pass_s =
        copy_.alpha_s + 2 * static_cast<double>(local.bytes()) * copy_.seconds_per_byte;
    return Seconds(from, Form(*before)) + pass_s;
  }
  if (seconds_[static_cast<size_t>(from)].empty()) FindSecondsFrom(from);
  const std::vector<double>& seconds = seconds_[static_cast<size_t>(from)];
  // What was met later than the search is not to be reached.
  return static_cast<size_t>(to) < seconds.size() ? seconds[static_cast<size_t>(to)] : kForbidden;
}

std::optional<mesh::Sharding> ReshardTable::BeforeMadePartial(int from, int to) const {
  const auto& there = states_[static_cast<size_t>(from)].partial;
  mesh::Sharding before = states_[static_cast<size_t>(to)];
  const auto made = std::erase_if(before.partial, [&](const auto& sum) {
    return sum.second == ir::PartialKind::kSum && !there.contains(sum.first);
  });
  if (made == 0) return std::nullopt;
  return before;
}

double ReshardTable::StepSeconds(const ir::TensorType& local, const mesh::ReshardStep& step) const {
  if (step.kind == mesh::StepKind::kShardSlice) return 0;
  mesh::LinkCost worst{0, 0};
  for (const std::string& axis : step.axes) {
    worst = mesh::Slower(worst, links_.at(axis));
  }
  const auto local_bytes = static_cast<double>(local.bytes());
  const double moved_s =
      worst.alpha_s + worst.seconds_per_byte * mesh::BytesOfStep(step, local_bytes, mesh_);
  const ir::TensorType after{type_.dtype, mesh::LocalDims(type_.dims, step.result, mesh_)};
  const auto packed = static_cast<double>(PackedBytes(local, after, step));
  return packed == 0 ? moved_s : moved_s + copy_.alpha_s + 2 * packed * copy_.seconds_per_byte;
}

void ReshardTable::FindSteps(int form) {
  const auto i = static_cast<size_t>(form);
  if (expanded_[i]) return;
  expanded_[i] = true;
  const mesh::Sharding from = states_[i];
  const ir::TensorType local{type_.dtype, mesh::LocalDims(type_.dims, from, mesh_)};
  std::vector<Step> steps;
  for (const mesh::ReshardStep& step : mesh::StepsFrom(type_.dims, from, mesh_)) {
    const double cost_s = StepSeconds(local, step);
    steps.push_back({Form(step.result), cost_s});
  }
  steps_[i] = std::move(steps);
}

void ReshardTable::FindSecondsFrom(int form) {
  std::vector<double> seconds(static_cast<size_t>(form) + 1, kForbidden);
  std::vector<bool> settled;
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
      open;
  seconds[static_cast<size_t>(form)] = 0;
  open.emplace(0.0, form);
  while (!open.empty()) {
    const auto [at_s, at] = open.top();
    open.pop();
    settled.resize(states_.size());
    if (settled[static_cast<size_t>(at)]) continue;
    settled[static_cast<size_t>(at)] = true;
    FindSteps(at);
    seconds.resize(states_.size(), kForbidden);
    for (const Step& step : steps_[static_cast<size_t>(at)]) {
      double& best_s = seconds[static_cast<size_t>(step.to)];
      if (at_s + step.cost_s >= best_s) continue;
      best_s = at_s + step.cost_s;
      open.emplace(best_s, step.to);
    }
  }
  seconds_[static_cast<size_t>(form)] = std::move(seconds);
}

}  // namespace meshwright::search
