// What people see: job, step and worker information, and tiles of weights.
#include <cmath>
#include <limits>

#include "proto/convert.h"

namespace meshwright::proto {

v1::JobInfo Encode(const JobInfo& info) {
  v1::JobInfo wire;
  wire.set_id(info.id);
  wire.set_name(info.name);
  wire.set_state(static_cast<v1::JobState>(info.state));
  wire.set_reason(info.reason);
  wire.set_message(info.message);
  wire.set_steps_done(info.steps_done);
  wire.set_steps(info.steps);
  wire.set_loss(info.loss);
  wire.set_layout(info.layout);
  wire.set_directory(info.directory);
  wire.set_submitted_unix_ms(info.submitted_unix_ms);
  wire.set_started_unix_ms(info.started_unix_ms);
  wire.set_ended_unix_ms(info.ended_unix_ms);
  wire.set_device_memory_bytes(info.device_memory_bytes);
  wire.set_device_budget_bytes(info.device_budget_bytes);
  wire.set_peak_flops_per_s(info.peak_flops_per_s);
  if (info.checkpoint_step >= 0) wire.set_checkpoint_step(info.checkpoint_step);
  *wire.mutable_checkpoint_folder() = Encode(info.checkpoint_folder);
  wire.set_tool(info.tool);
  return wire;
}

JobInfo Decode(const v1::JobInfo& wire) {
  JobInfo info;
  info.id = wire.id();
  info.name = wire.name();
  const int state = static_cast<int>(wire.state());
  if (state > 0 && state < kJobStateCount) info.state = static_cast<JobState>(state);
  info.reason = wire.reason();
  info.message = wire.message();
  info.steps_done = wire.steps_done();
  info.steps = wire.steps();
  info.loss = wire.loss();
  info.layout = wire.layout();
  info.directory = wire.directory();
  info.submitted_unix_ms = wire.submitted_unix_ms();
  info.started_unix_ms = wire.started_unix_ms();
  info.ended_unix_ms = wire.ended_unix_ms();
  info.device_memory_bytes = wire.device_memory_bytes();
  info.device_budget_bytes = wire.device_budget_bytes();
  info.peak_flops_per_s = wire.peak_flops_per_s();
  if (wire.has_checkpoint_step()) info.checkpoint_step = wire.checkpoint_step();
  info.checkpoint_folder = Decode(wire.checkpoint_folder());
  info.tool = wire.tool();
  return info;
}

v1::StepMetrics Encode(const StepMetrics& metrics) {
  v1::StepMetrics wire;
  wire.set_step(metrics.step);
  wire.set_loss(metrics.loss);
  wire.set_grad_norm(metrics.grad_norm);
  wire.set_lr(metrics.lr);
  wire.set_tokens(metrics.tokens);
  wire.set_seconds(metrics.seconds);
  if (!std::isnan(metrics.validation_loss)) wire.set_validation_loss(metrics.validation_loss);
  for (const auto& [name, value] : metrics.values) (*wire.mutable_values())[name] = value;
  return wire;
}

StepMetrics Decode(const v1::StepMetrics& wire) {
  StepMetrics metrics;
  metrics.step = wire.step();
  metrics.loss = wire.loss();
  metrics.grad_norm = wire.grad_norm();
  metrics.lr = wire.lr();
  metrics.tokens = wire.tokens();
  metrics.seconds = wire.seconds();
  metrics.validation_loss = wire.has_validation_loss() ? wire.validation_loss()
                                                       : std::numeric_limits<double>::quiet_NaN();
  metrics.values.insert(wire.values().begin(), wire.values().end());
  return metrics;
}

v1::JobUpdate Encode(const JobUpdate& update) {
  v1::JobUpdate wire;
  *wire.mutable_info() = Encode(update.info);
  for (const StepMetrics& step : update.steps) *wire.add_steps() = Encode(step);
  for (const std::string& line : update.log_lines) wire.add_log_lines(line);
  return wire;
}

JobUpdate Decode(const v1::JobUpdate& wire) {
  JobUpdate update;
  update.info = Decode(wire.info());
  for (const v1::StepMetrics& step : wire.steps()) update.steps.push_back(Decode(step));
  update.log_lines.assign(wire.log_lines().begin(), wire.log_lines().end());
  return update;
}

v1::WorkerInfo Encode(const WorkerInfo& info) {
  v1::WorkerInfo wire;
  wire.set_name(info.name);
  wire.set_host(info.host);
  wire.set_state(info.state);
  wire.set_devices(info.devices);
  wire.set_busy_devices(info.busy_devices);
  wire.set_memory_bytes(info.memory_bytes);
  wire.set_address(info.address);
  wire.set_metrics_address(info.metrics_address);
  wire.set_last_seen_s(info.last_seen_s);
  wire.set_device_profile(info.device_profile);
  wire.set_threads_per_device(info.threads_per_device);
  wire.set_host_cores(info.host_cores);
  wire.set_device_kind(info.device_kind);
  wire.set_device_name(info.device_name);
  for (const ir::DataRoot& root : info.data_roots) *wire.add_data_roots() = Encode(root);
  for (const ir::DataRoot& root : info.checkpoint_roots) {
    *wire.add_checkpoint_roots() = Encode(root);
  }
  wire.set_note(info.note);
  wire.set_host_memory_bytes(info.host_memory_bytes);
  wire.set_disk_bytes(info.disk_bytes);
  wire.set_no_scratch_dir(info.no_scratch_dir);
  wire.set_version(info.version);
  return wire;
}

WorkerInfo Decode(const v1::WorkerInfo& wire) {
  WorkerInfo info;
  info.name = wire.name();
  info.host = wire.host();
  info.state = wire.state();
  info.devices = wire.devices();
  info.busy_devices = wire.busy_devices();
  info.memory_bytes = wire.memory_bytes();
  info.address = wire.address();
  info.metrics_address = wire.metrics_address();
  info.last_seen_s = wire.last_seen_s();
  info.device_profile = wire.device_profile();
  info.threads_per_device = wire.threads_per_device();
  info.host_cores = wire.host_cores();
  info.device_kind = wire.device_kind();
  info.device_name = wire.device_name();
  for (const v1::DataRoot& root : wire.data_roots()) info.data_roots.push_back(Decode(root));
  for (const v1::DataRoot& root : wire.checkpoint_roots()) {
    info.checkpoint_roots.push_back(Decode(root));
  }
  info.note = wire.note();
  info.host_memory_bytes = wire.host_memory_bytes();
  info.disk_bytes = wire.disk_bytes();
  info.no_scratch_dir = wire.no_scratch_dir();
  info.version = wire.version();
  return info;
}

v1::TileChunk EncodeTileHead(const WeightTile& tile) {
  v1::TileChunk wire;
  wire.set_mesh_gen(tile.mesh_gen.value());
  wire.set_param(tile.param);
  wire.set_dtype(std::string(ir::DTypeName(tile.dtype)));
  for (int64_t offset : tile.box.offset) wire.add_offset(offset);
  for (int64_t size : tile.box.size) wire.add_size(size);
  return wire;
}

Result<WeightTile> DecodeTileHead(const v1::TileChunk& wire) {
  WeightTile tile;
  tile.mesh_gen = MeshGeneration(wire.mesh_gen());
  tile.param = wire.param();
  MW_ASSIGN_OR_RETURN(tile.dtype, ir::ParseDType(wire.dtype()));
  tile.box.offset.assign(wire.offset().begin(), wire.offset().end());
  tile.box.size.assign(wire.size().begin(), wire.size().end());
  return tile;
}

}  // namespace meshwright::proto
