#include "tests/unit/report/planned_job.h"

#include "tests/still_clock.h"

namespace meshwright::report {

Result<config::JobConfig> SmallConfig(const std::vector<std::string>& overrides,
                                      const std::string& decisions) {
  config::ConfigSource source;
  source.text = R"([job]
name = "small"
[model]
dim = 64
n_layers = 4
n_heads = 4
vocab_size = 256
[training]
dataset_path = "none.txt"
global_batch_size = 8
seq_len = 32
)";
  source.overrides = overrides;
  source.decisions = decisions;
  source.environment_names.clear();
  return config::ParseJobConfig(source);
}

Result<PlannedJob> PlanSmallJob(const std::vector<std::string>& overrides,
                                const mesh::Topology& topology, const std::string& decisions) {
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, SmallConfig(overrides, decisions));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  return PlanJob(std::move(prepared), topology, {}, kStill, planner::PlanScope::kAllDevices);
}

}  // namespace meshwright::report
