#include "worker/kernel_timing.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "base/thread_team.h"
#include "device/device.h"
#include "ir/builder.h"
#include "ops/kernel.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kSliceNs = 25'000'000;  // of one kernel and shape
// Of all cores together: a moment in which nobody else runs on any of them is rarer.
constexpr int64_t kHostSliceNs = 200'000'000;
constexpr int kFewestRuns = 3;
constexpr int kMostRuns = 2000;
constexpr int kFloatBytes = 0x3c;  // every byte: about 0.0115, in f32 and bf16

using Types = std::vector<ir::TensorType>;

// A node and what it reads.
struct Probe {
  ir::Op op = ir::Op::kAdd;
  ir::Attrs attrs;
  Types operands;
};

ir::TensorType F32(ir::Dims dims) { return {ir::DType::kF32, std::move(dims)}; }

Probe Product(ir::DType dtype, int64_t m, int64_t k, int64_t n) {
  return {ir::Op::kEinsum, {{"equation", "mk,kn->mn"}}, {{dtype, {m, k}}, {dtype, {k, n}}}};
}

Probe Attention(ir::DType dtype, int64_t length) {
  const ir::TensorType heads{dtype, {1, length, 4, 64}};
  return {ir::Op::kAttention, {{"causal", 1}}, {heads, heads, heads}};
}

Probe Head(ir::DType dtype, int64_t tokens, int64_t words) {
  constexpr int64_t kHidden = 256;
  return {ir::Op::kHeadLoss,
          {{"block_tokens", std::min<int64_t>(tokens, 128)}, {"ignore_index", -1}},
          {{dtype, {tokens, kHidden}}, {dtype, {words, kHidden}}, {ir::DType::kI32, {tokens}}}};
}

Probe Sum(int64_t elements) { return {ir::Op::kAdd, {}, {F32({elements}), F32({elements})}}; }

Probe Optimizer(int64_t elements) {
  const ir::TensorType state = F32({elements});
  return {ir::Op::kAdamW,
          {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}},
          {state, state, state, state, F32({}), F32({})}};
}

Probe Gather(int64_t rows, int64_t ids) {
  return {ir::Op::kEmbedding, {}, {F32({rows, 256}), {ir::DType::kI32, {1, ids}}}};
}

std::vector<Probe> Probes() {
  std::vector<Probe> probes;
  for (const int64_t elements : {16, 1 << 14, 1 << 22}) probes.push_back(Sum(elements));
  probes.push_back({ir::Op::kGelu, {}, {F32({1 << 14})}});
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    for (const int64_t n : {32, 96, 256, 640}) {
      // A cube, and as many FLOPs of many rows times a small weight.
      probes.push_back(Product(dtype, n, n, n));
      probes.push_back(Product(dtype, 8 * n, n / 2, n / 4));
    }
  }
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    for (const int64_t length : {32, 128, 512}) probes.push_back(Attention(dtype, length));
  }
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    probes.push_back(Head(dtype, 32, 512));
    probes.push_back(Head(dtype, 128, 2048));
  }
  probes.push_back(Optimizer(1 << 20));
  probes.push_back(Gather(1 << 15, 1 << 12));
  return probes;
}

// Fills a tensor so that kernels neither meet denormal numbers nor bad ids.
void Fill(const ir::TensorType& type, int64_t ids, std::byte* bytes) {
  std::memset(bytes, kFloatBytes, static_cast<size_t>(type.bytes()));
  if (type.dtype != ir::DType::kI32) return;
  for (int64_t i = 0; i < type.elements(); ++i) {
    constexpr int64_t kStride = 7919;  // a prime: rows are far apart
    const auto id = static_cast<int32_t>(i * kStride % ids);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof id), &id, sizeof id);
  }
}

// Ids select a row of the table or a word.
int64_t IdsOf(const Probe& probe) {
  if (probe.op == ir::Op::kEmbedding) return probe.operands[0].dims[0];
  return probe.op == ir::Op::kHeadLoss ? probe.operands[1].dims[0] : 1;
}

Result<ir::Graph> GraphOf(const Probe& probe) {
  ir::Builder builder("probe");
  std::vector<ValueId> operands;
  for (size_t i = 0; i < probe.operands.size(); ++i) {
    operands.push_back(
        builder.AddOne(ir::Op::kInput, {}, {{"name", std::to_string(i)}}, {probe.operands[i]}));
  }
  const std::vector<ValueId> results = builder.Add(probe.op, operands, probe.attrs);
  for (size_t i = 0; i < results.size(); ++i) {
    builder.SetOutput("result" + std::to_string(i), results[i]);
  }
  return builder.Finish();
}

