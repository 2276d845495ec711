// Job files, saved plans, clusters, models, settings of generation.
#include "base/sha256.h"
#include "config/cluster_file.h"
#include "config/job_config.h"
#include "config/saved_plan.h"
#include "generation/settings.h"
#include "mesh/cluster.h"
#include "mesh/device_profile.h"
#include "models/registry.h"
#include "search/plan_cache.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/small_job.h"
#include "tests/fuzz/target.h"

namespace meshwright::fuzz {
namespace {

config::ConfigSource SourceOf(std::string text, std::string decisions = "") {
  config::ConfigSource source;
  source.text = std::move(text);
  source.decisions = std::move(decisions);
  source.environment = [](const std::string&) { return std::nullopt; };
  source.environment_names.clear();
  return source;
}

// What is accepted is written as a file that says the same.
void RunJobFile(std::string_view input) {
  const auto config = config::ParseJobConfig(SourceOf(std::string(input)));
  if (!config.has_value()) return;
  const std::string once = config::FormatJobConfig(*config);
  const auto again = config::ParseJobConfig(SourceOf(once));
  MW_CHECK(again.has_value()) << again.error().message();
  MW_CHECK(config::FormatJobConfig(*again) == once) << "it is written differently";
}

void RunOverride(std::string_view input) {
  config::ConfigSource source = SourceOf(kSmallJobFile);
  source.overrides = {std::string(input)};
  (void)config::ParseJobConfig(source);
}

Seeds SeedsOfSavedPlans() {
  return {R"(# step 80.2 ms
[plan]
job = "job.toml"
set = ["training.steps=5"]
devices = 4
devices_per_worker = 1
job_fingerprint = "1f0a"
cluster_fingerprint = "93"
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "gpipe"
zero_stage = 1
)"};
}

void RunSavedPlan(std::string_view input) {
  (void)config::IsSavedPlan(input);
  (void)config::ParsePlanOrigin(input, "plan.toml");
  (void)config::ParseJobConfig(SourceOf(kSmallJobFile, std::string(input)));
}

Seeds SeedsOfClusters() {
  return {R"(name = "two"
[[hosts]]
name = "a"
count = 8
devices = 8
device = "a100-40g"
nic_gbyte_per_s = 50
[[hosts]]
name = "b"
count = 1
devices = 4
device = "own"
[links.host]
latency_us = 5
gbyte_per_s = 235
[links.network]
latency_us = 12
gbyte_per_s = 12.5
[[profiles]]
name = "own"
file = "own.profile"
)"};
}

void RunCluster(std::string_view input) {
  static const std::string profile = mesh::FormatDeviceProfile(*mesh::DefaultDeviceProfile());
  config::ClusterSource source;
  source.text = std::string(input);
  source.read_file = [](const std::string&) -> Result<std::string> { return profile; };
  const auto cluster = config::ParseClusterFile(source);
  if (cluster.has_value()) (void)mesh::SummaryOf(*cluster);
}

Seeds SeedsOfModels() {
  Seeds seeds;
  for (const char* name : {"gpt2", "llama"}) {
    models::ModelSpec spec;
    spec.name = name;
    seeds.push_back(Sure(models::MakeModel(spec)).hf_config);
  }
  return seeds;
}

void RunModel(std::string_view input) {
  models::ModelSpec spec;
  spec.hf_config = std::string(input);
  (void)models::MakeModel(spec);
}

Seeds SeedsOfPlanEntries() {
  search::PlanEntry entry;
  entry.note = "a note";
  return {Sure(search::FormatPlanEntry("key", entry))};
}

// The checksum keeps mutations out of what is behind it: it is made right again.
void RunPlanEntry(std::string_view input) {
  (void)search::ParsePlanEntry("key", input);
  const std::string body(input.substr(0, input.rfind("sha256 ")));
  (void)search::ParsePlanEntry("key", body + "sha256 " + Sha256Hex(body) + "\n");
}

}  // namespace

std::vector<Target> ConfigTargets() {
  return {
      {"job-file", "config::ParseJobConfig, FormatJobConfig",
       [] {
         return Seeds{kSmallJobFile, config::FormatJobConfig(
                                         Sure(config::ParseJobConfig(SourceOf(kSmallJobFile))))};
       },
       RunJobFile, 400},
      {"job-override", "config::ParseJobConfig (--set)",
       [] {
         return Seeds{"training.steps=5", "optimizer.name=adamw", "parallelism.tensor_axes=\"2x2\"",
                      "training.frozen=[\"a\",\"b\"]"};
       },
       RunOverride, 400},
      {"saved-plan", "config::ParsePlanOrigin, ParseJobConfig (decisions)", SeedsOfSavedPlans,
       RunSavedPlan, 400},
      {"cluster-file", "config::ParseClusterFile", SeedsOfClusters, RunCluster, 800},
      {"model-config", "models::MakeModel (config.json)", SeedsOfModels, RunModel, 800},
      {"generation-config", "generation::ParseSettings",
       [] {
         return Seeds{R"({"temperature":0.7,"top_p":0.9,"top_k":40,"eos_token_id":[2,3],)"
                      R"("max_new_tokens":64,"repetition_penalty":1.1,"do_sample":true})"};
       },
       [](std::string_view input) { (void)generation::ParseSettings(input); }},
      {"plan-entry", "search::ParsePlanEntry", SeedsOfPlanEntries, RunPlanEntry},
  };
}

}  // namespace meshwright::fuzz
