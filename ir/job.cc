#include "ir/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "ir/check_optimizer.h"
#include "ir/gpu_support.h"
#include "ir/metric.h"
#include "ir/program_outputs.h"
#include "ir/schema.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidField(field, fmt::format("is {}; it must be in [{}, {}]", value, low, high));
}

Status CheckLossOutputs(const Graph& loss) {
  for (const char* name : {"loss_sum", "count"}) {
    const ValueId id = loss.Output(name);
    if (!id.valid()) {
      return InvalidArgument(fmt::format(
          "the loss graph '{}' has no output \"{}\"; it needs \"loss_sum\" and \"count\"",
          loss.name, name));
    }
    if (loss.type(id).rank() != 0 || !IsFloating(loss.type(id).dtype)) {
      return InvalidArgument(
          fmt::format("output \"{}\" of the loss graph is {}; it must be a floating point scalar",
                      name, loss.type(id).ToString()));
    }
  }
  const TensorType& sum = loss.type(loss.Output("loss_sum"));
  const TensorType& count = loss.type(loss.Output("count"));
  if (sum != count) {
    return InvalidArgument(
        fmt::format("output \"loss_sum\" of the loss graph is {} and \"count\" {}; they must have "
                    "one dtype, since the loss is their quotient",
                    sum.ToString(), count.ToString()));
  }
  return OkStatus();
}

// What comes from the data reads a field of it; a trained program has the rows of the job's batch.
Status CheckFeeds(const JobRequest& job, const JobProgram& program) {
  const std::vector<NodeId> feeds = program.graph.NodesOf(Op::kFeed);
  if (feeds.empty() && program.trained)
    return InvalidArgument("the loss graph has no feed node: it would not read any data");
  MW_ASSIGN_OR_RETURN(const std::vector<DataStream> streams, StreamsOf(job.data));
  for (NodeId id : feeds) {
    const Node& feed = program.graph.node(id);
    const TensorType& type = program.graph.type(feed.outputs[0]);
    const std::string source = feed.attrs.Str("source");
    const InputFrom origin = program.OriginOf(source);
    if (origin == InputFrom::kOutput) continue;
    const bool from_client = origin == InputFrom::kClient;
    if (!IsBatchFeed(feed) && from_client) continue;
    if (!IsBatchFeed(feed)) {
      return InvalidArgument(fmt::format(
          "feed \"{}\" is one value for all of the step (batch=0), but comes from the data, which "
          "has rows",
          source));
    }
    if (program.trained && type.dims[0] != job.train.global_batch) {
      return InvalidArgument(
          fmt::format("feed \"{}\" is {}; train.global_batch={} rows are trained "
                      "on",
                      source, type.ToString(), job.train.global_batch));
    }
    if (!from_client) MW_TRY(CheckFeed(streams, source, type, job.train.sequence));
  }
  return OkStatus();
}

// The main program holds all state: it is the one that "init" fills and that is placed first.
Status CheckState(const JobRequest& job, const JobProgram& program) {
  std::map<std::string, TensorType> known;
  const Graph& main = job.main().graph;
  for (NodeId id : main.NodesOf(Op::kParam)) {
    known[main.node(id).attrs.Str("name")] = main.type(main.node(id).outputs[0]);
  }
  for (NodeId id : program.graph.NodesOf(Op::kParam)) {
    const Node& node = program.graph.node(id);
    const std::string name = node.attrs.Str("name");
    const TensorType& type = program.graph.type(node.outputs[0]);
    const auto it = known.find(name);
    if (it == known.end()) {
      return InvalidArgument(fmt::format(
          "program '{}' reads the param \"{}\", which program '{}' does not have: that one holds "
          "the state of the job",
          program.name, name, job.main().name));
    }
    if (it->second != type) {
      return InvalidArgument(fmt::format("param \"{}\" is {} in program '{}' and {} in '{}'", name,
                                         type.ToString(), program.name, it->second.ToString(),
                                         job.main().name));
    }
  }
  return OkStatus();
}

Status CheckInputs(const JobProgram& program) {
  for (const auto& [name, from] : program.inputs) {
    const std::string_view source = name;
    const std::vector<NodeId> feeds = program.graph.NodesOf(Op::kFeed);
    const bool known = std::any_of(feeds.begin(), feeds.end(), [&](NodeId id) {
      return program.graph.node(id).attrs.Str("source") == source;
    });
    if (known) continue;
    return InvalidArgument(
        fmt::format("program '{}' says where its input \"{}\" comes from, but has "
                    "no feed of that name",
                    program.name, name));
  }
  return OkStatus();
}

