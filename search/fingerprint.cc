#include "search/fingerprint.h"

#include <fmt/format.h>

#include <map>

#include "base/sha256.h"
#include "ir/parallel_pins.h"
#include "ir/text.h"
#include "mesh/device_profile.h"

namespace meshwright::search {
namespace {

// Numbers in the order in which things are first met: equal for equal partitions.
class Numbers {
 public:
  size_t Of(const std::string& name) {
    return numbers_.emplace(name, numbers_.size()).first->second;
  }

 private:
  std::map<std::string, size_t> numbers_;
};

std::string LinkText(const mesh::LinkCost& link) {
  return fmt::format("{} {}", link.alpha_s, link.seconds_per_byte);
}

}  // namespace

std::string JobFingerprint(const ir::JobRequest& job) {
  const ir::TrainSpec& train = job.train;
  const ir::OptimizerSpec& optimizer = job.optimizer;
  return Sha256Hex(fmt::format("{}\nbatch {} sequence {} compile {} dtype {}\noptimizer {} {} {}\n",
                               ir::FormatGraph(job.main().graph), train.global_batch,
                               train.sequence, train.compile, static_cast<int>(train.compute_dtype),
                               optimizer.name, optimizer.momentum, optimizer.max_norm));
}

std::string ParallelFingerprint(const ir::ParallelSpec& parallel) {
  return Sha256Hex(ir::FormatPins(parallel));
}

std::string TopologyFingerprint(const mesh::Topology& topology) {
  std::string text;
  Numbers workers, hosts, groups;
  std::map<const mesh::DeviceProfile*, std::string> profiles;  // each is written once
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    const mesh::Device& device = topology.devices[i];
    const auto it = topology.hosts.find(device.host);
    const mesh::Host host = it == topology.hosts.end() ? mesh::Host() : it->second;
    std::string& profile = profiles[&topology.ProfileOf(i)];
    if (profile.empty()) {
      profile = Sha256Hex(mesh::FormatDeviceProfile(topology.ProfileOf(i)));
    }
    text += fmt::format("{} {} {} {} {} {} {} {}\n", workers.Of(device.worker),
                        hosts.Of(device.host), device.memory_bytes, device.threads, profile,
                        groups.Of(host.group), host.cores, host.nic_bytes_per_s);
  }
  text += fmt::format("host {}\nnetwork {}\n", LinkText(topology.links.host),
                      LinkText(topology.links.network));
  for (const mesh::SlowLink& slow : topology.links.slow) {
    text += fmt::format("slow {} {} {}\n", groups.Of(slow.from), groups.Of(slow.to),
                        LinkText(slow.cost));
  }
  return Sha256Hex(text);
}

}  // namespace meshwright::search
