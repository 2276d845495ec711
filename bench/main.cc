// mw_bench: the parts of the benchmarks that are C++. bench/run calls it; JSON lines on stdout.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/median.h"
#include "bench/all_reduce.h"
#include "bench/ask_case.h"
#include "bench/checkpoint_case.h"
#include "bench/crowd_case.h"
#include "bench/device_run.h"
#include "bench/encode_case.h"
#include "bench/gpu_cases.h"
#include "bench/grouped.h"
#include "bench/limits.h"
#include "bench/overhead.h"
#include "bench/plan_case.h"
#include "bench/profile.h"
#include "bench/published.h"
#include "bench/session_case.h"
#include "bench/writing_case.h"
#include "planner/cost_model.h"
#include "profile/worker_profile.h"
#include "worker/kernel_timing.h"

namespace meshwright::bench {
namespace {

struct ProfileArgs {
  DeviceRunOptions run;
  int64_t steps = 5;
  bool json = false;
};

// This machine as a worker with so many threads measures it.
Result<mesh::Topology> MeasuredDevice(int threads) {
  MW_ASSIGN_OR_RETURN(const worker::MachineTimings timings,
                      worker::TimeMachine({.threads = threads}, SystemClock()));
  MW_ASSIGN_OR_RETURN(mesh::DeviceProfile profile,
                      profile::MakeMeasuredProfile("bench", timings.kernels));
  mesh::Topology topology = mesh::Topology::Local(1);
  topology.devices[0].profile = std::make_shared<const mesh::DeviceProfile>(std::move(profile));
  return topology;
}

Status PrintProfile(ProfileArgs args) {
  MW_ASSIGN_OR_RETURN(const mesh::Topology topology, MeasuredDevice(args.run.threads));
  const planner::CostModel costs(topology);
  Profile profile(&costs);
  args.run.observer = &profile;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceRun> run, DeviceRun::Start(args.run));
  MW_TRY(run->Step(2));
  profile.Clear();
  MW_ASSIGN_OR_RETURN(const std::vector<double> seconds, run->Step(args.steps));
  double step = 0;
  for (const double s : seconds) step += s;
  const std::map<std::string, NodeTotals> totals_of = profile.Totals();
  std::vector<std::pair<std::string, NodeTotals>> rows(totals_of.begin(), totals_of.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double steps = static_cast<double>(args.steps);
  double nodes = 0, least = 0, forecast = 0;
  for (const auto& [name, totals] : rows) {
    nodes += totals.seconds;
    least += totals.least_s;
    forecast += totals.forecast_s;
    if (args.json) {
      fmt::print(R"({{"kind":"{}","calls":{},"seconds":{:.9g},"flops":{:.9g},"bytes":{:.9g},)"
                 R"("least_seconds":{:.9g},"forecast_seconds":{:.9g}}})"
                 "\n",
                 name, totals.calls / args.steps, totals.seconds / steps, totals.flops / steps,
                 totals.bytes / steps, totals.least_s / steps, totals.forecast_s / steps);
      continue;
    }
    fmt::print(
        "{:8.3f} ms {:5.1f} %  {:4} x  {:7.1f} GFLOP/s {:6.1f} GB/s  least {:8.3f} forecast "
        "{:8.3f} "
        "ms  {}\n",
        totals.seconds / steps * 1e3, 100 * totals.seconds / step, totals.calls / args.steps,
        totals.flops / totals.seconds / 1e9, totals.bytes / totals.seconds / 1e9,
        totals.least_s / steps * 1e3, totals.forecast_s / steps * 1e3, name);
  }
  if (args.json) {
    fmt::print(R"({{"kind":"step","seconds":{:.9g},"median_seconds":{:.9g}}})"
               "\n",
               step / steps, Median(seconds));
    return OkStatus();
  }
  fmt::print(
      "step {:.3f} ms (median {:.3f}), outside of nodes {:.3f} ms; nodes at their fastest {:.3f} "
      "ms, "
      "forecast {:.3f} ms\n",
      step / steps * 1e3, Median(seconds) * 1e3, (step - nodes) / steps * 1e3, least / steps * 1e3,
      forecast / steps * 1e3);
  return OkStatus();
}

Status PrintOverhead(const ProfileArgs& args) {
  MW_ASSIGN_OR_RETURN(const Overhead overhead, MeasureOverhead(args.run, args.steps));
  fmt::print(
      R"({{"nodes":{},"instructions":{},"step_seconds":{:.9g},"recorded_seconds":{:.9g},)"
      R"("marks":{},"rest_seconds":{:.9g},"observer_seconds":{:.9g},"overhead_seconds":{:.9g}}})"
      "\n",
      overhead.nodes, overhead.instructions, overhead.step_seconds, overhead.recorded_seconds,
      overhead.marks, overhead.rest_seconds, overhead.observer_seconds,
      overhead.overhead_seconds());
  return OkStatus();
}

Status PrintAllReduce(const AllReduceOptions& options) {
  MW_ASSIGN_OR_RETURN(const double seconds, AllReduceSeconds(options));
  fmt::print("{{\"seconds\":{:.9g}}}\n", seconds);
  return OkStatus();
}

Status PrintSessionCase(const std::string& address, int64_t calls) {
  MW_ASSIGN_OR_RETURN(const SessionCase result, RunSessionCase(address, calls));
  fmt::print("{{\"calls\":{},\"call_seconds\":{:.9g},\"step_seconds\":{:.9g}}}\n", result.calls,
             result.call_seconds, result.step_seconds);
  return OkStatus();
}

Status PrintAskCase(const std::string& address, int64_t asks) {
  MW_ASSIGN_OR_RETURN(const AskCase result, RunAskCase(address, asks));
  fmt::print("{{\"asks\":{},\"ask_seconds\":{:.9g},\"unary_seconds\":{:.9g}}}\n", result.asks,
             result.ask_seconds, result.unary_seconds);
  return OkStatus();
}

Status PrintPlanCase(const PlanCaseOptions& options) {
  MW_ASSIGN_OR_RETURN(const PlanCase result, RunPlanCase(options));
  fmt::print("{}\n", FormatPlanCase(result));
  return OkStatus();
}

Status PrintWritingCase(const WritingCaseOptions& options) {
  MW_ASSIGN_OR_RETURN(const WritingCase result, RunWritingCase(options));
  fmt::print("{}\n", FormatWritingCase(result));
  return OkStatus();
}

struct EncodeArgs {
  std::string tokenizer, text;
  int rounds = 5;
};

Status PrintEncodeCase(const EncodeArgs& args) {
  MW_ASSIGN_OR_RETURN(const EncodeCase result,
                      RunEncodeCase(args.tokenizer, args.text, args.rounds));
  fmt::print("{{\"load_seconds\":{:.9g},\"bytes_per_s\":{:.9g},\"tokens\":{}}}\n",
             result.load_seconds, result.bytes_per_s, result.tokens);
  return OkStatus();
}

CLI::App* AddEncodeCommand(CLI::App& app, EncodeArgs& args) {
  CLI::App* command = app.add_subcommand("encode", "How fast a tokenizer.json is");
  command->add_option("tokenizer", args.tokenizer)->required();
  command->add_option("text", args.text)->required();
  command->add_option("--rounds", args.rounds)->check(CLI::PositiveNumber);
  return command;
}

CLI::App* AddWritingCommand(CLI::App& app, WritingCaseOptions& options) {
  CLI::App* command = app.add_subcommand("write", "How fast a folder's model writes texts");
  command->add_option("address", options.address)->required();
  command->add_option("folder", options.folder)->required();
  command->add_option("--set", options.overrides);
  for (auto [name, value] : {std::pair{"--texts", &options.texts},
                             {"--prompt", &options.prompt_tokens},
                             {"--new", &options.new_tokens},
                             {"--step", &options.step_tokens}}) {
    command->add_option(name, *value)->check(CLI::PositiveNumber);
  }
  command->add_option("--late", options.late_prompt_tokens)->check(CLI::NonNegativeNumber);
  return command;
}

// All cases, or those whose names begin so.
Status PrintPublished(const std::string& prefix) {
  for (const PublishedLayout& layout : PublishedLayouts()) {
    if (!layout.name.starts_with(prefix)) continue;
    MW_ASSIGN_OR_RETURN(const PublishedResult result, PlanPublished(layout));
    fmt::print("{}\n", FormatPublished(layout, result));
  }
  return OkStatus();
}

CLI::App* AddPublishedCommand(CLI::App& app, std::string& prefix) {
  CLI::App* command =
      app.add_subcommand("published", "Memory of published layouts, against a closed form");
  command->add_option("prefix", prefix, "Of names; empty: all");
  return command;
}

struct CheckpointArgs {
  std::string folder;
  int64_t mebibytes = 1024;
  int readers = 4;
  int rounds = 5;
  int64_t boxes = 100'000;  // of the case "cover"
};

Status PrintLoadCase(const CheckpointArgs& args) {
  MW_ASSIGN_OR_RETURN(const LoadCase result,
                      RunLoadCase(args.folder, args.mebibytes << 20, args.readers, args.rounds));
  fmt::print(
      "{{\"bytes\":{},\"load_seconds\":{:.9g},\"read_seconds\":{:.9g},\"digest_seconds\":{:.9g}}}"
      "\n",
      result.bytes, result.load_seconds, result.read_seconds, result.digest_seconds);
  return OkStatus();
}

void PrintCover(const CheckpointArgs& args) {
  fmt::print("{{\"seconds\":{:.9g}}}\n", CoverSeconds(args.boxes, args.rounds));
}

void AddCheckpointOptions(CLI::App* command, CheckpointArgs& args) {
  command->add_option("folder", args.folder, "Where the checkpoint is written first")->required();
  command->add_option("--mebibytes", args.mebibytes)->check(CLI::PositiveNumber);
  command->add_option("--readers", args.readers)->check(CLI::PositiveNumber);
  command->add_option("--rounds", args.rounds)->check(CLI::PositiveNumber);
}

void AddPlanOptions(CLI::App* command, PlanCaseOptions& options) {
  command->add_option("job", options.job_file)->required();
  command->add_option("--set", options.overrides);
  CLI::Option* file = command->add_option("--cluster", options.cluster_file);
  command->add_option("--address", options.address, "Of a running cluster")->excludes(file);
  command->add_option("--hosts", options.hosts, "Of the first group");
  command->add_option("--profile", options.profile, "Of the first group's devices");
  command->add_option("--limit-ms", options.limit_ms, "Of the search");
}

void AddJobOptions(CLI::App* command, ProfileArgs& args) {
  command->add_option("job", args.run.job_file)->required();
  command->add_option("--set", args.run.overrides);
  command->add_option("--threads", args.run.threads);
  command->add_option("--steps", args.steps);
}

CLI::App* AddGpuCommand(CLI::App& app, const char* name, const char* meaning, GpuArgs& args) {
  CLI::App* command = app.add_subcommand(name, meaning);
  command->add_option("job", args.run.job_file)->required();
  command->add_option("--set", args.run.overrides);
  command->add_option("--steps", args.steps)->check(CLI::PositiveNumber);
  command->add_flag("--quick", args.quick, "Small sizes, once: does it run at all");
  return command;
}

CLI::App* AddMatmulCommand(CLI::App& app, MatmulShape& shape, bool& bf16, int& threads) {
  CLI::App* command = app.add_subcommand("matmul", "oneDNN's rate for one shape");
  command->add_option("m", shape.m)->required();
  command->add_option("n", shape.n)->required();
  command->add_option("k", shape.k)->required();
  command->add_flag("--ta", shape.a_transposed);
  command->add_flag("--tb", shape.b_transposed);
  command->add_flag("--bf16", bf16);
  command->add_option("--threads", threads);
  return command;
}

CLI::App* AddGroupedCommand(CLI::App& app, GroupedCase& grouped) {
  CLI::App* command = app.add_subcommand("grouped", "Products of experts, against one product");
  for (auto [name, value] : {std::pair{"experts", &grouped.experts},
                             {"rows", &grouped.rows},
                             {"d", &grouped.d},
                             {"f", &grouped.f}}) {
    command->add_option(name, *value)->required()->check(CLI::PositiveNumber);
  }
  command->add_flag("--bf16", grouped.bf16);
  return command;
}

CLI::App* AddAllReduceCommand(CLI::App& app, AllReduceOptions& options) {
  CLI::App* command = app.add_subcommand("all_reduce", "Between processes");
  command->add_option("--ranks", options.ranks);
  command->add_option("--bytes", options.bytes);
  command->add_option("--repeats", options.repeats);
  command->add_option("--batches", options.batches);
  command->add_flag("--stage", options.stage);
  command->add_flag("--tcp", options.tcp);
  command->add_option("--tls-dir", options.tls_dir);
  return command;
}

struct CallArgs {
  std::string address;
  int64_t calls = 10'000;
};

CLI::App* AddCallCommand(CLI::App& app, const char* name, const char* meaning, const char* count,
                         CallArgs& args) {
  CLI::App* command = app.add_subcommand(name, meaning);
  command->add_option("--address", args.address, "Of a running cluster")->required();
  command->add_option(count, args.calls)->check(CLI::PositiveNumber);
  return command;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures Meshwright's parts; see bench/run.", "mw_bench");
  app.require_subcommand(1);
  ProfileArgs profile;
  CLI::App* profile_command = app.add_subcommand("profile", "Where a step's time goes");
  AddJobOptions(profile_command, profile);
  profile_command->add_flag("--json", profile.json);
  CLI::App* overhead_command =
      app.add_subcommand("overhead", "What a step costs beside its kernels");
  AddJobOptions(overhead_command, profile);
  AllReduceOptions all_reduce;
  CLI::App* all_reduce_command = AddAllReduceCommand(app, all_reduce);
  MatmulShape shape;
  int threads = 1;
  bool bf16 = false;
  CLI::App* matmul_command = AddMatmulCommand(app, shape, bf16, threads);
  GroupedCase grouped;
  CLI::App* grouped_command = AddGroupedCommand(app, grouped);
  CLI::App* copy_command = app.add_subcommand("copy", "Copy bandwidth");
  copy_command->add_option("--threads", threads);
  CLI::App* read_command = app.add_subcommand("read", "Read bandwidth");
  read_command->add_option("--threads", threads);
  CallArgs calls;
  CLI::App* call_command =
      AddCallCommand(app, "call", "A session's call of a tiny program", "--calls", calls);
  CLI::App* ask_command =
      AddCallCommand(app, "ask", "A client's question to a host actor", "--asks", calls);
  CheckpointArgs checkpoint;
  CLI::App* load_command = app.add_subcommand("load", "Reading a checkpoint, against its bytes");
  AddCheckpointOptions(load_command, checkpoint);
  CLI::App* cover_command = app.add_subcommand("cover", "Checking that boxes cover a tensor");
  cover_command->add_option("--boxes", checkpoint.boxes)->check(CLI::Range(1000, 10'000'000));
  PlanCaseOptions plan;
  CLI::App* plan_command = app.add_subcommand("plan", "A plan's seconds and its forecast");
  AddPlanOptions(plan_command, plan);
  std::string published;
  EncodeArgs encode;
  CLI::App* encode_command = AddEncodeCommand(app, encode);
  WritingCaseOptions writing;
  CLI::App* writing_command = AddWritingCommand(app, writing);
  CLI::App* published_command = AddPublishedCommand(app, published);
  GpuArgs gpu;
  CLI::App* gpu_kernels_command = AddGpuCommand(
      app, "gpu-kernels", "Each kernel of a step on the first GPU, and its limits", gpu);
  CLI::App* gpu_step_command = AddGpuCommand(app, "gpu-step", "A job's step on the first GPU", gpu);
  CLI11_PARSE(app, argc, argv);
  if (*gpu_kernels_command) return PrintGpuKernels(gpu);
  if (*gpu_step_command) return PrintGpuStep(gpu);
  Status status;
  if (*profile_command) status = PrintProfile(profile);
  if (*overhead_command) status = PrintOverhead(profile);
  if (*all_reduce_command) status = PrintAllReduce(all_reduce);
  if (*call_command) status = PrintSessionCase(calls.address, calls.calls);
  if (*encode_command) status = PrintEncodeCase(encode);
  if (*writing_command) status = PrintWritingCase(writing);
  if (*ask_command) status = PrintAskCase(calls.address, calls.calls);
  if (*load_command) status = PrintLoadCase(checkpoint);
  if (*cover_command) PrintCover(checkpoint);
  if (*plan_command) status = PrintPlanCase(plan);
  if (*published_command) status = PrintPublished(published);
  if (*grouped_command) status = PrintGroupedCase(grouped);
  if (*matmul_command) {
    const double seconds = MatmulSeconds(shape, bf16 ? ir::DType::kBF16 : ir::DType::kF32, threads);
    fmt::print("{:.1f} GFLOP/s\n",
               2e-9 * static_cast<double>(shape.m * shape.n * shape.k) / seconds);
  }
  if (*read_command) fmt::print("{:.1f} GB/s\n", ReadBandwidth(threads) / 1e9);
  if (*copy_command) fmt::print("{:.1f} GB/s\n", CopyBandwidth(threads) / 1e9);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace meshwright::bench

// As "worker" and "host-actors" this program is the worker of the case "ask".
int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "worker") return meshwright::bench::AskWorker(argc - 1, argv + 1);
  if (mode == "host-actors") return meshwright::bench::AskWorker(argc, argv);
  if (mode == "crowd") return meshwright::bench::CrowdMain(argc - 1, argv + 1);
  return meshwright::bench::Main(argc, argv);
}
