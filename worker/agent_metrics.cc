#include "worker/agent_metrics.h"

#include "proto/launch_done.h"
#include "proto/messages.h"

namespace meshwright::worker {
namespace {

constexpr const char* kInstructions = "meshwright_instructions_total";
constexpr const char* kInstructionsHelp = "Instructions run by the device actors, by opcode.";

// What steps took, by a counter each.
struct StepCounters {
  Counter steps, seconds, busy, wait;
};
StepCounters StepCountersIn(MetricsRegistry& registry) {
  return {registry.MakeCounter("meshwright_worker_steps_total",
                               "Steps of all programs that this worker has done."),
          registry.MakeCounter("meshwright_worker_step_seconds_total",
                               "Time of these steps, each on the slowest device of this worker."),
          registry.MakeCounter("meshwright_worker_busy_seconds_total",
                               "Of that time, what the mean device was at its own work."),
          registry.MakeCounter("meshwright_worker_wait_seconds_total",
                               "Of that time, what the mean device waited for others.")};
}

}  // namespace

AgentMetrics::AgentMetrics(MetricsRegistry& registry, const std::string& worker)
    : registry_(registry) {
  registry_
      .MakeGauge("meshwright_build_info", "Always 1; the labels say what is running.",
                 {{"version", proto::kVersion}, {"role", "worker"}, {"worker", worker}})
      .Set(1);
  (void)StepCountersIn(registry_);
  for (const char* op : {"run", "send", "recv", "free"}) {
    registry_.MakeCounter(kInstructions, kInstructionsHelp, {{"op", op}});
  }
}

void AgentMetrics::SetDevices(int devices, int64_t memory_bytes) {
  for (int device = 0; device < devices; ++device) {
    registry_
        .MakeGauge("meshwright_device_memory_limit_bytes", "Memory that jobs may have of a device.",
                   {{"device", std::to_string(device)}})
        .Set(static_cast<double>(memory_bytes));
  }
}

void AgentMetrics::ObserveLaunch(const proto::LaunchDone& done) {
  StepCounters counters = StepCountersIn(registry_);
  for (const proto::StepReport& step : done.reports) {
    counters.steps.Increment();
    counters.seconds.Increment(step.seconds);
    if (step.busy.empty()) continue;  // it is not known
    double busy = 0;
    for (const proto::RankSeconds& rank : step.busy) busy += rank.seconds;
    busy /= static_cast<double>(step.busy.size());
    counters.busy.Increment(busy);
    counters.wait.Increment(step.seconds - busy);
  }
}

void AgentMetrics::Observe(uint64_t mesh_gen, const std::vector<DeviceStats>& stats,
                           const std::vector<int>& devices) {
  const MutexLock lock(mutex_);
  current_ = mesh_gen;
  std::map<MetricLabels, double> instructions;
  std::map<MetricLabels, collective::Counters> collectives;
  auto& memory = memory_[mesh_gen];
  for (size_t i = 0; i < stats.size(); ++i) {
    const DeviceStats& device = stats[i];
    instructions[{{"op", "run"}}] += static_cast<double>(device.instructions.run);
    instructions[{{"op", "send"}}] += static_cast<double>(device.instructions.send);
    instructions[{{"op", "recv"}}] += static_cast<double>(device.instructions.recv);
    instructions[{{"op", "free"}}] += static_cast<double>(device.instructions.free);
    for (const CollectiveStat& stat : device.collectives) {
      collective::Counters& sum = collectives[{
          {"op", collective::KindName(stat.kind)}, {"backend", stat.backend}, {"axis", stat.axis}}];
      sum.calls += stat.counters.calls;
      sum.bytes += stat.counters.bytes;
      sum.seconds += stat.counters.seconds;
    }
    const int local = i < devices.size() ? devices[i] : static_cast<int>(i);
    for (const auto& [kind, bytes] : device.memory_bytes) {
      memory[{local, ir::MemoryKindName(kind)}] = bytes;
    }
    far_[mesh_gen][{local, ir::SpaceName(ir::Space::kHost)}] = device.host_bytes;
    far_[mesh_gen][{local, ir::SpaceName(ir::Space::kDisk)}] = device.disk_bytes;
  }
  for (const auto& [labels, total] : instructions) {
    Raise(kInstructions, kInstructionsHelp, labels, total);
  }
  for (const auto& [labels, sum] : collectives) {
    Raise("meshwright_collective_calls_total", "Collective calls and messages, by kind.", labels,
          static_cast<double>(sum.calls));
    Raise("meshwright_collective_bytes_total", "Bytes put on the wire by this worker.", labels,
          static_cast<double>(sum.bytes));
    Raise("meshwright_collective_seconds_total",
          "Time that device threads spent in collectives, waiting included.", labels, sum.seconds);
  }
  PublishMemory();
}

void AgentMetrics::Forget(uint64_t mesh_gen) {
  const MutexLock lock(mutex_);
  counted_.erase(mesh_gen);
  memory_.erase(mesh_gen);
  far_.erase(mesh_gen);
  PublishMemory();
}

void AgentMetrics::Raise(const char* name, const char* help, const MetricLabels& labels,
                         double total) {
  double& known = counted_[current_][{name, labels}];
  if (total <= known) return;
  registry_.MakeCounter(name, help, labels).Increment(total - known);
  known = total;
}

void AgentMetrics::PublishMemory() {
  Publish("meshwright_device_memory_bytes", "Memory held on a device, by kind.", "kind", memory_,
          published_);
  Publish("meshwright_far_memory_bytes",
          "What a device holds in the memory of the host and on the disk.", "memory", far_,
          published_far_);
}

void AgentMetrics::Publish(const char* name, const char* help, const char* label,
                           const std::map<uint64_t, DeviceBytes>& held, Published& published) {
  DeviceBytes sums;
  for (auto& [key, once] : published) sums[key] = 0;
  for (const auto& [gen, kinds] : held) {
    for (const auto& [key, bytes] : kinds) sums[key] += bytes;
  }
  for (const auto& [key, bytes] : sums) {
    published[key] = true;
    registry_.MakeGauge(name, help, {{"device", std::to_string(key.first)}, {label, key.second}})
        .Set(static_cast<double>(bytes));
  }
}

}  // namespace meshwright::worker
