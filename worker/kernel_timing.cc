#include "worker/kernel_timing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/median.h"
#include "base/thread_team.h"
#include "device/device.h"
#include "ir/builder.h"
#include "ops/kernel.h"
#include "worker/run_times.h"

namespace meshwright::worker {
namespace {

constexpr int kTurns = 8;
constexpr int64_t kSliceNs = 25'000'000;       // of one kernel and shape
constexpr int64_t kHostSliceNs = 600'000'000;  // of sums, a product alone, and products
constexpr int kMostRuns = 500;                 // of a turn
constexpr int kFloatBytes = 0x3c;              // every byte: about 0.0115, in f32 and bf16

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

Probe Attention(ir::DType dtype, ir::Dims dims) {
  const ir::TensorType heads{dtype, std::move(dims)};
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
    for (const int64_t length : {32, 128, 512}) {
      // As many FLOPs in one long sequence and in several short ones, of whose narrow heads scores
      // are a larger part.
      probes.push_back(Attention(dtype, {1, length, 4, 64}));
      probes.push_back(Attention(dtype, {16, length / 4, 8, 32}));
    }
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
  MW_CHECK(ids >= 1) << "a table of " << ids << " rows";
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
    MW_CHECK(next == loaded->memory_->data() + bytes) << "a probe takes another memory than it has";
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

// Copies of a probe, each with memory of its own, one per thread of a team.
class Copies {
 public:
  static Result<std::unique_ptr<Copies>> Load(const Probe& probe, int count) {
    auto copies = std::make_unique<Copies>(count);
    MW_ASSIGN_OR_RETURN(copies->device_, device::MakeCpuDevice({.name = "probe"}));
    for (auto& one : copies->loaded_) {
      MW_ASSIGN_OR_RETURN(one, LoadedProbe::Load(probe, *copies->device_));
      MW_TRY(one->Run(nullptr));
    }
    return copies;
  }

  explicit Copies(int count) : team_(count), loaded_(static_cast<size_t>(count)) {}

  // Runs per second of all copies together, each as often as a turn has time for.
  Result<double> TakeTurn(const Clock& clock, const CoreMeter& meter) {
    constexpr TurnLimits kLimits{kHostSliceNs / kTurns, kMostRuns};
    std::vector<Result<double>> seconds(loaded_.size());
    team_.ParallelFor(static_cast<int64_t>(loaded_.size()), [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        seconds[i] = TimeTurn(
            clock, kLimits, [&] { return loaded_[i]->Run(nullptr); }, meter);
      }
    });
    double sum = 0;
    for (const Result<double>& of_one : seconds) {
      MW_TRY(of_one);
      sum += 1 / *of_one;
    }
    return sum;
  }

  ir::OpCost cost() const { return loaded_.front()->cost(); }

 private:
  ThreadTeam team_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<LoadedProbe>> loaded_;
};

// Each kernel alone.
class KernelTurns {
 public:
  static Result<std::unique_ptr<KernelTurns>> Load(int threads) {
    auto turns = std::make_unique<KernelTurns>(threads);
    MW_ASSIGN_OR_RETURN(turns->device_, device::MakeCpuDevice({.name = "probe"}));
    for (const Probe& probe : turns->probes_) {
      MW_ASSIGN_OR_RETURN(turns->loaded_.emplace_back(), LoadedProbe::Load(probe, *turns->device_));
    }
    return turns;
  }

  explicit KernelTurns(int threads)
      : team_(threads), own_team_(threads > 1 ? &team_ : nullptr), seconds_(probes_.size()) {}

  Status TakeTurn(const Clock& clock, const CoreMeter& meter) {
    const TurnLimits limits{kSliceNs / kTurns, kMostRuns, own_team_ != nullptr};
    for (size_t i = 0; i < probes_.size(); ++i) {
      const auto run_once = [&] { return loaded_[i]->Run(own_team_); };
      MW_TRY(run_once());
      MW_ASSIGN_OR_RETURN(seconds_[i].emplace_back(), TimeTurn(clock, limits, run_once, meter));
    }
    return OkStatus();
  }