// Workers know inputs by name alone.
Status CheckOrigins(const JobRequest& job) {
  std::map<std::string, const JobProgram*> from_client;
  for (const JobProgram& program : job.programs) {
    for (const auto& [name, from] : program.inputs) {
      if (from == InputFrom::kClient) from_client.emplace(name, &program);
    }
  }
  for (const JobProgram& program : job.programs) {
    for (NodeId id : program.graph.NodesOf(Op::kFeed)) {
      const std::string name = program.graph.node(id).attrs.Str("source");
      const auto it = from_client.find(name);
      if (it == from_client.end() || program.OriginOf(name) != InputFrom::kData) continue;
      return InvalidArgument(fmt::format(
          "input \"{}\" comes from a client in program '{}' and from the data in '{}'; give one of "
          "them another name",
          name, it->second->name, program.name));
    }
  }
  return OkStatus();
}

constexpr size_t kMostPrograms = 256;

Status CheckProgramNames(const JobRequest& job) {
  if (job.programs.empty() || job.programs.size() > kMostPrograms) {
    return InvalidArgument(fmt::format("the job has {} programs; it must have 1 to {}",
                                       job.programs.size(), kMostPrograms));
  }
  std::set<std::string> taken = {kInitProgram};
  if (job.trained() != nullptr) taken.insert({kStepProgram, kEvalProgram});
  bool trains = false;
  for (const JobProgram& program : job.programs) {
    if (program.name.empty() || program.name.size() > 128) {
      return InvalidArgument(
          fmt::format("a program's name has {} bytes; it must have 1 to 128", program.name.size()));
    }
    if (!IsPrintable(program.name)) {
      return InvalidArgument(fmt::format(
          "a program's name is '{}'; control characters are not allowed", Printable(program.name)));
    }
    if (!taken.insert(program.name).second) {
      return InvalidArgument(fmt::format("the name '{}' of a program is taken", program.name));
    }
    if (program.trained && std::exchange(trains, true)) {
      return InvalidArgument(fmt::format(
          "program '{}' is the second that is trained; a job trains one", program.name));
    }
  }
  return OkStatus();
}

Status CheckDriver(const JobRequest& job) {
  const DriverSpec& driver = job.driver;
  MW_TRY(CheckRange("driver.batches", static_cast<double>(driver.batches), 0, 1e9));
  MW_TRY(CheckRange("driver.grace_s", static_cast<double>(driver.grace_s), 0, 1e6));
  if (driver.kind == DriverKind::kTrain && job.trained() == nullptr) {
    return InvalidArgument("the driver is 'train', but no program of the job is trained");
  }
  if (driver.kind == DriverKind::kEvaluate && driver.batches == 0 &&
      job.train.validation_batches == 0) {
    return InvalidArgument(
        "the driver 'evaluate' has nothing to do: driver.batches and train.validation_batches are "
        "0");
  }
  for (const JobProgram& program : job.programs) {
    const bool runs = driver.kind == DriverKind::kTrain      ? program.trained
                      : driver.kind == DriverKind::kEvaluate ? program.name == driver.program
                                                             : false;
    if (!runs) continue;
    for (const auto& [input, from] : program.inputs) {
      if (from != InputFrom::kClient) continue;
      return InvalidArgument(
          fmt::format("the driver '{}' runs program '{}', whose input \"{}\" comes from a client; "
                      "only the driver 'client' has one",
                      DriverKindName(driver.kind), program.name, input));
    }
  }
  if (driver.kind != DriverKind::kEvaluate) return OkStatus();
  const JobProgram* const evaluated = job.FindProgram(driver.program);
  if (evaluated == nullptr) {
    return InvalidArgument(fmt::format(
        "the driver evaluates program '{}', which the job does not have", driver.program));
  }
  // What is trained is planned as "step" and "eval": nothing has its own name.
  if (!evaluated->trained) return OkStatus();
  return InvalidArgument(
      fmt::format("the driver evaluates program '{}', which is trained; give its graph to a "
                  "program that is not",
                  driver.program));
}

