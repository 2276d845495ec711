#include "ops/cuda/chain_plan.h"

#include <algorithm>
#include <utility>

#include "ir/fused.h"

namespace meshwright::ops::cuda {
namespace {

// Sums are over groups of so many rows, fewer where there would be too few threads: half of what an
// H200 holds. More threads would have fewer rows each, and a sum to store for them.
constexpr int64_t kMostGroupRows = 64;
constexpr int64_t kFewestGroupRows = 8;
constexpr int64_t kThreadsForSums = int64_t{1} << 17;

bool IsOfChains(ir::DType dtype) {
  return ir::ComputesInF32(dtype) || dtype == ir::DType::kI32 || dtype == ir::DType::kBool;
}

class ChainPlanner {
 public:
  ChainPlanner(const ir::Graph& body, int producer, const DeviceCoords& coords)
      : body_(body), producer_(producer), coords_(coords) {}

  Result<std::optional<ChainPlan>> Run() {
    for (const ir::Value& value : body_.values) {
      if (!IsOfChains(value.type.dtype)) return std::optional<ChainPlan>();
    }
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      if (!IsStep(n)) continue;
      const ir::Node& node = body_.nodes[n];
      const ValueId full = ir::IsColumnSum(node) ? node.inputs[0] : node.outputs[0];
      plan_.elements = std::max(plan_.elements, body_.type(full).elements());
    }
    if (plan_.elements == 0) return std::optional<ChainPlan>();
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      const ir::Node& node = body_.nodes[n];
      if (node.op == ir::Op::kInput) {
        AddOperand(node.outputs[0], inputs_++);
      } else if (static_cast<int>(n) == producer_) {
        AddOperand(node.outputs[0], ChainPlan::kAccumulator);
      } else if (!Fits(node)) {
        return std::optional<ChainPlan>();
      } else if (node.op != ir::Op::kReduceSum) {
        MW_TRY(AddStep(node));
      }
    }
    if (!AddResults()) return std::optional<ChainPlan>();
    DropUnread();
    plan_.lanes = Lanes();
    return std::optional<ChainPlan>(std::move(plan_));
  }

 private:
  bool IsStep(size_t n) const {
    return body_.nodes[n].op != ir::Op::kInput && static_cast<int>(n) != producer_;
  }
  int64_t ElementsOf(ValueId id) const { return body_.type(id).elements(); }

  void AddOperand(ValueId id, int input) {
    plan_.operands.push_back({id.value(), input, body_.type(id).dtype, ElementsOf(id)});
  }

  // Whether the op may read the value: not a column sum, nor what a producer makes beside result 0.
  bool Readable(ValueId id) const {
    const ir::Node& maker = body_.producer(id);
    return maker.op != ir::Op::kReduceSum && maker.outputs[0] == id;
  }

  bool Fits(const ir::Node& node) {
    if (!std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return Readable(id); })) {
      return false;
    }
    if (node.op == ir::Op::kDropout && ElementsOf(node.inputs[0]) != plan_.elements) return false;
    if (!ir::IsColumnSum(node)) return ir::IsElementwise(node.op);
    const int64_t width = ElementsOf(node.outputs[0]);
    if (ElementsOf(node.inputs[0]) != plan_.elements || width == 0) return false;
    if (plan_.width != 0 && plan_.width != width) return false;
    plan_.width = width;
    return true;
  }

  Status AddStep(const ir::Node& node) {
    ChainPlan::Step step;
    step.op = node.op;
    step.value = node.outputs[0].value();
    step.dtype = body_.type(node.outputs[0]).dtype;
    step.attrs = node.attrs;
    for (ValueId id : node.inputs) step.operands.push_back(id.value());
    if (node.op == ir::Op::kDropout) {
      const KernelSpec spec{node.op, node.attrs, {}, {body_.type(node.outputs[0])}, coords_};
      MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
      step.dropout = static_cast<int>(plan_.dropouts.size());
      plan_.dropouts.push_back(
          {DropoutMask(node.attrs.Real("rate"), node.attrs.Str("name")), GlobalIndex(block)});
    }
    plan_.steps.push_back(std::move(step));
    return OkStatus();
  }

  // False when a result is an operand, a repeating value, or a second one of the producer.
  bool AddResults() {
    for (size_t r = 0; r < body_.outputs.size(); ++r) {
      const ValueId id = body_.outputs[r].value;
      const ir::Node& maker = body_.producer(id);
      if (maker.op == ir::Op::kInput || maker.outputs[0] != id) return false;
      const bool sum = maker.op == ir::Op::kReduceSum;
      if (!sum && ElementsOf(id) != plan_.elements) return false;
      const int value = sum ? maker.inputs[0].value() : id.value();
      (sum ? plan_.sums : plan_.results)
          .push_back({value, static_cast<int>(r), body_.type(id).dtype});
    }
    if (plan_.sums.empty()) plan_.width = 0;
    return true;
  }

  void DropUnread() {
    const auto read = [&](const ChainPlan::Operand& operand) {
      const auto is_value = [&](const ChainPlan::Result& r) { return r.value == operand.value; };
      return std::any_of(plan_.steps.begin(), plan_.steps.end(),
                         [&](const ChainPlan::Step& step) {
                           return std::count(step.operands.begin(), step.operands.end(),
                                             operand.value) != 0;
                         }) ||
             std::any_of(plan_.results.begin(), plan_.results.end(), is_value) ||
             std::any_of(plan_.sums.begin(), plan_.sums.end(), is_value);
    };
    std::erase_if(plan_.operands, [&](const ChainPlan::Operand& o) { return !read(o); });
  }

  // Loads and stores of 16 bytes where all sizes allow it.
  int Lanes() const {
    const auto half = [](const auto& item) { return ir::DTypeBytes(item.dtype) == 2; };
    const bool halves = std::any_of(plan_.operands.begin(), plan_.operands.end(), half) ||
                        std::any_of(plan_.results.begin(), plan_.results.end(), half);
    for (const int lanes : {8, 4}) {
      if (lanes == 8 && !halves) continue;
      const bool fits =
          plan_.elements % lanes == 0 && plan_.width % lanes == 0 &&
          std::all_of(plan_.operands.begin(), plan_.operands.end(),
                      [&](const auto& o) { return o.period == 1 || o.period % lanes == 0; });
      if (fits) return lanes;
    }
    return 1;
  }

  const ir::Graph& body_;
  const int producer_;
  const DeviceCoords& coords_;
  int inputs_ = 0;
  ChainPlan plan_;
};

}  // namespace

