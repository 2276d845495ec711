#include "tests/unit/rehearsal/planned.h"

#include <gtest/gtest.h>

#include "tests/still_clock.h"

namespace meshwright::rehearsal {
namespace {

constexpr char kJob[] = R"([job]
name = "rehearsed"
[model]
dim = 32
n_layers = 4
n_heads = 4
vocab_size = 256
[training]
dataset_path = "none.txt"
dataset_format = "uint16"
global_batch_size = 8
seq_len = 32
)";

}  // namespace

PlannedCase Plan(const std::vector<std::string>& overrides, int devices) {
  PlannedCase planned;
  config::ConfigSource source;
  source.text = kJob;
  source.overrides = overrides;
  source.environment_names.clear();
  auto config = config::ParseJobConfig(source);
  EXPECT_TRUE(config.has_value()) << config.error();
  if (!config) return planned;
  planned.config = *std::move(config);
  auto prepared = config::PrepareJob(planned.config);
  EXPECT_TRUE(prepared.has_value()) << prepared.error();
  if (!prepared) return planned;
  planned.prepared = *std::move(prepared);
  auto found =
      search::FindPlan(planned.prepared.request, mesh::Topology::Local(devices), {}, kStill);
  EXPECT_TRUE(found.has_value()) << found.error();
  if (found) planned.found = *std::move(found);
  return planned;
}

}  // namespace meshwright::rehearsal