// Master weights are f32: other types would be narrowed without a word.
Status CheckMixedPrecision(const JobRequest& job) {
  if (job.train.compute_dtype == DType::kF32) return OkStatus();
  const Graph& graph = job.main().graph;
  for (NodeId id : graph.NodesOf(Op::kParam)) {
    const Node& param = graph.node(id);
    const TensorType& type = graph.type(param.outputs[0]);
    if (type.dtype == DType::kF32 || param.attrs.Int("kept") != 0) continue;
    return InvalidField(
        "train.compute_dtype",
        fmt::format("is {}, which needs f32 params, but \"{}\" is {}",
                    DTypeName(job.train.compute_dtype), param.attrs.Str("name"), type.ToString()));
  }
  return OkStatus();
}

Status CheckTrain(const TrainSpec& train) {
  MW_TRY(CheckRange("train.global_batch", static_cast<double>(train.global_batch), 1, 1 << 24));
  MW_TRY(CheckRange("train.sequence", static_cast<double>(train.sequence), 1, 1 << 24));
  MW_TRY(CheckRange("train.steps", static_cast<double>(train.steps), 1, kMaxSteps));
  MW_TRY(
      CheckRange("train.steps_per_launch", static_cast<double>(train.steps_per_launch), 1, 1000));
  MW_TRY(CheckRange("train.log_every", static_cast<double>(train.log_every), 1, 1e9));
  if (train.compute_dtype != DType::kF32 && train.compute_dtype != DType::kBF16 &&
      train.compute_dtype != DType::kF16) {
    return InvalidField("train.compute_dtype", fmt::format("is {}; it must be f32, bf16 or f16",
                                                           DTypeName(train.compute_dtype)));
  }
  MW_TRY(CheckRange("train.loss_scale", train.loss_scale, 1, 1e12));
  MW_TRY(
      CheckRange("train.loss_scale_window", static_cast<double>(train.loss_scale_window), 0, 1e9));
  if (train.gradient_dtype != DType::kF32 && train.compute_dtype == DType::kF32) {
    return InvalidField(
        "train.gradient_dtype",
        fmt::format("is {}, and a job that does not compute in 16 bits has gradients of its "
                    "own type; leave it out, or set dtype, too",
                    DTypeName(train.gradient_dtype)));
  }
  if (train.gradient_dtype != DType::kF32 && train.gradient_dtype != train.compute_dtype) {
    return InvalidField(
        "train.gradient_dtype",
        fmt::format("is {}; it must be f32, or the 16-bit type that the job computes in ({})",
                    DTypeName(train.gradient_dtype), DTypeName(train.compute_dtype)));
  }
  MW_TRY(CheckRange("train.validate_every", static_cast<double>(train.validate_every), 0, 1e12));
  return CheckRange("train.validation_batches", static_cast<double>(train.validation_batches), 0,
                    1e6);
}

// Texts that the planner parses: longer ones say nothing about a model that fits a request.
Status CheckPinTexts(const ParallelSpec& parallel) {
  constexpr size_t kMaxWordBytes = 64;
  constexpr size_t kMaxPinBytes = 256 << 10;
  struct Pin {
    const char* field;
    const std::string& text;
    size_t limit;
  };
  const Pin pins[] = {{"parallel.schedule", parallel.schedule, kMaxWordBytes},
                      {"parallel.context_attention", parallel.context_attention, kMaxWordBytes},
                      {"parallel.tensor_axes", parallel.tensor_axes, kMaxWordBytes},
                      {"parallel.part_layers", parallel.part_layers, kMaxPinBytes},
                      {"parallel.stage_meshes", parallel.stage_meshes, kMaxPinBytes},
                      {"parallel.recompute_layers", parallel.recompute_layers, kMaxPinBytes},
                      {"parallel.sharding_pins", parallel.sharding_pins, kMaxPinBytes}};
  for (const Pin& pin : pins) {
    if (pin.text.size() <= pin.limit) continue;
    return InvalidArgument(fmt::format("{} has {} bytes; it may have at most {}", pin.field,
                                       pin.text.size(), pin.limit));
  }
  return OkStatus();
}

