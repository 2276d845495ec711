// fused nodes in one pass: a chain of elementwise steps alone, behind the tiles of a matrix
// product, or behind the rows of a norm's gradient.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/fused.h"
#include "ops/cpu/chain.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm_plan.h"
#include "ops/cpu/norm_grad.h"
#include "ops/cpu/scratch.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kColumnsPerItem = 8192;  // of a chain without producer

bool IsProducer(ir::Op op) {
  return op == ir::Op::kEinsum || op == ir::Op::kLayerNormGrad || op == ir::Op::kRmsNormGrad;
}

// The body's only producer, which must be its first step; -1: none; nothing: not of this form.
std::optional<int> FindProducer(const ir::Graph& body) {
  int producer = -1;
  bool first = true;
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const ir::Node& node = body.nodes[i];
    if (node.op == ir::Op::kInput) continue;
    if (IsProducer(node.op)) {
      if (!first) return std::nullopt;
      producer = static_cast<int>(i);
    }
    first = false;
  }
  return producer;
}

std::vector<size_t> OperandsOf(const ir::Node& node) {
  std::vector<size_t> operands;
  for (ValueId id : node.inputs) operands.push_back(id.index());
  return operands;
}

// The chain over all rows. `memory`: without scratch; its accumulator is the whole tensor's.
void RunChain(const RunContext& context, const Chain& chain, const Chain::Memory& memory) {
  const int64_t columns = (chain.width() + kColumnsPerItem - 1) / kColumnsPerItem;
  MW_CHECK(chain.width() >= 1 && chain.rows() >= 1) << chain.rows() << " rows of " << chain.width();
  const int64_t groups = (chain.rows() + Chain::kSumRows - 1) / Chain::kSumRows;
  ParallelItems(context, groups * columns, [&](int64_t item) {
    const int64_t row = item / columns * Chain::kSumRows;
    const int64_t column = item % columns * kColumnsPerItem;
    Chain::Memory part = memory;
    part.scratch = ThreadScratch(chain.scratch_floats());
    if (memory.accumulator != nullptr) {
      part.accumulator = static_cast<const std::byte*>(memory.accumulator) +
                         (row * chain.width() + column) * chain.accumulator_bytes();
    }
    chain.RunRegion(context, row, std::min(Chain::kSumRows, chain.rows() - row), column,
                    std::min(kColumnsPerItem, chain.width() - column), part, chain.width());
  });
}

KernelResult MakePlain(const ir::Graph& body, const DeviceCoords& coords) {
  MW_ASSIGN_OR_RETURN(std::optional<Chain> chain, Chain::Make(body, {}, coords));
  if (!chain) return std::unique_ptr<Kernel>();
  std::vector<float> sums(static_cast<size_t>(chain->sums_floats()));
  return MakeFunctionKernel(
      [chain = *std::move(chain), sums = std::move(sums)](const RunContext& context, Inputs inputs,
                                                          Outputs outputs) mutable -> Status {
        RunChain(context, chain, {inputs, outputs, nullptr, nullptr, sums.data()});
        chain.AddUp(sums.data(), outputs);
        return {};
      });
}

KernelResult MakeProduct(const ir::Graph& body, int producer, const DeviceCoords& coords) {
  const ir::Node& node = body.nodes[static_cast<size_t>(producer)];
  const std::vector<size_t> operands = OperandsOf(node);
  MW_ASSIGN_OR_RETURN(std::optional<GemmPlan> plan,
                      PlanGemm(node.attrs, body.type(node.inputs[0]).dims,
                               body.type(node.inputs[1]).dims, body.type(node.outputs[0]).dims));
  if (!plan || !plan->one_product()) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(std::optional<Chain> chain,
                      Chain::Make(body, {producer, plan->columns()}, coords));
  if (!chain || chain->accumulator_result() < 0) return std::unique_ptr<Kernel>();
  const bool half = body.type(node.inputs[0]).dtype == ir::DType::kBF16;
  const ir::DType stored = chain->half_accumulator() ? ir::DType::kBF16 : ir::DType::kF32;
  if (half ? !plan->PrepareHalf(stored) : chain->half_accumulator()) {
    return std::unique_ptr<Kernel>();
  }
  std::vector<float> sums(static_cast<size_t>(chain->sums_floats()));
  return MakeFunctionKernel(
      [plan = *std::move(plan), chain = *std::move(chain), sums = std::move(sums), operands, half](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        void* product = outputs[static_cast<size_t>(chain.accumulator_result())].data;
        const Tensor& a = inputs[operands[0]];
        const Tensor& b = inputs[operands[1]];
        if (half) {
          plan.RunHalf(context, a.as<uint16_t>(), b.as<uint16_t>(), product);
        } else {
          plan.Run(context, a.as<float>(), b.as<float>(), static_cast<float*>(product));
        }
        RunChain(context, chain, {inputs, outputs, product, nullptr, sums.data()});
        chain.AddUp(sums.data(), outputs);
        return {};
      });
}