// A kernel and its tensors, in memory as a job has it: what streams through large pages is faster
// than on a heap.
class LoadedProbe {
 public:
  static Result<std::unique_ptr<LoadedProbe>> Load(const Probe& probe, device::Device& device) {
    auto loaded = std::make_unique<LoadedProbe>();
    MW_ASSIGN_OR_RETURN(loaded->graph_, GraphOf(probe));
    const ir::Graph& graph = loaded->graph_;
    const ir::Node& node = graph.nodes.back();
    MW_ASSIGN_OR_RETURN(loaded->kernel_, ops::MakeKernel(ops::Backend::kCpu, graph, node, {}));
    int64_t bytes = 0;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (ValueId id : *ids) bytes += device::AlignUp(graph.type(id).bytes());
    }
    MW_ASSIGN_OR_RETURN(loaded->memory_, device.Allocate({ir::MemoryKind::kActivations, bytes}));
    std::byte* next = loaded->memory_->data();
    const auto add = [&](ValueId id, std::vector<ops::Tensor>& tensors) {
      Fill(graph.type(id), IdsOf(probe), next);
      tensors.push_back({next, &graph.type(id)});
      next += device::AlignUp(graph.type(id).bytes());
    };
    for (ValueId id : node.inputs) add(id, loaded->inputs_);
    for (ValueId id : node.outputs) add(id, loaded->outputs_);
    return loaded;
  }

  Status Run(ThreadTeam* team) {
    ops::RunContext context;
    context.team = team;
    return kernel_->Run(context, inputs_, outputs_);
  }

  ir::OpCost cost() const { return ir::CostOf(graph_, graph_.nodes.back()); }

 private:
  ir::Graph graph_;
  std::unique_ptr<ops::Kernel> kernel_;
  std::unique_ptr<device::Memory> memory_;
  std::vector<ops::Tensor> inputs_, outputs_;
};

// Of one run: the fastest of those that a slice has time for. The first is not counted.
template <typename RunOnce>
Result<double> FastestSeconds(const Clock& clock, int64_t slice_ns, const RunOnce& run_once) {
  MW_TRY(run_once());
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  const int64_t end_ns = clock.NowNs() + slice_ns;
  for (int run = 0; run < kMostRuns; ++run) {
    const int64_t begin_ns = clock.NowNs();
    if (run >= kFewestRuns && begin_ns >= end_ns) break;
    MW_TRY(run_once());
    least_ns = std::min(least_ns, clock.NowNs() - begin_ns);
  }
  // The clock's own resolution is the least that can be told.
  return static_cast<double>(std::max<int64_t>(1, least_ns)) * 1e-9;
}

struct AtOnce {
  double seconds = 0;  // until all have ended
  ir::OpCost cost;     // of one
};

// `copies` of a probe, each on a thread and with memory of its own.
Result<AtOnce> TimeAtOnce(const Probe& probe, int copies, int64_t slice_ns, const Clock& clock) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device,
                      device::MakeCpuDevice({.name = "probe"}));
  std::vector<std::unique_ptr<LoadedProbe>> loaded(static_cast<size_t>(copies));
  for (auto& one : loaded) {
    MW_ASSIGN_OR_RETURN(one, LoadedProbe::Load(probe, *device));
  }
  ThreadTeam team(copies);
  std::vector<Status> statuses(loaded.size());
  const auto run_all = [&]() -> Status {
    team.ParallelFor(copies, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        statuses[i] = loaded[i]->Run(nullptr);
      }
    });
    for (const Status& status : statuses) MW_TRY(status);
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(const double seconds, FastestSeconds(clock, slice_ns, run_all));
  return AtOnce{seconds, loaded.front()->cost()};
}

}  // namespace

Result<std::vector<KernelTiming>> TimeKernels(int threads, const Clock& clock) {
  ThreadTeam team(threads);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device,
                      device::MakeCpuDevice({.name = "probe"}));
  std::vector<KernelTiming> timings;
  for (const Probe& probe : Probes()) {
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedProbe> loaded,
                        LoadedProbe::Load(probe, *device));
    ThreadTeam* const own_team = threads > 1 ? &team : nullptr;
    MW_ASSIGN_OR_RETURN(const double seconds,
                        FastestSeconds(clock, kSliceNs, [&] { return loaded->Run(own_team); }));
    timings.push_back({probe.op, probe.operands[0].dtype, loaded->cost(), seconds});
  }
  return timings;
}

Result<double> TimeHostStream(int cores, const Clock& clock) {
  // As large as TimeKernels' largest sum, and smaller on many cores: together they are more than
  // caches hold.
  constexpr int64_t kAllElements = 1 << 24;
  const int64_t elements = std::clamp<int64_t>(kAllElements / cores, 1 << 20, 1 << 22);
  MW_ASSIGN_OR_RETURN(const AtOnce sums, TimeAtOnce(Sum(elements), cores, kHostSliceNs, clock));
  return cores * sums.cost.bytes / sums.seconds;
}

Result<double> TimeHostCompute(int cores, const Clock& clock) {
  // In the caches of a core, and long against waking a thread.
  const Probe product = Product(ir::DType::kF32, 256, 256, 256);
  MW_ASSIGN_OR_RETURN(const AtOnce alone, TimeAtOnce(product, 1, kHostSliceNs / 2, clock));
  MW_ASSIGN_OR_RETURN(const AtOnce all, TimeAtOnce(product, cores, kHostSliceNs, clock));
  return std::min(1.0, alone.seconds / all.seconds);
}

}  // namespace meshwright::worker
