// The part of the command line that is about dry runs: plan, verify, visualize, config.
//
// Thread rule: pure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/args.h"

namespace meshwright::cli {

void AddPlanCache(CLI::App& command, std::string& where);

struct DryRunCommands {
  PlanArgs& plan;
  std::vector<std::string>& plan_words;  // [explain | diff] and what follows
  VerifyArgs& verify;
  VisualizeArgs& visualize;
  ConfigArgs& config;
  std::string& format;  // of results, which --json sets
};
void AddDryRuns(CLI::App& app, const DryRunCommands& commands);

// The words of `plan` as an action and what it is about; "" or what is wrong with them.
std::string ReadPlanWords(const std::vector<std::string>& words, PlanArgs& plan);

// Options of `plan` that do not go together; "" when they do.
std::string CheckPlan(const PlanArgs& plan, bool json);

}  // namespace meshwright::cli
