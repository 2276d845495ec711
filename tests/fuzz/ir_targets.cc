// Graphs, programs, formulas, shardings, profiles: texts that plans and jobs are made of.
#include "base/check.h"
#include "ir/formula.h"
#include "ir/parallel_pins.h"
#include "ir/param_groups.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "mesh/device_profile.h"
#include "mesh/measured_factors.h"
#include "mesh/sharding.h"
#include "planner/layout.h"
#include "planner/resolve_layout.h"
#include "search/sharding_pins.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/small_job.h"
#include "tests/fuzz/target.h"
#include "tests/property/ir_program_generator.h"

namespace meshwright::fuzz {
namespace {

void RunGraph(std::string_view input) {
  ExpectStable(input, ir::ParseGraph, ir::FormatGraph);
  const auto graph = ir::ParseGraph(input);
  if (!graph.has_value() || !ir::VerifyGraph(*graph).ok()) return;
  (void)ir::VerifyLossGraph(*graph);
}

Seeds SeedsOfPrograms() {
  Seeds seeds;
  for (const uint64_t seed : {1, 2, 3}) {
    const ir::testing::GeneratedJob job = ir::testing::GenerateJob(seed);
    seeds.push_back(ir::FormatProgram(job.programs.front()));
  }
  return seeds;
}

void RunProgram(std::string_view input) {
  ExpectStable(input, ir::ParseProgram, ir::FormatProgram);
  const auto program = ir::ParseProgram(input);
  if (!program.has_value()) return;
  const std::vector<ir::Program> programs = {*program};
  (void)ir::VerifyPrograms(programs);
}

void RunFormula(std::string_view input) {
  const std::vector<std::string_view> names = {"a", "b"};
  (void)ir::ParseFormula(input, names, ir::Op::kAdd);
}

void RunPins(std::string_view input) {
  for (const ir::Pin& pin : ir::Pins()) {
    ir::ParallelSpec spec;
    if (!ir::SetPin(pin, input, spec).ok()) continue;
    const std::string text = ir::PinText(pin, spec);
    MW_CHECK(ir::SetPin(pin, text, spec).ok() && ir::PinText(pin, spec) == text) << pin.name;
  }
}

void RunSharding(std::string_view input) {
  const auto parsed = mesh::ParseSharding(input);
  if (!parsed.has_value()) return;
  const std::string once = mesh::FormatSharding(parsed->type, parsed->sharding);
  const auto again = mesh::ParseSharding(once);
  MW_CHECK(again.has_value() && again->sharding == parsed->sharding) << once;
}

Seeds SeedsOfProfiles() {
  Seeds seeds;
  for (const char* name : {"cpu", "h100-80g"}) {
    seeds.push_back(mesh::FormatDeviceProfile(*mesh::KnownDeviceProfiles().at(name)));
  }
  return seeds;
}

void RunDegrees(std::string_view input) {
  const std::string text(input);
  (void)planner::ParseStageDegrees(text);
  (void)planner::ParseTensorAxes(text);
  (void)planner::ParseContextAttention(text);
  (void)ir::ParseParamGroup(text);
}

}  // namespace

std::vector<Target> IrTargets() {
  return {
      {"graph", "ir::ParseGraph, VerifyGraph, VerifyLossGraph", SeedsOfGraphs, RunGraph, 400},
      {"program", "ir::ParseProgram, VerifyPrograms", SeedsOfPrograms, RunProgram, 400},
      {"formula", "ir::ParseFormula",
       [] {
         return Seeds{"relu(a) + log1p(exp(-abs(a)))", "a * b - 0.5 * (a / b)", "-tanh(2e-3*b)"};
       },
       RunFormula},
      {"parallel-pins", "ir::SetPin",
       [] { return Seeds{"auto", "4", "on", "2x2,1x4", "selective", "0-5,11"}; }, RunPins},
      {"sharding", "mesh::ParseSharding",
       [] {
         return Seeds{"f32[32{data},128,4096{tensor}] partial(sum: pipe)",
                      "bf16[8,8{a,b}] partial(sum: data, tensor; max: expert)", "f32[]"};
       },
       RunSharding},
      {"sharding-pins", "search::ParseShardingPins",
       [] {
         return Seeds{"*.c_attn.weight=[_,_,_{tensor},_]; wte=[256{tensor},_]",
                      "a=[_]; b.*=[_{data,tensor}]"};
       },
       [](std::string_view input) { (void)search::ParseShardingPins(input); }},
      {"device-profile", "mesh::ParseDeviceProfile", SeedsOfProfiles,
       [](std::string_view input) {
         ExpectStable(input, mesh::ParseDeviceProfile, mesh::FormatDeviceProfile);
       }},
      {"measured-factors", "mesh::ParseFactors",
       [] {
         mesh::MeasuredFactors factors;
         return Seeds{mesh::FormatFactors({{"cpu", factors}, {"h100", factors}})};
       },
       [](std::string_view input) {
         ExpectStable(input, mesh::ParseFactors, mesh::FormatFactors);
       }},
      {"degrees", "planner::ParseStageDegrees, ParseTensorAxes; ir::ParseParamGroup",
       [] {
         return Seeds{"2x1,1x4", "2x2x2", "ring", "*.bias weight_decay=0 lr=0.5"};
       },
       RunDegrees},
  };
}

}  // namespace meshwright::fuzz