// Where a kind may be; what lives for a part of a step only is not worth a disk.
Status CheckMemories(const ParallelSpec& parallel) {
  struct Kind {
    const char* field;
    const std::string* memory;
    bool state;
  };
  for (const Kind& kind :
       {Kind{"parallel.optimizer_memory", &parallel.optimizer_memory, true},
        Kind{"parallel.weights_memory", &parallel.weights_memory, true},
        Kind{"parallel.gradients_memory", &parallel.gradients_memory, false},
        Kind{"parallel.activations_memory", &parallel.activations_memory, false}}) {
    const std::string& memory = *kind.memory;
    const bool known = memory == "device" || memory == "host" || memory == "auto";
    if (known || (kind.state && memory == "disk")) continue;
    return InvalidField(kind.field, fmt::format("is '{}'; known: device, host, {}auto", memory,
                                                kind.state ? "disk, " : ""));
  }
  return OkStatus();
}

Status CheckParallel(const ParallelSpec& parallel) {
  MW_TRY(CheckPinTexts(parallel));
  MW_TRY(CheckRange("parallel.data", static_cast<double>(parallel.data), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.expert", static_cast<double>(parallel.expert), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.context", static_cast<double>(parallel.context), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.tensor", static_cast<double>(parallel.tensor), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.pipeline", static_cast<double>(parallel.pipeline), 0, 1 << 16));
  MW_TRY(
      CheckRange("parallel.microbatches", static_cast<double>(parallel.microbatches), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.chunks", static_cast<double>(parallel.chunks), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.zero", static_cast<double>(parallel.zero), -1, 3));
  for (const auto& [field, size] : {std::pair("parallel.zero_shard", parallel.zero_shard),
                                    std::pair("parallel.zero_gradients", parallel.zero_gradients),
                                    std::pair("parallel.zero_weights", parallel.zero_weights)}) {
    MW_TRY(CheckRange(field, static_cast<double>(size), 0, 1 << 16));
  }
  MW_TRY(
      CheckRange("parallel.zero_min_bytes", static_cast<double>(parallel.zero_min_bytes), 0, 1e12));
  MW_TRY(CheckRange("parallel.bucket_bytes", static_cast<double>(parallel.bucket_bytes), 1, 1e12));
  MW_TRY(CheckRange("parallel.head_block_tokens", static_cast<double>(parallel.head_block_tokens),
                    0, 1 << 24));
  if (parallel.device != "auto" && parallel.device != "cpu" && parallel.device != "cuda") {
    return InvalidField("parallel.device",
                        fmt::format("is '{}'; known: auto, cpu, cuda", parallel.device));
  }
  MW_TRY(CheckRange("parallel.offload_chunk_bytes",
                    static_cast<double>(parallel.offload_chunk_bytes), 1, 1e12));
  MW_TRY(CheckRange("parallel.host_update", static_cast<double>(parallel.host_update), -1, 100));
  MW_TRY(CheckMemories(parallel));
  static const std::set<std::string> modes = {"auto", "none", "gathers", "selective", "full"};
  if (!modes.contains(parallel.recompute)) {
    return InvalidField("parallel.recompute", fmt::format("is '{}'; known: {}", parallel.recompute,
                                                          fmt::join(modes, ", ")));
  }
  if (parallel.shardings != "rules" && parallel.shardings != "search") {
    return InvalidField("parallel.shardings",
                        fmt::format("is '{}'; known: rules, search", parallel.shardings));
  }
  return OkStatus();
}

// What the host is told to renew has to be with it, and to be state that it can renew.
Status CheckHostUpdate(const ParallelSpec& parallel, const OptimizerSpec& optimizer) {
  if (parallel.host_update <= 0) return OkStatus();
  const auto refused = [&](const std::string& why) {
    return InvalidField("parallel.host_update",
                        fmt::format("is {}, and the host renews {}", parallel.host_update, why));
  };
  const std::string& state = parallel.optimizer_memory;
  if (state != "host" && state != "auto") {
    return refused(
        fmt::format("what is in its memory only; parallelism.optimizer_memory is \"{}\"", state));
  }
  if (parallel.weights_memory == "disk") return refused("no weights that are on a disk");
  if (optimizer.name == "adafactor") return refused("no state of adafactor");
  return OkStatus();
}

