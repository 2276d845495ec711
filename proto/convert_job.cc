#include <fmt/format.h>

#include <algorithm>

#include "ir/parallel_pins.h"
#include "ir/text.h"
#include "proto/convert.h"
#include "proto/job_codec.h"

namespace meshwright::proto {
namespace {

v1::OptimizerSpec EncodeOptimizer(const ir::OptimizerSpec& spec) {
  v1::OptimizerSpec wire;
  wire.set_name(spec.name);
  wire.set_lr(spec.lr);
  wire.set_min_lr(spec.min_lr);
  wire.set_schedule(spec.schedule);
  wire.set_warmup_steps(spec.warmup_steps);
  wire.set_total_steps(spec.total_steps);
  wire.set_beta1(spec.beta1);
  wire.set_beta2(spec.beta2);
  wire.set_eps(spec.eps);
  wire.set_weight_decay(spec.weight_decay);
  wire.set_momentum(spec.momentum);
  wire.set_max_norm(spec.max_norm);
  wire.set_unscaled(!spec.scale_parameter);
  wire.set_decay_rate(spec.decay_rate);
  wire.set_clip_threshold(spec.clip_threshold);
  wire.set_moments_dtype(std::string(ir::DTypeName(spec.moments_dtype)));
  return wire;
}

Result<ir::OptimizerSpec> DecodeOptimizer(const v1::OptimizerSpec& wire) {
  ir::OptimizerSpec spec;
  spec.name = wire.name();
  spec.lr = wire.lr();
  spec.min_lr = wire.min_lr();
  spec.schedule = wire.schedule();
  spec.warmup_steps = wire.warmup_steps();
  spec.total_steps = wire.total_steps();
  spec.beta1 = wire.beta1();
  spec.beta2 = wire.beta2();
  spec.eps = wire.eps();
  spec.weight_decay = wire.weight_decay();
  spec.momentum = wire.momentum();
  spec.max_norm = wire.max_norm();
  spec.scale_parameter = !wire.unscaled();
  if (wire.decay_rate() != 0) spec.decay_rate = wire.decay_rate();
  if (wire.clip_threshold() != 0) spec.clip_threshold = wire.clip_threshold();
  if (wire.moments_dtype().empty()) return spec;
  const Result<ir::DType> dtype = ir::ParseDType(wire.moments_dtype());
  if (!dtype) return Fail(dtype.error().WithContext("optimizer.moments_dtype"));
  spec.moments_dtype = *dtype;
  return spec;
}

v1::TrainSpec EncodeTrain(const ir::TrainSpec& spec) {
  v1::TrainSpec wire;
  wire.set_global_batch(spec.global_batch);
  wire.set_sequence(spec.sequence);
  wire.set_steps(spec.steps);
  wire.set_seed(spec.seed);
  wire.set_steps_per_launch(spec.steps_per_launch);
  wire.set_log_every(spec.log_every);
  wire.set_validate_every(spec.validate_every);
  wire.set_validation_batches(spec.validation_batches);
  wire.set_compile(spec.compile);
  wire.set_compute_dtype(std::string(ir::DTypeName(spec.compute_dtype)));
  wire.set_gradient_dtype(std::string(ir::DTypeName(spec.gradient_dtype)));
  wire.set_loss_scale(spec.loss_scale);
  wire.set_loss_scale_window(spec.loss_scale_window);
  wire.set_tf32(spec.tf32);
  wire.set_early_stop_patience(spec.early_stop_patience);
  wire.set_early_stop_metric(spec.early_stop_metric);
  return wire;
}

Result<ir::TrainSpec> DecodeTrain(const v1::TrainSpec& wire) {
  ir::TrainSpec spec;
  spec.global_batch = wire.global_batch();
  spec.sequence = wire.sequence();
  spec.steps = wire.steps();
  spec.seed = wire.seed();
  spec.steps_per_launch = wire.steps_per_launch();
  spec.log_every = wire.log_every();
  spec.validate_every = wire.validate_every();
  spec.validation_batches = wire.validation_batches();
  spec.compile = wire.compile();
  spec.tf32 = wire.tf32();
  spec.early_stop_patience = wire.early_stop_patience();
  if (!wire.early_stop_metric().empty()) spec.early_stop_metric = wire.early_stop_metric();
  if (!wire.compute_dtype().empty()) {
    const Result<ir::DType> dtype = ir::ParseDType(wire.compute_dtype());
    if (!dtype) return Fail(dtype.error().WithContext("train.compute_dtype"));
    spec.compute_dtype = *dtype;
  }
  if (wire.loss_scale() != 0) {
    spec.loss_scale = wire.loss_scale();
    spec.loss_scale_window = wire.loss_scale_window();
  }
  if (!wire.gradient_dtype().empty()) {
    const Result<ir::DType> dtype = ir::ParseDType(wire.gradient_dtype());
    if (!dtype) return Fail(dtype.error().WithContext("train.gradient_dtype"));
    spec.gradient_dtype = *dtype;
  }
  return spec;
}

v1::JobProgram EncodeProgram(const ir::JobProgram& program) {
  v1::JobProgram wire;
  wire.set_name(program.name);
  wire.set_graph(ir::FormatGraph(program.graph));
  wire.set_trained(program.trained);
  for (const auto& [name, from] : program.inputs) {
    v1::ProgramInput& input = *wire.add_inputs();
    input.set_name(name);
    input.set_from_client(from == ir::InputFrom::kClient);
    if (from != ir::InputFrom::kOutput) continue;
    const auto read = program.reads.find(name);
    if (read == program.reads.end()) continue;  // ir::ValidateJob refuses it
    input.mutable_from_output()->set_program(read->second.program);
    input.mutable_from_output()->set_name(read->second.name);
  }
  return wire;
}

Result<ir::JobProgram> DecodeProgram(const v1::JobProgram& wire) {
  ir::JobProgram program;
  program.name = wire.name();
  auto graph = ir::ParseGraph(wire.graph());
  if (!graph.has_value()) {
    return Fail(graph.error().WithContext(fmt::format("program '{}'", wire.name())));
  }
  program.graph = std::move(*graph);
  program.trained = wire.trained();
  for (const v1::ProgramInput& input : wire.inputs()) {
    program.inputs[input.name()] =
        input.from_client() ? ir::InputFrom::kClient : ir::InputFrom::kData;
    if (!input.has_from_output()) continue;
    program.inputs[input.name()] = ir::InputFrom::kOutput;
    program.reads[input.name()] = {input.from_output().program(), input.from_output().name()};
  }
  return program;
}

v1::DriverSpec EncodeDriver(const ir::DriverSpec& driver) {
  v1::DriverSpec wire;
  wire.set_kind(ir::DriverKindName(driver.kind));
  wire.set_program(driver.program);
  wire.set_batches(driver.batches);
  wire.set_grace_s(driver.grace_s);
  return wire;
}

Result<ir::DriverSpec> DecodeDriver(const v1::DriverSpec& wire) {
  ir::DriverSpec driver;
  if (!wire.kind().empty()) {
    MW_ASSIGN_OR_RETURN(driver.kind, ir::ParseDriverKind(wire.kind()));
  }
  driver.program = wire.program();
  driver.batches = wire.batches();
  driver.grace_s = wire.grace_s();
  return driver;
}

}  // namespace

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

v1::BlobRef Encode(const ir::BlobRef& blob) {
  v1::BlobRef wire;
  wire.set_sha256(blob.sha256);
  wire.set_size_bytes(blob.size_bytes);
  wire.set_name(blob.name);
  return wire;
}

Result<ir::BlobRef> Decode(const v1::BlobRef& wire) {
  if (!wire.sha256().empty() && !IsSha256Hex(wire.sha256())) {
    return Fail(InvalidArgument(
        fmt::format("blob '{}': sha256 is '{}'; it must be 64 lower-case hex digits", wire.name(),
                    wire.sha256().substr(0, 80))));
  }
  if (wire.size_bytes() < 0) {
    return Fail(InvalidArgument(
        fmt::format("blob '{}': size_bytes is {}", wire.name(), wire.size_bytes())));
  }
  return ir::BlobRef{wire.sha256(), wire.size_bytes(), wire.name()};
}

namespace {

v1::CheckpointSpec EncodeCheckpoint(const ir::CheckpointSpec& spec) {
  v1::CheckpointSpec wire;
  wire.set_enable(spec.enable);
  *wire.mutable_folder() = Encode(spec.folder);
  wire.set_interval(spec.interval);
  wire.set_interval_s(spec.interval_s);
  wire.set_keep_latest_k(spec.keep_latest_k);
  wire.set_waits(spec.waits);
  wire.set_last_save_in_hf(spec.last_save_in_hf);
  wire.set_export_dtype(std::string(ir::DTypeName(spec.export_dtype)));
  wire.set_keep_best(spec.keep_best);
  return wire;
}

Result<ir::CheckpointSpec> DecodeCheckpoint(const v1::CheckpointSpec& wire) {
  ir::CheckpointSpec spec{wire.enable(), Decode(wire.folder()), wire.interval(), wire.interval_s(),
                          wire.keep_latest_k()};
  spec.waits = wire.waits();
  spec.last_save_in_hf = wire.last_save_in_hf();
  spec.keep_best = wire.keep_best();
  if (wire.export_dtype().empty()) return spec;
  MW_ASSIGN_OR_RETURN(spec.export_dtype, ir::ParseDType(wire.export_dtype()));
  return spec;
}

v1::FaultToleranceSpec EncodeTolerance(const ir::FaultToleranceSpec& spec) {
  v1::FaultToleranceSpec wire;
  wire.set_enable(spec.enable);
  wire.set_max_recoveries(spec.max_recoveries);
  wire.set_elastic(ir::ElasticName(spec.elastic));
  wire.set_min_devices(spec.min_devices);
  wire.set_max_wait_for_spare_s(spec.max_wait_for_spare_s);
  wire.set_stall_s(spec.stall_s);
  wire.set_snapshot_every(spec.snapshot_every);
  wire.set_copies(spec.copies);
  wire.set_orphan_grace_s(spec.orphan_grace_s);
  return wire;
}

Result<ir::FaultToleranceSpec> DecodeTolerance(const v1::FaultToleranceSpec& wire) {
  ir::FaultToleranceSpec spec;
  spec.enable = wire.enable();
  spec.max_recoveries = wire.max_recoveries();
  MW_ASSIGN_OR_RETURN(spec.elastic, ir::ParseElastic(wire.elastic()));
  spec.min_devices = wire.min_devices();
  spec.max_wait_for_spare_s = wire.max_wait_for_spare_s();
  if (wire.has_stall_s()) spec.stall_s = wire.stall_s();
  spec.snapshot_every = wire.snapshot_every();
  spec.copies = wire.copies();
  if (wire.has_orphan_grace_s()) spec.orphan_grace_s = wire.orphan_grace_s();
  return spec;
}

v1::QueueSpec EncodeQueue(const ir::QueueSpec& spec) {
  v1::QueueSpec wire;
  wire.set_priority(spec.priority);
  wire.set_preemptible(spec.preemptible);
  wire.set_max_wait_s(spec.max_wait_s);
  return wire;
}

v1::StartPoint EncodeStart(const ir::StartPoint& start) {
  v1::StartPoint wire;
  *wire.mutable_checkpoint() = Encode(start.checkpoint);
  wire.set_step(start.step);
  for (const std::string& pattern : start.exclude) wire.add_exclude(pattern);
  return wire;
}

ir::StartPoint DecodeStart(const v1::StartPoint& wire) {
  return {Decode(wire.checkpoint()), wire.step(), {wire.exclude().begin(), wire.exclude().end()}};
}

}  // namespace

v1::JobRequest Encode(const ir::JobRequest& job) {
  v1::JobRequest wire;
  wire.set_name(job.name);
  for (const ir::JobProgram& program : job.programs) *wire.add_programs() = EncodeProgram(program);
  *wire.mutable_driver() = EncodeDriver(job.driver);
  *wire.mutable_optimizer() = EncodeOptimizer(job.optimizer);
  *wire.mutable_data() = Encode(job.data);
  *wire.mutable_init_weights() = Encode(job.init_weights);
  wire.set_pins(ir::FormatPins(job.parallel));
  *wire.mutable_train() = EncodeTrain(job.train);
  wire.set_save_weights(job.save_weights);
  wire.set_config_text(job.config_text);
  *wire.mutable_checkpoint() = EncodeCheckpoint(job.checkpoint);
  if (!job.start.empty()) *wire.mutable_start() = EncodeStart(job.start);
  *wire.mutable_fault_tolerance() = EncodeTolerance(job.fault_tolerance);
  if (job.queue != ir::QueueSpec()) *wire.mutable_queue() = EncodeQueue(job.queue);
  return wire;
}

Result<ir::JobRequest> Decode(const v1::JobRequest& wire) {
  ir::JobRequest job;
  job.name = wire.name();
  if (wire.programs().empty()) {
    return Fail(
        InvalidArgument("the job has no programs; jobs of protocol 1 must be submitted again, with "
                        "a client of this "
                        "version"));
  }
  for (const v1::JobProgram& from : wire.programs()) {
    MW_ASSIGN_OR_RETURN(ir::JobProgram program, DecodeProgram(from));
    job.programs.push_back(std::move(program));
  }
  MW_ASSIGN_OR_RETURN(job.driver, DecodeDriver(wire.driver()));
  MW_ASSIGN_OR_RETURN(job.optimizer, DecodeOptimizer(wire.optimizer()));
  MW_ASSIGN_OR_RETURN(job.data, Decode(wire.data()));
  MW_ASSIGN_OR_RETURN(job.init_weights, Decode(wire.init_weights()));
  MW_ASSIGN_OR_RETURN(job.parallel, ir::ParsePins(wire.pins()));
  MW_ASSIGN_OR_RETURN(job.train, DecodeTrain(wire.train()));
  job.save_weights = wire.save_weights();
  job.config_text = wire.config_text();
  // A request of before has none.
  if (wire.has_checkpoint()) {
    MW_ASSIGN_OR_RETURN(job.checkpoint, DecodeCheckpoint(wire.checkpoint()));
  }
  if (wire.has_start()) job.start = DecodeStart(wire.start());
  if (wire.has_fault_tolerance()) {
    MW_ASSIGN_OR_RETURN(job.fault_tolerance, DecodeTolerance(wire.fault_tolerance()));
  }
  job.queue = {wire.queue().priority(), wire.queue().preemptible(), wire.queue().max_wait_s()};
  return job;
}

std::string EncodeJob(const ir::JobRequest& job) { return Encode(job).SerializeAsString(); }

Result<ir::JobRequest> DecodeJob(std::string_view bytes) {
  v1::JobRequest wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Fail(DataLoss(fmt::format("{} bytes are not a job request", bytes.size())));
  }
  return Decode(wire);
}

}  // namespace meshwright::proto
