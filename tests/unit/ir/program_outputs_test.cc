// Outputs that other programs read: what is refused, and how it is said.
#include "ir/program_outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"

namespace meshwright::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A program with one input, which it doubles.
JobProgram Doubling(const std::string& name, const std::string& input, const TensorType& type) {
  Builder builder(name);
  const ValueId x = builder.AddOne(Op::kFeed, {}, {{"source", input}}, {type});
  builder.SetOutput("y", builder.AddOne(Op::kScale, {x}, {{"factor", 2.0}}));
  JobProgram program;
  program.name = name;
  program.graph = builder.Finish().value();
  program.inputs[input] = InputFrom::kClient;
  return program;
}

void Read(JobProgram& program, const std::string& input, ProgramOutput output) {
  program.inputs[input] = InputFrom::kOutput;
  program.reads[input] = std::move(output);
}

const TensorType kRows{DType::kF32, {2, 3}};

// "a" takes x of a client, "b" what "a" gives out, "c" what "b" gives out.
JobRequest Chain() {
  JobRequest job;
  job.name = "chain";
  job.driver = {DriverKind::kClient, "", 0, 1};
  job.programs = {Doubling("a", "x", kRows), Doubling("c", "q", kRows), Doubling("b", "p", kRows)};
  Read(job.programs[1], "q", {"b", "y"});
  Read(job.programs[2], "p", {"a", "y"});
  return job;
}

TEST(ProgramOutputs, WhoIsReadComesFirst) {
  const JobRequest job = Chain();
  ASSERT_TRUE(ValidateJob(job).ok()) << ValidateJob(job);
  EXPECT_THAT(ProgramsRead(job), ElementsAre("a", "b"));
  EXPECT_FALSE(ReadsData(job));
}

TEST(ProgramOutputs, NamesOfStateAreDistinct) {
  EXPECT_NE(OutputStateName({"a", "b/c"}), OutputStateName({"a/b", "c"}));
  EXPECT_TRUE(IsOutputState(OutputStateName({"a", "b"})));
}

TEST(ProgramOutputs, WhatCannotBeReadIsRefusedByName) {
  const auto refusal = [](const std::function<void(JobRequest&)>& change) {
    JobRequest job = Chain();
    change(job);
    return ValidateJob(job).message();
  };
  EXPECT_THAT(
      refusal([](JobRequest& job) {
        Read(job.programs[2], "p", {"z", "y"});
      }),
      HasSubstr("input \"p\" of program 'b' is an output of program 'z', which the job does "
                "not have"));
  EXPECT_THAT(refusal([](JobRequest& job) {
                Read(job.programs[2], "p", {"a", "z"});
              }),
              HasSubstr("is output \"z\" of program 'a', which gives out y"));
  EXPECT_THAT(refusal([](JobRequest& job) {
                job.programs[0] = Doubling("a", "x", {DType::kF32, {3, 2}});
              }),
              HasSubstr("is f32[2,3]; output \"y\" of program 'a' is f32[3,2]"));
  EXPECT_THAT(refusal([](JobRequest& job) {
                job.programs[0] = Doubling("a", "x", {DType::kF64, {2, 3}});
              }),
              HasSubstr("is f32[2,3]; output \"y\" of program 'a' is f64[2,3]"));
  EXPECT_THAT(refusal([](JobRequest& job) {
                Read(job.programs[2], "p", {"c", "y"});
              }),
              HasSubstr("in a circle: c -> b -> c"));
  EXPECT_THAT(refusal([](JobRequest& job) {
                Read(job.programs[0], "x", {"b", "y"});
              }),
              HasSubstr("circle"));
  EXPECT_THAT(refusal([](JobRequest& job) { std::swap(job.programs[0], job.programs[2]); }),
              HasSubstr("put the other one first"));
  EXPECT_THAT(refusal([](JobRequest& job) { job.parallel.pipeline = 2; }),
              HasSubstr("both must be on the same devices"));
}

}  // namespace
}  // namespace meshwright::ir