// What is averaged over batches is a number, and none of the two that make a loss.
Status CheckReductions(const Graph& graph) {
  for (const NamedValue& output : graph.outputs) {
    if (output.reduction == Reduction::kSum) continue;
    const TensorType& type = graph.type(output.value);
    if (type.rank() != 0 || !IsFloating(type.dtype)) {
      return InvalidArgument(fmt::format(
          "output \"{}\" is {} and declared a mean; only floating point scalars are reduced over "
          "batches: leave the declaration out, or give out a scalar",
          output.name, type.ToString()));
    }
    if (output.name == "loss_sum" || output.name == "count") {
      return InvalidArgument(fmt::format(
          "output \"{}\" is declared a mean; the loss is the quotient of the sums \"loss_sum\" and "
          "\"count\" of all batches: give it out as a sum, or under another name",
          output.name));
    }
  }
  return OkStatus();
}

Status CheckProgram(const JobRequest& job, const JobProgram& program) {
  MW_TRY(VerifyGraph(program.graph));
  MW_TRY(CheckInputs(program));
  MW_TRY(CheckFeeds(job, program));
  MW_TRY(CheckState(job, program));
  for (const NamedValue& output : program.graph.outputs) {
    if (!output.name.starts_with("grad/") && !output.name.starts_with("update/")) continue;
    return InvalidArgument(
        fmt::format("output \"{}\": names that begin with \"grad/\" or \"update/\" are the "
                    "planner's; rename it",
                    output.name));
  }
  MW_TRY(CheckReductions(program.graph));
  if (!program.trained) return OkStatus();
  MW_TRY(VerifyLossGraph(program.graph));
  return CheckLossOutputs(program.graph);
}

}  // namespace

InputFrom JobProgram::OriginOf(const std::string& input) const {
  const auto it = inputs.find(input);
  return it == inputs.end() ? InputFrom::kData : it->second;
}

const char* DriverKindName(DriverKind kind) {
  switch (kind) {
    case DriverKind::kTrain:
      return "train";
    case DriverKind::kEvaluate:
      return "evaluate";
    case DriverKind::kClient:
      return "client";
  }
  return "unknown";
}

Result<DriverKind> ParseDriverKind(std::string_view name) {
  for (const DriverKind kind : {DriverKind::kTrain, DriverKind::kEvaluate, DriverKind::kClient}) {
    if (name == DriverKindName(kind)) return kind;
  }
  return Fail(InvalidArgument(fmt::format("driver is '{}'; known: train, evaluate, client", name)));
}

const JobProgram* JobRequest::FindProgram(std::string_view program) const {
  const auto it = std::find_if(programs.begin(), programs.end(),
                               [&](const JobProgram& p) { return p.name == program; });
  return it == programs.end() ? nullptr : &*it;
}

const JobProgram* JobRequest::trained() const {
  const auto it =
      std::find_if(programs.begin(), programs.end(), [](const JobProgram& p) { return p.trained; });
  return it == programs.end() ? nullptr : &*it;
}

const JobProgram& JobRequest::main() const {
  const JobProgram* const loss = trained();
  MW_CHECK(loss != nullptr || !programs.empty()) << "job '" << name << "' has no program";
  return loss != nullptr ? *loss : programs.front();
}

void JobRequest::SetLoss(Graph loss) {
  std::erase_if(programs, [](const JobProgram& program) { return program.trained; });
  programs.insert(programs.begin(), JobProgram{"loss", std::move(loss), {}, true});
}

namespace {

Status CheckCheckpoint(const JobRequest& job) {
  const CheckpointSpec& spec = job.checkpoint;
  if (const Status status = CheckFolder(spec.folder); !status.ok()) {
    return InvalidField("checkpoint.folder", "is wrong: " + status.message());
  }
  if (spec.interval < 0 || spec.interval > kMaxSteps) {
    return InvalidField("checkpoint.interval",
                        fmt::format("is {}; it counts steps", spec.interval));
  }
  constexpr int64_t kMost = 1'000'000'000;
  for (const auto& [field, value] :
       {std::pair("interval_s", spec.interval_s), std::pair("keep_latest_k", spec.keep_latest_k)}) {
    if (value >= 0 && value <= kMost) continue;
    return InvalidField(fmt::format("checkpoint.{}", field),
                        fmt::format("is {}; it must be 0 to {}", value, kMost));
  }
  if (spec.enable && job.driver.kind != DriverKind::kTrain) {
    return InvalidField("checkpoint.enable",
                        fmt::format("is for jobs that train; this one is driven by '{}'",
                                    DriverKindName(job.driver.kind)));
  }
  if (spec.last_save_in_hf && !spec.enable) {
    return InvalidField("checkpoint.last_save_in_hf", "needs checkpoint.enable = true");
  }
  if (!IsFloating(spec.export_dtype)) {
    return InvalidField("checkpoint.export_dtype", "is no type of floats");
  }
  if (!spec.keep_best.empty()) {
    if (!spec.enable) return InvalidField("checkpoint.keep_best", "needs checkpoint.enable = true");
    MW_TRY(CheckMetric(job, "checkpoint.keep_best", spec.keep_best));
  }
  if (job.start.empty()) return OkStatus();
  MW_TRY(CheckFolder(job.start.checkpoint).WithContext("the checkpoint to go on from"));
  if (job.driver.kind != DriverKind::kTrain) {
    return InvalidArgument("only a job that trains goes on from a checkpoint");
  }
  if (job.start.step > job.train.steps) {
    return InvalidField(
        "train.steps", fmt::format("is {}, but the checkpoint to go on from has {} steps: raise it",
                                   job.train.steps, job.start.step));
  }
  return OkStatus();
}

}  // namespace

