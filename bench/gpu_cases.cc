#include "bench/gpu_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "base/text.h"
#include "bench/gpu_nodes.h"
#include "bench/gpu_trace.h"
#include "device/cuda/device.h"
#include "worker/gpus.h"

namespace meshwright::bench {
namespace {

constexpr double kCopyTarget = 0.85;  // of memory-bound kernels
constexpr double kIdleTarget = 0.02;  // of a step
// Smaller ones are the price of a launch, not of memory.
constexpr double kMemoryBoundBytes = 16 << 20;

std::string Quoted(std::string_view text) { return fmt::format("\"{}\"", JsonEscape(text)); }

int Say(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "error: {}\n", status.message());
  return 1;
}

Result<worker::Gpus> FirstGpu() {
  auto gpus = worker::FindGpus(1, {});
  if (!gpus.has_value()) {
    fmt::print("{{\"case\":\"gpu\",\"skipped\":{}}}\n", Quoted(gpus.error().message()));
  }
  return gpus;
}

struct Line {
  std::string name;
  double value = 0;
  std::string unit;
  double target = 0;  // of `judged`; 0: none
  double judged = 0;
  bool at_most = false;   // else at least
  std::string more = {};  // further fields, each with a comma before it
};

void Print(const Line& line, const std::string& device) {
  const bool met = line.at_most ? line.judged <= line.target : line.judged >= line.target;
  const std::string target =
      line.target == 0 ? "null"
                       : fmt::format("\"{} {:.4g}\"", line.at_most ? "<=" : ">=", line.target);
  fmt::print(R"({{"case":{},"value":{:.6g},"unit":"{}","target":{},"met":{},"device":{}{}}})"
             "\n",
             Quoted(line.name), line.value, line.unit, target,
             line.target == 0 ? "null" : (met ? "true" : "false"), Quoted(device), line.more);
  std::fflush(stdout);
}

struct Limits {
  double copy_bytes_per_s = 0;
  double matmul_flops_per_s = 0;  // of the job's dtype
};

struct Product {
  const char* name;
  ir::DType dtype;
  bool tf32;
};
constexpr Product kProducts[] = {{"bf16", ir::DType::kBF16, false},
                                 {"f16", ir::DType::kF16, false},
                                 {"tf32", ir::DType::kF32, true},
                                 {"f32", ir::DType::kF32, false}};

// A device of this process and what computes on it.
struct OpenGpu {
  worker::Gpus gpus;
  ops::cuda::Toolkit toolkit;
  std::unique_ptr<device::cuda::CudaDevice> device;

