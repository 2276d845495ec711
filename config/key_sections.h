// The parts of the table of a job file's keys (config/config_keys.h), in the order of its
// sections. Each file keys_of_*.cc says one or several of them; a new key is a row there.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "config/config_keys.h"

// A member of the config. Those of a request have the same path there; where not, MW_AS names it.
#define MW_AT(member) MW_AS(member, #member)
#define MW_AS(member, field)                                                                       \
  ::meshwright::config::BoundField {                                                               \
    [](::meshwright::config::JobConfig& c) -> ::meshwright::config::Binding { return &c.member; }, \
        field                                                                                      \
  }

namespace meshwright::config {

std::vector<ConfigKey> JobAndModelKeys();
std::vector<ConfigKey> MixtureKeys();
std::vector<ConfigKey> OptimizerKeys();
std::vector<ConfigKey> TrainingKeys();
std::vector<ConfigKey> PrecisionKeys();
std::vector<ConfigKey> TuningKeys();
std::vector<ConfigKey> LoraKeys();
std::vector<ConfigKey> ParallelismKeys();
std::vector<ConfigKey> PipelineKeys();
std::vector<ConfigKey> ShardingKeys();
std::vector<ConfigKey> DeviceKeys();
std::vector<ConfigKey> RunKeys();
std::vector<ConfigKey> CheckpointKeys();
std::vector<ConfigKey> FaultAndMetricsKeys();

}  // namespace meshwright::config
