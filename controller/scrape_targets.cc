#include "controller/scrape_targets.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace meshwright::controller {

std::string ScrapeTargets(const std::vector<proto::WorkerInfo>& workers) {
  constexpr std::string_view kTls = "https://";
  nlohmann::json targets = nlohmann::json::array();
  for (const proto::WorkerInfo& worker : workers) {
    if (worker.metrics_address.empty() || worker.state == "LOST" || worker.state == "LEFT")
      continue;
    nlohmann::json labels = {
        {"meshwright_role", "worker"}, {"worker", worker.name}, {"host", worker.host}};
    std::string address = worker.metrics_address;
    if (address.starts_with(kTls)) {
      address.erase(0, kTls.size());
      labels["__scheme__"] = "https";
    }
    targets.push_back({{"targets", {address}}, {"labels", labels}});
  }
  return targets.dump();
}

}  // namespace meshwright::controller
