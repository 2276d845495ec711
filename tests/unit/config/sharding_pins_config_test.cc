// Pins of shardings in job files: the table, the key, and where errors point.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/job_config.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::config {
namespace {

using ::testing::HasSubstr;

Result<JobConfig> ConfigWith(const std::string& parallelism) {
  ConfigSource source;
  source.text = R"([model]
dim = 64
n_layers = 4
n_heads = 4
vocab_size = 256
)" + parallelism;
  source.environment_names.clear();
  return ParseJobConfig(source);
}

TEST(ShardingPinsConfig, ATableIsTheKey) {
  const auto config = ConfigWith(
      "[parallelism.pin]\n\"*.c_fc.weight\" = \"[_,_{tensor}]\"\n\"*.wte.weight\" = \"[_,_]\"\n");
  ASSERT_TRUE(config.has_value()) << config.error();
  EXPECT_EQ(config->parallel.sharding_pins, "*.c_fc.weight=[_,_{tensor}]; *.wte.weight=[_,_]");
  EXPECT_TRUE(PrepareJob(*config).has_value());
  ConfigSource again;
  again.text = FormatJobConfig(*config);
  again.environment_names.clear();
  EXPECT_EQ(ParseJobConfig(again)->parallel, config->parallel);
}

TEST(ShardingPinsConfig, ErrorsSayWhere) {
  const auto number = ConfigWith("[parallelism.pin]\n\"*.c_fc.weight\" = 3\n");
  ASSERT_FALSE(number.has_value());
  EXPECT_THAT(number.error().message(), HasSubstr("job.toml:7:"));
  const auto unknown = ConfigWith("[parallelism.pin]\n\"*.c_fcc.weight\" = \"[_,_]\"\n");
  ASSERT_TRUE(unknown.has_value()) << unknown.error();
  const auto prepared = PrepareJob(*unknown);
  ASSERT_FALSE(prepared.has_value());
  EXPECT_EQ(prepared.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(prepared.error().message(), HasSubstr("job.toml:6:"));
  EXPECT_THAT(prepared.error().message(), HasSubstr("no weight is called '*.c_fcc.weight'"));
  const auto lookalike = ConfigWith("[parallelism.pin]\n\"parallel.data\" = \"[_,_]\"\n");
  ASSERT_TRUE(lookalike.has_value()) << lookalike.error();
  EXPECT_THAT(PrepareJob(*lookalike).error().message(),
              HasSubstr("no weight is called 'parallel.data'"))
      << "what the user wrote stays as it is";
}

}  // namespace
}  // namespace meshwright::config
