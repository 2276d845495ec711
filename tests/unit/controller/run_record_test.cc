#include "controller/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

RunRecord MakeRunRecord() {
  RunRecord run;
  run.number = 3;
  run.gen = MeshGeneration(41);
  run.kind = "cpu";
  run.ranks = {{"w1", 0}, {"w0", 1}};
  run.start = {{"root", "gpt/7/step-5"}, 5, {"head.*"}};
  run.plan.layout = "data=2";
  run.plan.degrees.data = 2;
  run.plan.degrees.schedule = "gpipe";
  run.plan.degrees.sequence_parallel = true;
  run.plan.degrees.zero = 1;
  run.plan.programs = {"init", "step"};
  run.plan.devices.resize(2);
  run.plan.devices[0].programs = {{"aa", 10, "init/0"}, {"bb", 11, "step/0"}};
  run.plan.devices[0].saved_slots = {"w"};
  run.plan.devices[0].state_slots = {"w", "m"};
  run.plan.devices[1].input_rows = {{{1, 2}, {4, 8}}};
  run.plan.graph = {"cc", 12, "graph"};
  run.plan.vocabulary = 256;
  run.plan.device_memory_bytes = 1 << 20;
  run.plan.device_budget_bytes = 1 << 21;
  run.plan.peak_flops_per_s = 1.5e12;
  return run;
}

TEST(RunRecord, ComesBackAsItWas) {
  const RunRecord run = MakeRunRecord();
  const auto back = ParseRunRecord(FormatRunRecord(run));
  ASSERT_TRUE(back.has_value()) << back.error();
  EXPECT_EQ(back->number, 3);
  EXPECT_EQ(back->gen, run.gen);
  EXPECT_EQ(back->kind, "cpu");
  EXPECT_EQ(back->ranks, run.ranks);
  EXPECT_EQ(back->start, run.start);
  EXPECT_EQ(back->plan.layout, "data=2");
  EXPECT_EQ(back->plan.degrees, run.plan.degrees);
  EXPECT_FALSE(back->larger.has_value());
  EXPECT_EQ(back->plan.programs, run.plan.programs);
  EXPECT_EQ(back->plan.devices[0].programs, run.plan.devices[0].programs);
  EXPECT_EQ(back->plan.devices[0].saved_slots, run.plan.devices[0].saved_slots);
  EXPECT_EQ(back->plan.devices[0].state_slots, run.plan.devices[0].state_slots);
  EXPECT_EQ(back->plan.devices[1].input_rows, run.plan.devices[1].input_rows);
  EXPECT_EQ(back->plan.graph, run.plan.graph);
  EXPECT_EQ(back->plan.vocabulary, 256);
  EXPECT_EQ(back->plan.device_memory_bytes, 1 << 20);
  EXPECT_EQ(back->plan.device_budget_bytes, 1 << 21);
  EXPECT_EQ(back->plan.peak_flops_per_s, 1.5e12);
}

TEST(RunRecord, HasThePlanThatTheJobReturnsTo) {
  RunRecord run = MakeRunRecord();
  run.larger = SeatedPlan{run.plan, {{"w1", 0}, {"w2", 3}}};
  run.larger->plan.layout = "data=4";
  run.larger->plan.degrees.sequence_parallel.reset();
  run.keepers = {"w7", "w8"};
  const auto back = ParseRunRecord(FormatRunRecord(run));
  ASSERT_TRUE(back.has_value()) << back.error();
  ASSERT_TRUE(back->larger.has_value());
  EXPECT_EQ(back->larger->plan.layout, "data=4");
  EXPECT_EQ(back->larger->plan.degrees, run.larger->plan.degrees);
  EXPECT_EQ(back->larger->ranks, run.larger->ranks);
  EXPECT_EQ(back->keepers, run.keepers);
  run.larger->ranks.pop_back();
  EXPECT_FALSE(ParseRunRecord(FormatRunRecord(run)).has_value());
}

TEST(RunRecord, OfAnOlderVersionDoesNotSayItsDegrees) {
  std::string text = FormatRunRecord(MakeRunRecord());
  const size_t at = text.find("\"degrees\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 9, "\"unknown\"");
  const auto back = ParseRunRecord(text);
  ASSERT_TRUE(back.has_value()) << back.error();
  EXPECT_EQ(back->plan.degrees.data, 0);
}

TEST(RunRecord, WhatIsDamagedIsAnError) {
  const std::string text = FormatRunRecord(MakeRunRecord());
  for (size_t size = 0; size < text.size(); size += 7) {
    EXPECT_EQ(ParseRunRecord(text.substr(0, size)).error().code(), StatusCode::kDataLoss) << size;
  }
  EXPECT_FALSE(ParseRunRecord("[]").has_value());
  EXPECT_FALSE(ParseRunRecord("{\"number\":1}").has_value());
  RunRecord odd = MakeRunRecord();
  odd.ranks.pop_back();
  EXPECT_FALSE(ParseRunRecord(FormatRunRecord(odd)).has_value());
}

TEST(RunRecord, NamesTheNumberThatIsNone) {
  const std::string text = FormatRunRecord(MakeRunRecord());
  for (const char* key : {"number", "generation", "vocabulary", "device_budget_bytes", "step"}) {
    for (const char* number : {"1e308", "-1e308", "99999999999999999999", "0.5", "\"1\""}) {
      std::string odd = text;
      const size_t at = odd.find("\"" + std::string(key) + "\":") + std::string(key).size() + 3;
      odd.replace(at, odd.find_first_of(",}", at) - at, number);
      const auto run = ParseRunRecord(odd);
      ASSERT_FALSE(run.has_value()) << odd;
      EXPECT_EQ(run.error().code(), StatusCode::kDataLoss);
      EXPECT_THAT(run.error().message(), ::testing::HasSubstr("\"" + std::string(key) + "\" is "));
    }
  }
}

}  // namespace
}  // namespace meshwright::controller