  std::vector<KernelTiming> Timings() const {
    MW_CHECK(loaded_.size() == probes_.size() && !seconds_.front().empty()) << "no turn was taken";
    std::vector<KernelTiming> timings;
    for (size_t i = 0; i < probes_.size(); ++i) {
      timings.push_back(
          {probes_[i].op, probes_[i].operands[0].dtype, loaded_[i]->cost(), Median(seconds_[i])});
    }
    return timings;
  }

 private:
  const std::vector<Probe> probes_ = Probes();
  ThreadTeam team_;
  ThreadTeam* own_team_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<LoadedProbe>> loaded_;
  std::vector<std::vector<double>> seconds_;  // of each turn
};

// All cores of the host at once.
class HostTurns {
 public:
  static Result<std::unique_ptr<HostTurns>> Load(int cores) {
    MW_CHECK(cores >= 1) << "a host of " << cores << " cores";
    // As large as the largest sum alone, and smaller on many cores: together they are more than
    // caches hold.
    constexpr int64_t kAllElements = 1 << 24;
    const int64_t elements = std::clamp<int64_t>(kAllElements / cores, 1 << 20, 1 << 22);
    // In the caches of a core, and long against waking a thread.
    const Probe product = Product(ir::DType::kF32, 256, 256, 256);
    auto turns = std::make_unique<HostTurns>();
    turns->cores_ = cores;
    MW_ASSIGN_OR_RETURN(turns->sums_, Copies::Load(Sum(elements), cores));
    MW_ASSIGN_OR_RETURN(turns->product_, Copies::Load(product, 1));
    MW_ASSIGN_OR_RETURN(turns->products_, Copies::Load(product, cores));
    return turns;
  }

  Status TakeTurn(const Clock& clock, const CoreMeter& meter) {
    MW_ASSIGN_OR_RETURN(const double sums_per_s, sums_->TakeTurn(clock, meter));
    bytes_per_s_.push_back(sums_per_s * sums_->cost().bytes);
    MW_ASSIGN_OR_RETURN(const double alone_per_s, product_->TakeTurn(clock, meter));
    MW_ASSIGN_OR_RETURN(const double all_per_s, products_->TakeTurn(clock, meter));
    alone_per_s_ = std::max(alone_per_s_, alone_per_s);
    all_per_s_ = std::max(all_per_s_, all_per_s);
    return OkStatus();
  }

  double BytesPerSecond() const { return Median(bytes_per_s_); }
  // Of the best turns: what other machines take makes one slower, never faster, and what cores take
  // from one another they take in each.
  double ComputeShare() const { return std::min(1.0, all_per_s_ / cores_ / alone_per_s_); }

 private:
  int cores_ = 1;
  std::unique_ptr<Copies> sums_, product_, products_;
  std::vector<double> bytes_per_s_;         // of each turn
  double alone_per_s_ = 0, all_per_s_ = 0;  // products of the best turn
};

}  // namespace

Result<MachineTimings> TimeMachine(const TimingOptions& options, const Clock& clock,
                                   const CoreMeter& meter) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<KernelTurns> kernels,
                      KernelTurns::Load(options.threads));
  std::unique_ptr<HostTurns> host;
  if (options.host_cores > 0) {
    auto loaded = HostTurns::Load(options.host_cores);
    if (loaded) {
      host = *std::move(loaded);
    } else {
      LogWarn("the host's rates are not measured, plans take none to be shared: " +
              loaded.error().message());
    }
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    MW_TRY(kernels->TakeTurn(clock, meter));
    if (host) MW_TRY(host->TakeTurn(clock, meter));
  }
  MachineTimings timings{kernels->Timings()};
  if (host) {
    timings.host_bytes_per_s = host->BytesPerSecond();
    timings.host_compute_share = host->ComputeShare();
  }
  return timings;
}

}  // namespace meshwright::worker