GlobalIndex::GlobalIndex(const ShardBlock& block) {
  const ir::Dims strides = RowMajorStrides(block.global_dims);
  for (size_t d = 0; d < block.local_dims.size(); ++d) {
    base_ += block.offsets.base[d] * strides[d];
    micro_ += block.offsets.micro_stride[d] * strides[d];
    const Loop loop{block.local_dims[d], strides[d]};
    if (loop.size == 1) continue;
    if (!loops_.empty() && loops_.back().stride == loop.size * loop.stride) {
      loops_.back() = {loops_.back().size * loop.size, loop.stride};
    } else {
      loops_.push_back(loop);
    }
  }
  if (loops_.empty()) loops_.push_back({});
}

bool GlobalIndex::Aligned(int64_t count) const {
  const Loop& inner = loops_.back();
  if (count % 4 != 0 || inner.stride != 1 || base_ % 4 != 0 || micro_ % 4 != 0) return false;
  if (loops_.size() > 1 && inner.size % count != 0) return false;
  return std::all_of(loops_.begin(), loops_.end() - 1,
                     [](const Loop& loop) { return loop.stride % 4 == 0; });
}

float ChainPlan::Step::constant() const {
  return static_cast<float>(op == ir::Op::kShift ? attrs.Real("value") : attrs.Real("factor", 1));
}

bool ChainPlan::in_f64() const {
  const auto is_integer = [](const auto& item) { return item.dtype == ir::DType::kI32; };
  return std::any_of(operands.begin(), operands.end(), is_integer) ||
         std::any_of(steps.begin(), steps.end(), is_integer);
}

int ChainPlan::rows_at_once() const {
  const auto full = std::count_if(operands.begin(), operands.end(),
                                  [&](const Operand& o) { return o.period == elements; });
  return lanes == 8 && full > 1 ? 2 : 4;
}

int64_t ChainPlan::group_rows() const {
  const int64_t rows =
      std::clamp(elements / lanes / kThreadsForSums, kFewestGroupRows, kMostGroupRows);
  return rows / rows_at_once() * rows_at_once();
}

int ChainPlan::accumulator_result() const {
  const auto accumulator = std::find_if(operands.begin(), operands.end(),
                                        [](const Operand& o) { return o.input == kAccumulator; });
  if (accumulator == operands.end()) return -1;
  for (const Result& result : results) {
    if (result.value == accumulator->value) return result.output;
  }
  for (const Result& result : results) {
    if (ir::DTypeBytes(result.dtype) == ir::DTypeBytes(accumulator->dtype)) return result.output;
  }
  return -1;
}

Result<std::optional<ChainPlan>> PlanChain(const ir::Graph& body, int producer,
                                           const DeviceCoords& coords) {
  return ChainPlanner(body, producer, coords).Run();
}

}  // namespace meshwright::ops::cuda
