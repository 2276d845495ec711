#include "bench/gpu_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/half.h"
#include "base/median.h"
#include "base/philox.h"
#include "bench/profile.h"
#include "collective/communicator.h"
#include "device/device.h"
#include "ir/builder.h"
#include "ops/cuda/head_rows.h"
#include "ops/cuda/toolkit.h"
#include "worker/links.h"
#include "worker/loaded_executable.h"

namespace meshwright::bench {
namespace {

constexpr int64_t kTimeoutMs = 120'000;
constexpr int64_t kMostCalls = 1 << 14;
constexpr int64_t kMostCopies = 32;
constexpr int64_t kPatternElements = 1 << 18;

using Node = worker::LoadedExecutable::Node;

// Seconds of one of call(0), call(1), ...: the median of batches.
template <typename Call>
Result<double> SecondsOfCall(device::Queue& queue, const GpuTiming& timing, Call call) {
  int64_t calls = 1, next = 0;
  const auto batch = [&]() -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) MW_TRY(call(next++));
    MW_TRY(queue.Finish(Deadline::After(kTimeoutMs)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  MW_ASSIGN_OR_RETURN(double seconds, batch());  // of what is made on first use
  MW_ASSIGN_OR_RETURN(seconds, batch());
  while (seconds < timing.batch_seconds && calls < kMostCalls) {
    calls *= 2;
    MW_ASSIGN_OR_RETURN(seconds, batch());
  }
  std::vector<double> batches;
  for (int i = 0; i < timing.batches; ++i) {
    MW_ASSIGN_OR_RETURN(seconds, batch());
    batches.push_back(seconds / static_cast<double>(calls));
  }
  return Median(std::move(batches));
}

// How many different ids a node may meet.
int64_t IdsOf(const ir::Graph& graph, const ir::Node& node) {
  const auto dims = [&](ValueId value) -> const ir::Dims& { return graph.type(value).dims; };
  switch (node.op) {
    case ir::Op::kEmbedding:
      return dims(node.inputs[0])[0];
    case ir::Op::kEmbeddingGrad:
      return dims(node.outputs[0])[0];
    case ir::Op::kHeadLoss:
    case ir::Op::kHeadLossGrad:
      return dims(node.inputs[1])[0];
    default:
      return dims(node.inputs[0]).empty() ? 1 : dims(node.inputs[0]).back();
  }
}

// Uniform in (-0.05, 0.05), or ids: repeated as often as a tensor is longer.
std::vector<std::byte> Pattern(const ir::TensorType& type, int64_t ids) {
  const ir::DType dtype = type.dtype;
  const int64_t size = ir::DTypeBytes(dtype);
  const int64_t elements = std::min(kPatternElements, type.bytes() / size);
  std::vector<std::byte> bytes(static_cast<size_t>(elements * size));
  for (int64_t i = 0; i < elements; ++i) {
    const uint32_t random = PhiloxBits(1, 2, 3, static_cast<uint64_t>(i));
    std::byte* const place = bytes.data() + i * size;
    const float value = (static_cast<float>(random) / 4294967296.0f - 0.5f) * 0.1f;
    const auto put = [&](auto number) { std::memcpy(place, &number, sizeof(number)); };
    if (dtype == ir::DType::kI32) put(static_cast<int32_t>(static_cast<int64_t>(random) % ids));
    if (dtype == ir::DType::kF32) put(value);
    if (dtype == ir::DType::kBF16) put(FloatToBf16(value));
    if (dtype == ir::DType::kF16) put(FloatToF16(value));
  }
  return bytes;
}

// A kernel's operands and results, as many times as asked for.
class Operands {
 public:
  Operands(const ops::Target& target, const ir::Graph& graph, const Node& node)
      : device_(*target.device), graph_(graph), node_(node) {}

  Status Allocate(int64_t l2_bytes) {
    for (NodeId id : node_.ids) {
      for (ValueId value : graph_.node(id).inputs) Lay(graph_.type(value));
    }
    const size_t operands_each = graph_.node(node_.ids[0]).inputs.size();
    const size_t results_each = graph_.node(node_.ids[0]).outputs.size();
    for (size_t i = 0; i < node_.ids.size(); ++i) {
      const ir::Node& node = graph_.node(node_.ids[i]);
      for (size_t result = 0; result < results_each; ++result) {
        const ir::TensorType& type = graph_.type(node.outputs[result]);
        const auto operand = ir::InPlaceOperand(node.op, result);
        if (operand && *operand < node.inputs.size() &&
            graph_.type(node.inputs[*operand]).bytes() == type.bytes()) {
          offsets_.push_back(offsets_[i * operands_each + *operand]);
          types_.push_back(&type);
        } else {
          Lay(type);
        }
      }
    }
    copies_ =
        std::clamp<int64_t>(4 * l2_bytes / std::max<int64_t>(set_bytes_, 1) + 1, 1, kMostCopies);
    MW_ASSIGN_OR_RETURN(
        memory_, device_.Allocate({ir::MemoryKind::kOther, copies_ * set_bytes_ + ScratchBytes()}));
    return Fill();
  }

  Status Run(const ops::RunContext& context, int64_t call) {
    std::byte* const start = memory_->data() + call % copies_ * set_bytes_;
    std::vector<ops::Tensor> tensors;
    tensors.reserve(types_.size());
    for (size_t i = 0; i < types_.size(); ++i) tensors.push_back({start + offsets_[i], types_[i]});
    const std::span<const ops::Tensor> all(tensors);
    ops::RunContext with_scratch = context;
    with_scratch.scratch = memory_->data() + copies_ * set_bytes_;
    return node_.kernel->Run(with_scratch, all.first(node_.operands), all.subspan(node_.operands));
  }

 private:
  void Lay(const ir::TensorType& type) {
    offsets_.push_back(set_bytes_);
    types_.push_back(&type);
    set_bytes_ += device::AlignUp(type.bytes());
  }

  int64_t ScratchBytes() const { return device::AlignUp(node_.kernel->scratch_bytes()); }

  Status Fill() {
    const int64_t ids = IdsOf(graph_, graph_.node(node_.ids[0]));
    device::Queue& queue = device_.queue();
    for (size_t i = 0; i < node_.operands; ++i) {
      const std::vector<std::byte> pattern = Pattern(*types_[i], ids);
      const auto length = static_cast<int64_t>(pattern.size());
      for (int64_t copy = 0; copy < copies_; ++copy) {
        std::byte* const place = memory_->data() + copy * set_bytes_ + offsets_[i];
        for (int64_t at = 0; at < types_[i]->bytes(); at += length) {
          MW_TRY(
              queue.CopyIn(place + at, pattern.data(), std::min(length, types_[i]->bytes() - at)));
        }
      }
    }
    return queue.Finish(Deadline::After(kTimeoutMs));
  }

  device::Device& device_;
  const ir::Graph& graph_;
  const Node& node_;
  std::vector<int64_t> offsets_;  // operands, then results
  std::vector<const ir::TensorType*> types_;
  int64_t set_bytes_ = 0;
  int64_t copies_ = 1;
  std::unique_ptr<device::Memory> memory_;
};

// What kernels read of the device's memory besides their operands.
class DeviceContext {
 public:
  static Result<DeviceContext> Make(device::Device& device) {
    DeviceContext made;
    const int64_t fault_at = device::AlignUp(sizeof(ops::StepState));
    MW_ASSIGN_OR_RETURN(made.memory_, device.Allocate({ir::MemoryKind::kOther, 2 * fault_at}));
    const ops::StepState state{1, 1};
    MW_TRY(device.queue().CopyIn(made.memory_->data(), &state, sizeof(state)));
    made.context_.queue = &device.queue();
    made.context_.state = reinterpret_cast<const ops::StepState*>(made.memory_->data());
    made.context_.fault = reinterpret_cast<ops::Fault*>(made.memory_->data() + fault_at);
    return made;
  }

  const ops::RunContext& context() const { return context_; }

 private:
  std::unique_ptr<device::Memory> memory_;
  ops::RunContext context_;
};

Result<double> SecondsOfNode(const ops::Target& target, const ir::Graph& graph, const Node& node,
                             const GpuTiming& timing) {
  Operands operands(target, graph, node);
  MW_TRY(operands.Allocate(timing.l2_bytes));
  MW_ASSIGN_OR_RETURN(const DeviceContext device, DeviceContext::Make(*target.device));
  return SecondsOfCall(target.device->queue(), timing,
                       [&](int64_t call) { return operands.Run(device.context(), call); });
}

std::string KindOfAll(const ir::Graph& graph, const Node& node) {
  const std::string kind = KindOf(graph, graph.node(node.ids[0]));
  return node.ids.size() == 1 ? kind : fmt::format("{} x {}", node.ids.size(), kind);
}

ir::OpCost CostOfAll(const ir::Graph& graph, const Node& node) {
  ir::OpCost sum;
  for (NodeId id : node.ids) {
    const ir::OpCost cost = ir::CostOf(graph, graph.node(id));
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

Result<std::unique_ptr<collective::Fabric>> LonelyFabric() {
  collective::FabricOptions options;
  options.cluster_id = "bench";
  options.members.push_back({"local", "", "host", 1});
  options.local_ranks.push_back(0);
  return collective::MakeCpuFabric(std::move(options), nullptr);
}

}  // namespace

Result<std::vector<GpuNode>> TimeGpuNodes(const ops::Target& target, const ir::Program& step,
                                          const GpuTiming& timing) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<collective::Fabric> fabric, LonelyFabric());
  worker::Links links(*fabric);
  std::vector<int64_t> runs(step.executables.size());
  for (const ir::Instruction& instruction : step.instructions) {
    if (instruction.op == ir::Opcode::kRun) {
      ++runs[instruction.executable.index()];
    }
  }
  std::map<std::string, GpuNode> kinds;
  for (size_t i = 0; i < step.executables.size(); ++i) {
    worker::InstructionCounter counter;
    MW_ASSIGN_OR_RETURN(
        const auto executable,
        worker::LoadedExecutable::Load(step, step.executables[i].graph, target, links, counter));
    const ir::Graph& graph = executable->graph();
    for (const Node& node : executable->nodes()) {
      if (node.kernel == nullptr) {
        return Fail(
            Unimplemented("kernels of a step are timed on one device, without collectives"));
      }
      if (node.kernel->prepares() || node.operands == 0) continue;
      GpuNode& kind = kinds[KindOfAll(graph, node)];
      kind.calls += runs[i];
      if (kind.seconds > 0) continue;
      kind.kind = KindOfAll(graph, node);
      kind.cost = CostOfAll(graph, node);
      auto seconds = SecondsOfNode(target, graph, node, timing);
      if (!seconds.has_value()) return Fail(seconds.error().WithContext(kind.kind));
      kind.seconds = *seconds;
    }
  }
  std::vector<GpuNode> sorted;
  for (auto& [name, kind] : kinds) sorted.push_back(std::move(kind));
  std::ranges::sort(sorted, std::greater(), [](const GpuNode& node) {
    return static_cast<double>(node.calls) * node.seconds;
  });
  return sorted;
}

Result<GpuNode> TimeHeadRows(const ops::Target& target, const HeadRowsCase& of,
                             const GpuTiming& timing) {
  device::Device& device = *target.device;
  const int64_t pitch = ops::cuda::HeadPitch(of.vocabulary);
  const int64_t logits_bytes = of.rows * pitch * int64_t{sizeof(float)};
  const int64_t row_bytes = device::AlignUp(of.rows * int64_t{sizeof(float)});
  // Logits, labels, losses, the factor of the gradient.
  MW_ASSIGN_OR_RETURN(const auto memory,
                      device.Allocate({ir::MemoryKind::kOther, logits_bytes + 3 * row_bytes}));
  MW_ASSIGN_OR_RETURN(const DeviceContext context, DeviceContext::Make(device));
  std::byte* const labels = memory->data() + logits_bytes;
  ops::cuda::HeadBlockRows block;
  block.logits = memory->data();
  block.labels = reinterpret_cast<const int32_t*>(labels);
  block.losses = reinterpret_cast<float*>(labels + row_bytes);
  block.dloss = reinterpret_cast<const float*>(labels + 2 * row_bytes);
  block.rows = of.rows;
  block.columns = of.vocabulary;
  block.pitch = pitch;
  block.ignored = -1;
  block.gradient = of.gradient;
  block.fault = context.context().fault;
  MW_ASSIGN_OR_RETURN(
      const double seconds, SecondsOfCall(device.queue(), timing, [&](int64_t) -> Status {
        const auto code = target.toolkit->head_rows->RunBlock(block, device.queue().native());
        return code == 0 ? OkStatus() : Internal("the rows of a head");
      }));
  GpuNode node;
  node.kind = fmt::format("rows of the head [{}, {}] with their gradient in {}", of.rows,
                          of.vocabulary, ir::DTypeName(of.gradient));
  node.calls = 1;
  node.seconds = seconds;
  // Logits are read twice, and become the gradient.
  node.cost.bytes = static_cast<double>(of.rows * of.vocabulary) *
                    static_cast<double>(2 * sizeof(float) + ir::DTypeBytes(of.gradient));
  return node;
}

Result<double> GpuCopyRate(const ops::Target& target, int64_t bytes, const GpuTiming& timing) {
  device::Device& device = *target.device;
  MW_ASSIGN_OR_RETURN(const auto memory, device.Allocate({ir::MemoryKind::kOther, 2 * bytes}));
  MW_ASSIGN_OR_RETURN(const double seconds, SecondsOfCall(device.queue(), timing, [&](int64_t) {
                        return device.queue().Copy(memory->data() + bytes, memory->data(), bytes);
                      }));
  return 2 * static_cast<double>(bytes) / seconds;
}

Result<double> GpuMatmulRate(const ops::Target& target, ir::DType dtype, int64_t n,
                             const GpuTiming& timing) {
  ir::Builder builder("product");
  const ir::TensorType square{dtype, {n, n}};
  const ValueId a = builder.AddOne(ir::Op::kInput, {}, {{"name", "a"}}, {square});
  const ValueId b = builder.AddOne(ir::Op::kInput, {}, {{"name", "b"}}, {square});
  builder.SetOutput("c", builder.AddOne(ir::Op::kEinsum, {a, b}, {{"equation", "mk,kn->mn"}}));
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, builder.Finish());
  Node node;
  node.ids.push_back(NodeId(static_cast<int32_t>(graph.nodes.size()) - 1));
  node.operands = 2;
  node.results = 1;
  MW_ASSIGN_OR_RETURN(node.kernel, ops::MakeKernel(target, graph, graph.nodes.back(), {}));
  MW_ASSIGN_OR_RETURN(const double seconds, SecondsOfNode(target, graph, node, timing));
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
}

}  // namespace meshwright::bench