// Where the results 1, 2, ... of the producer go.
std::vector<int> ResultsOf(const ir::Graph& body, const ir::Node& node) {
  std::vector<int> results;
  for (ValueId value : node.outputs) {
    const auto it = std::find_if(body.outputs.begin(), body.outputs.end(),
                                 [&](const auto& output) { return output.value == value; });
    results.push_back(it == body.outputs.end() ? -1 : static_cast<int>(it - body.outputs.begin()));
  }
  return results;
}

KernelResult MakeNormGrad(const ir::Graph& body, int producer, const DeviceCoords& coords) {
  const ir::Node& node = body.nodes[static_cast<size_t>(producer)];
  const bool has_mean = node.op == ir::Op::kLayerNormGrad;
  const std::vector<size_t> operands = OperandsOf(node);
  const std::vector<int> results = ResultsOf(body, node);
  const int64_t width = body.type(node.outputs[0]).dims.back();
  if (body.type(node.outputs[0]).dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(std::optional<Chain> chain, Chain::Make(body, {producer, width}, coords));
  if (!chain || results[1] < 0 || (has_mean && results[2] < 0)) return std::unique_ptr<Kernel>();
  NormGrad grad(chain->rows(), width, has_mean, Chain::kSumRows);
  std::vector<float> sums(static_cast<size_t>(chain->sums_floats()));
  const int64_t own_row = results[0] < 0 ? width : 0;
  return MakeFunctionKernel([operands, results, width, own_row, has_mean, chain = *std::move(chain),
                             grad = std::move(grad),
                             sums = std::move(sums)](const RunContext& context, Inputs inputs,
                                                     Outputs outputs) mutable -> Status {
    MW_CHECK(operands.size() <= 5) << operands.size() << " operands of a norm's gradient";
    std::array<Tensor, 5> taken;
    for (size_t i = 0; i < operands.size(); ++i) taken[i] = inputs[operands[i]];
    const auto scratch = [&] { return ThreadScratch(own_row + chain.scratch_floats()); };
    const auto place = [&](int64_t row) {
      if (own_row > 0) return scratch();
      return outputs[static_cast<size_t>(results[0])].template as<float>() + row * width;
    };
    const auto done = [&](int64_t row, const float* dx) {
      const Chain::Memory memory{inputs, outputs, dx, scratch() + own_row, sums.data()};
      chain.RunRegion(context, row, 1, 0, width, memory, 0);
    };
    grad.Run(context, NormGrad::OperandsOf({taken.data(), operands.size()}, has_mean), place, done);
    grad.AddUp(outputs[static_cast<size_t>(results[1])].as<float>(),
               has_mean ? outputs[static_cast<size_t>(results[2])].as<float>() : nullptr);
    chain.AddUp(sums.data(), outputs);
    return {};
  });
}

}  // namespace

KernelResult MakeFused(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ir::Graph body, ir::ExpandFused(spec.attrs, spec.inputs));
  const bool single =
      std::all_of(body.values.begin(), body.values.end(), [](const ir::Value& value) {
        return value.type.dtype == ir::DType::kF32 || value.type.dtype == ir::DType::kBF16;
      });
  const std::optional<int> producer = FindProducer(body);
  if (!single || !producer) return std::unique_ptr<Kernel>();
  if (*producer < 0) return MakePlain(body, spec.coords);
  const bool product = body.nodes[static_cast<size_t>(*producer)].op == ir::Op::kEinsum;
  return product ? MakeProduct(body, *producer, spec.coords)
                 : MakeNormGrad(body, *producer, spec.coords);
}

}  // namespace meshwright::ops::cpu
