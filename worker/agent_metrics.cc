#include "worker/agent_metrics.h"

#include "proto/messages.h"

namespace meshwright::worker {

AgentMetrics::AgentMetrics(MetricsRegistry& registry, const std::string& worker)
    : registry_(registry) {
  registry_
      .MakeGauge("meshwright_build_info", "Always 1; the labels say what is running.",
                 {{"version", proto::kVersion}, {"role", "worker"}, {"worker", worker}})
      .Set(1);
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
    Raise("meshwright_instructions_total", "Instructions run by the device actors, by opcode.",
          labels, total);
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