  static Result<std::unique_ptr<OpenGpu>> Open(worker::Gpus gpus) {
    auto opened = std::make_unique<OpenGpu>();
    opened->toolkit = *gpus.toolkit;
    device::DeviceOptions options;
    options.name = "cuda:0";
    MW_ASSIGN_OR_RETURN(opened->device, device::cuda::CudaDevice::Make(
                                            *gpus.driver, gpus.indices[0], std::move(options)));
    MW_TRY(opened->device->EnterThread());
    opened->gpus = std::move(gpus);
    return opened;
  }
};

GpuTiming TimingOf(const GpuArgs& args, int64_t l2_bytes) {
  GpuTiming timing;
  timing.l2_bytes = l2_bytes;
  if (args.quick) {
    timing.batch_seconds = 0;
    timing.batches = 1;
  }
  return timing;
}

Result<Limits> PrintLimits(OpenGpu& gpu, const GpuTiming& timing, const GpuArgs& args,
                           ir::DType dtype) {
  Limits limits;
  ops::Target target(*gpu.device, gpu.toolkit);
  MW_ASSIGN_OR_RETURN(limits.copy_bytes_per_s,
                      GpuCopyRate(target, args.quick ? 1 << 20 : 1 << 30, timing));
  Print({"gpu-copy", limits.copy_bytes_per_s / 1e9, "GB/s"}, gpu.gpus.name);
  for (const Product& product : kProducts) {
    ops::cuda::Toolkit toolkit = gpu.toolkit;
    toolkit.tf32 = product.tf32;
    MW_ASSIGN_OR_RETURN(const double rate, GpuMatmulRate({*gpu.device, toolkit}, product.dtype,
                                                         args.quick ? 256 : 8192, timing));
    if (product.dtype == dtype && !product.tf32) limits.matmul_flops_per_s = rate;
    Print({fmt::format("gpu-matmul-{}", product.name), rate / 1e12, "TFLOP/s"}, gpu.gpus.name);
  }
  return limits;
}

void PrintNode(const GpuNode& node, const Limits& limits, const std::string& device) {
  const double at_memory = node.cost.bytes / limits.copy_bytes_per_s;
  const double at_compute = node.cost.flops / limits.matmul_flops_per_s;
  const bool of_memory = at_memory > at_compute;
  const double share = std::max(at_memory, at_compute) / node.seconds;
  Line line{"gpu-kernel", node.seconds * 1e6, "us"};
  if (of_memory && node.cost.bytes >= kMemoryBoundBytes) {
    line.target = kCopyTarget;
    line.judged = share;
  }
  line.more =
      fmt::format(R"(,"kind":{},"calls":{},"gb_per_s":{:.5g},"tflop_per_s":{:.5g},"bound":"{}",)"
                  R"("share_of_limit":{:.4g})",
                  Quoted(node.kind), node.calls, node.cost.bytes / node.seconds / 1e9,
                  node.cost.flops / node.seconds / 1e12, of_memory ? "memory" : "compute", share);
  Print(line, device);
}

Status KernelCases(worker::Gpus gpus, const GpuArgs& args) {
  MW_ASSIGN_OR_RETURN(const auto gpu, OpenGpu::Open(std::move(gpus)));
  const GpuTiming timing = TimingOf(args, gpu->device->description().l2_bytes);
  MW_ASSIGN_OR_RETURN(const PlannedRun planned, PlanRun(args.run));
  MW_ASSIGN_OR_RETURN(const Limits limits, PrintLimits(*gpu, timing, args, planned.compute_dtype));
  MW_ASSIGN_OR_RETURN(const std::vector<GpuNode> nodes,
                      TimeGpuNodes({*gpu->device, gpu->toolkit}, planned.plan.Main()[0], timing));
  MW_ASSIGN_OR_RETURN(
      const GpuNode head,
      TimeHeadRows({*gpu->device, gpu->toolkit},
                   {args.quick ? 64 : 4096, planned.vocabulary, planned.compute_dtype}, timing));
  PrintNode(head, limits, gpu->gpus.name);
  double seconds = 0;
  for (const GpuNode& node : nodes) {
    PrintNode(node, limits, gpu->gpus.name);
    seconds += static_cast<double>(node.calls) * node.seconds;
  }
  Print({"gpu-kernels-of-a-step", seconds * 1e3, "ms"}, gpu->gpus.name);
  return OkStatus();
}

// Counted steps under a trace; null where nothing can be traced.
Result<std::string> IdleFields(DeviceRun& run, int64_t steps, Line& line) {
  Result<GpuTrace> trace = GpuTrace::Open();
  if (!trace.has_value()) {
    return fmt::format(R"(,"idle":null,"idle_note":{})", Quoted(trace.error().message()));
  }
  if (const Status status = trace->Start(); !status.ok()) {
    return fmt::format(R"(,"idle":null,"idle_note":{})", Quoted(status.message()));
  }
  MW_TRY(run.Step(2));  // what is traced for the first time is slower
  MW_TRY(trace->Stop());
  MW_TRY(trace->Start());
  MW_TRY(run.Step(steps));
  MW_ASSIGN_OR_RETURN(const GpuActivity activity, trace->Stop());
  if (activity.count == 0 || activity.dropped > 0) {
    return fmt::format(R"(,"idle":null,"idle_note":"{} records, {} dropped")", activity.count,
                       activity.dropped);
  }
  line.target = kIdleTarget;
  line.at_most = true;
  line.judged = 1 - activity.busy_s / activity.span_s;
  return fmt::format(R"(,"idle":{:.4g},"kernels_and_copies":{})", line.judged,
                     activity.count / steps);
}

Status StepCase(const worker::Gpus& gpus, GpuArgs args) {
  args.run.gpus.driver = gpus.driver;
  args.run.gpus.toolkit = gpus.toolkit;
  args.run.gpus.indices = gpus.indices;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceRun> run, DeviceRun::Start(args.run));
  MW_TRY(run->Step(args.warm_steps));
  MW_ASSIGN_OR_RETURN(std::vector<double> seconds, run->Step(args.steps));
  const double step = Median(std::move(seconds));
  const planner::Plan& plan = run->plan();
  Line line{args.run.job_file, plan.tokens_per_step / step, "tokens/s"};
  Line idle{args.run.job_file + " idle", 0, "of the step"};
  MW_ASSIGN_OR_RETURN(const std::string fields,
                      IdleFields(*run, std::min<int64_t>(args.steps, 10), idle));
  line.more = fmt::format(R"(,"step_ms":{:.6g},"model_tflop_per_s":{:.6g})", step * 1e3,
                          plan.model_flops / step / 1e12);
  Print(line, gpus.name);
  idle.value = idle.judged;
  idle.more = fields;
  Print(idle, gpus.name);
  return OkStatus();
}

}  // namespace

int PrintGpuKernels(const GpuArgs& args) {
  Result<worker::Gpus> gpus = FirstGpu();
  if (!gpus.has_value()) return kExitNoGpu;
  return Say(KernelCases(std::move(*gpus), args));
}

int PrintGpuStep(const GpuArgs& args) {
  const Result<worker::Gpus> gpus = FirstGpu();
  if (!gpus.has_value()) return kExitNoGpu;
  return Say(StepCase(*gpus, args));
}

}  // namespace meshwright::bench
