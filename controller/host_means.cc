#include "controller/host_means.h"

#include <algorithm>
#include <set>

namespace meshwright::controller {
namespace {

struct Said {
  std::set<int32_t> cpus;
  int32_t most_cores = 0;
  int64_t most_memory_bytes = 0;
  bool all_say_which = true;
};

}  // namespace

std::map<std::string, HostMeans> MeansOfHosts(const Membership& members) {
  std::map<std::string, Said> said;
  for (const auto& [name, worker] : members.all()) {
    if (worker.session.value() == 0) continue;
    Said& host = said[worker.info.host_id];
    host.cpus.insert(worker.info.cpus.begin(), worker.info.cpus.end());
    host.most_cores = std::max(host.most_cores, worker.info.host_cores);
    host.most_memory_bytes = std::max(host.most_memory_bytes, worker.info.host_memory_bytes);
    host.all_say_which = host.all_say_which && !worker.info.cpus.empty();
  }
  std::map<std::string, HostMeans> means;
  for (const auto& [name, host] : said) {
    means[name] = {host.all_say_which ? static_cast<int>(host.cpus.size()) : host.most_cores,
                   host.most_memory_bytes};
  }
  return means;
}

}  // namespace meshwright::controller
