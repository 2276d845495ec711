#include "ir/program.h"

#include <algorithm>
#include <numeric>

namespace meshwright::ir {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + kSlotAlignmentBytes - 1) / kSlotAlignmentBytes * kSlotAlignmentBytes;
}

}  // namespace

const char* MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kOptimizer:
      return "optimizer";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kOther:
      return "other";
  }
  return "invalid";
}

// Large lifetimes first: they leave the small ones to fill the gaps between them. Ties go to the
// earlier and then to the lower index, so that equal input gives equal offsets.
Placement PlaceLifetimes(const std::vector<Lifetime>& lifetimes) {
  Placement placement;
  placement.offset_bytes.assign(lifetimes.size(), 0);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return lifetimes[a].first < lifetimes[b].first;
  });
  std::vector<size_t> placed;  // by increasing offset
  for (size_t i : order) {
    const Lifetime& life = lifetimes[i];
    if (life.bytes <= 0) continue;
    int64_t offset = 0;
    for (size_t j : placed) {
      const Lifetime& other = lifetimes[j];
      if (other.last < life.first || life.last < other.first) continue;
      const int64_t other_offset = placement.offset_bytes[j];
      if (other_offset >= offset + life.bytes) break;
      offset = std::max(offset, AlignUp(other_offset + other.bytes));
    }
    placement.offset_bytes[i] = offset;
    placement.bytes = std::max(placement.bytes, AlignUp(offset + life.bytes));
    const auto by_offset = [&](size_t a, size_t b) {
      return placement.offset_bytes[a] < placement.offset_bytes[b];
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i, by_offset), i);
  }
  return placement;
}

// A value lives from the node that makes it to the last that reads it. Both instants are inclusive,
// so a node's results never share bytes with its operands: kernels need not be safe in place.
WorkspacePlan PlanWorkspace(const Graph& executable) {
  WorkspacePlan plan;
  plan.offset_bytes.assign(executable.values.size(), -1);
  std::vector<bool> bound(executable.values.size(), false);
  for (const NamedValue& output : executable.outputs) {
    bound[static_cast<size_t>(output.value.value())] = true;
  }
  std::vector<Lifetime> lifetimes;
  std::vector<size_t> values;
  const std::vector<std::vector<NodeId>> users = executable.Users();
  for (size_t i = 0; i < executable.values.size(); ++i) {
    const Value& value = executable.values[i];
    if (bound[i] || executable.node(value.producer).op == Op::kInput) continue;
    const int first = value.producer.value();
    const int last = users[i].empty() ? first : users[i].back().value();
    lifetimes.push_back({value.type.bytes(), first, last});
    values.push_back(i);
  }
  const Placement placement = PlaceLifetimes(lifetimes);
  for (size_t i = 0; i < values.size(); ++i)
    plan.offset_bytes[values[i]] = placement.offset_bytes[i];
  plan.bytes = placement.bytes;
  return plan;
}

}  // namespace meshwright::ir