Status ValidateJob(const JobRequest& job) {
  constexpr size_t kMaxNameBytes = 256;
  if (job.name.empty() || job.name.size() > kMaxNameBytes) {
    return InvalidArgument(
        fmt::format("job.name has {} bytes; it must have 1 to {}", job.name.size(), kMaxNameBytes));
  }
  if (!IsPrintable(job.name)) {
    return InvalidArgument(fmt::format(
        "job.name is '{}'; control characters are not allowed, they would change what a terminal "
        "shows",
        Printable(job.name)));
  }
  MW_TRY(CheckProgramNames(job));
  MW_TRY(CheckTrain(job.train));
  MW_TRY(CheckDataSpec(job.data));
  for (const JobProgram& program : job.programs) {
    const Status sound = CheckProgram(job, program);
    if (!sound.ok()) {
      return program.trained ? sound : sound.WithContext(fmt::format("program '{}'", program.name));
    }
  }
  MW_TRY(CheckOrigins(job));
  MW_TRY(CheckOutputsRead(job));
  MW_TRY(CheckDriver(job));
  MW_TRY(CheckCheckpoint(job));
  MW_TRY(CheckEarlyStop(job));
  MW_TRY(CheckFaultTolerance(job.fault_tolerance));
  MW_TRY(CheckQueue(job.queue));
  MW_TRY(CheckMixedPrecision(job));
  MW_TRY(CheckParallel(job.parallel));
  if (job.trained() != nullptr) MW_TRY(CheckHostUpdate(job.parallel, job.optimizer));
  const std::string not_on_gpus = job.parallel.device == "cuda" ? WhyNotOnGpus(job) : "";
  if (!not_on_gpus.empty()) {
    return InvalidField("parallel.device",
                        fmt::format("is 'cuda', but {}; leave it 'auto'", not_on_gpus));
  }
  return CheckOptimizer(job);
}

std::vector<BlobRef> BlobsOf(const JobRequest& job) {
  std::vector<BlobRef> blobs;
  const auto add = [&](const FileRef& file) {
    if (!file.in_place() && !file.empty()) blobs.push_back(file.blob);
  };
  if (job.data.streams.empty()) add({.blob = job.data.blob});
  for (const DataStream& stream : job.data.streams) {
    for (const FileRef& file : stream.files) add(file);
  }
  add(job.init_weights);
  return blobs;
}

bool ReadsData(const JobRequest& job) {
  for (const JobProgram& program : job.programs) {
    for (NodeId id : program.graph.NodesOf(Op::kFeed)) {
      const std::string name = program.graph.node(id).attrs.Str("source");
      if (program.OriginOf(name) == InputFrom::kData) return true;
    }
  }
  return false;
}

std::vector<std::string> ClientInputsOf(const JobRequest& job) {
  std::set<std::string> names;
  for (const JobProgram& program : job.programs) {
    for (const auto& [name, from] : program.inputs) {
      if (from == InputFrom::kClient) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::string WhyNotOnGpus(const JobRequest& job) {
  if (job.parallel.schedule.ends_with("-vocab")) {
    return fmt::format("GPUs look up no labels that may be ignored, as schedule '{}' does",
                       job.parallel.schedule);
  }
  for (const JobProgram& program : job.programs) {
    const std::string why = WhyNotOnGpus(program.graph);
    if (!why.empty()) return why;
  }
  return "";
}

}  // namespace meshwright::ir
