#include "cli/dry_run_args.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "cli/job_args.h"

namespace meshwright::cli {
namespace {

// A range lets "nan" pass.
const CLI::Validator kPlanSeconds(
    [](std::string& text) {
      constexpr double kMost = 1e6;
      double seconds = -1;
      const bool is_number = CLI::detail::lexical_cast(text, seconds);
      if (is_number && seconds >= 0 && seconds <= kMost) return std::string();
      return fmt::format("{} is no number of seconds in [0, {:.0f}]", text, kMost);
    },
    "SECONDS in [0, 1000000]");
void AddPlannedDevices(CLI::App& plan, PlanArgs& args) {
  plan.add_option("--devices", args.devices,
                  "Plan for this many CPU devices; default: the devices, with their limits, of the "
                  "cluster at --address or $MESHWRIGHT_ADDRESS, else the degrees' product")
      ->check(CLI::Range(1, 65536));
  plan.add_option("--devices-per-worker", args.devices_per_worker, "With --devices")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  plan.add_option("--cluster", args.cluster, "Plan for the cluster that this file describes")
      ->excludes("--devices");
}

void AddPlanFiles(CLI::App& plan, PlanArgs& args, std::string& format) {
  plan.add_flag_callback(
      "--json", [&format] { format = "json"; }, "Short for -o json");
  plan.add_option("--out", args.out, "File instead of stdout");
  plan.add_option("--timeline,--trace", args.timeline,
                  "Write a Chrome trace of one simulated step to this file");
  plan.add_option("--svg", args.svg,
                  "Draw one simulated step, its memory and the largest weights to this file");
  plan.add_option("--save", args.save,
                  "Write what was decided to this file, as keys to edit and to give to --plan");
  AddDecisions(plan, args.decisions);
}

void AddPlanTimeout(CLI::App& command, PlanArgs& args) {
  command
      .add_option("--plan-timeout", args.plan_timeout_s,
                  "Seconds for the search; then the best layout so far is the plan. By itself "
                  "10, and 30 while nothing fits")
      ->check(kPlanSeconds);
}

void AddPlan(CLI::App& app, const DryRunCommands& commands) {
  PlanArgs& args = commands.plan;
  std::vector<std::string>& words = commands.plan_words;
  CLI::App* plan = app.add_subcommand("plan", "Show how a job would run, without running it");
  plan->add_option("job", words,
                   "Job file (TOML); explain JOB [STAGE|VALUE]: why each axis, a stage or a tensor "
                   "is as it is; "
                   "diff A B: two job files or saved plans side by side")
      ->required()
      ->expected(1, 4);
  AddOverrides(plan, args.overrides);
  AddPlannedDevices(*plan, args);
  AddPlanFiles(*plan, args, commands.format);
  AddPlanCache(*plan, args.plan_cache);
  plan->add_flag("--full", args.full,
                 "Every param, where equal layers are else one line, and the order of each stage");
  plan->add_flag("--programs", args.programs, "Also the instruction lists");
  plan->add_option("--stop-after", args.stop_after, "Print the result of this stage")
      ->check(CLI::IsMember({"graph", "step-graph", "executable", "plan", "programs"}))
      ->capture_default_str();
  plan->add_option("--what-if", args.what_if,
                   "section.key=value: plan with it, too, and show what changes; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddPlanTimeout(*plan, args);
}

void AddVerify(CLI::App& app, const DryRunCommands& commands) {
  VerifyArgs& args = commands.verify;
  CLI::App* verify = app.add_subcommand(
      "verify", "Hold a job's own layout against one device, at a small size, before it runs");
  verify->add_option("job", args.plan.file, "Job file (TOML)")->required();
  AddOverrides(verify, args.plan.overrides);
  AddPlannedDevices(*verify, args.plan);
  AddDecisions(*verify, args.plan.decisions);
  AddPlanCache(*verify, args.plan.plan_cache);
  AddPlanTimeout(*verify, args.plan);
  verify
      ->add_option("--max-ranks", args.max_ranks,
                   "Devices that are emulated at most, each by a thread")
      ->check(CLI::Range(1, kMostVerifiedRanks))
      ->capture_default_str();
  verify->add_option("--seed", args.seed, "Of the weights and tokens that are made up")
      ->capture_default_str();
  std::string& format = commands.format;
  verify->add_flag_callback(
      "--json", [&format] { format = "json"; }, "Short for -o json");
}

void AddVisualize(CLI::App& app, VisualizeArgs& args) {
  CLI::App* visualize =
      app.add_subcommand("visualize", "Draw which device holds which part of a tensor");
  visualize->add_option("sharding", args.sharding, "For example f32[8,16{tensor}]")->required();
  visualize->add_option("--mesh", args.mesh, "For example data=2,tensor=2")->required();
  visualize->add_option("--svg", args.svg, "Write an SVG file instead");
}

void AddConfig(CLI::App& app, ConfigArgs& args) {
  CLI::App* config = app.add_subcommand("config", "Check and explain job files");
  config->add_option("action", args.action, "schema | docs | coming-from | show | validate")
      ->required()
      ->check(CLI::IsMember({"schema", "docs", "coming-from", "show", "validate"}));
  config->add_option("job", args.file, "Job file, for show and validate");
  AddOverrides(config, args.overrides);
}

}  // namespace

void AddPlanCache(CLI::App& command, std::string& where) {
  where = "default";
  command
      .add_option("--plan-cache", where,
                  "Where decisions of planning are kept: default, off, or a folder")
      ->envname("MESHWRIGHT_PLAN_CACHE")
      ->capture_default_str();
  command.add_flag_callback(
      "--no-plan-cache", [&where] { where = "off"; }, "Search anew");
}

void AddDryRuns(CLI::App& app, const DryRunCommands& commands) {
  AddPlan(app, commands);
  AddVerify(app, commands);
  AddVisualize(app, commands.visualize);
  AddConfig(app, commands.config);
}

std::string ReadPlanWords(const std::vector<std::string>& words, PlanArgs& plan) {
  plan.file = words.front();
  if (words.front() == "explain") {
    if (words.size() < 2) {
      return "write `meshwright plan explain JOB [STAGE|VALUE]`, for example `plan explain "
             "job.toml`, `plan explain job.toml stage 0` or `plan explain job.toml "
             "'*.c_attn.weight'`";
    }
    plan.action = PlanAction::kExplain;
    plan.file = words[1];
    plan.subject = Join({words.begin() + 2, words.end()}, " ");
    return "";
  }
  if (words.front() == "diff") {
    if (words.size() != 3) {
      return "write `meshwright plan diff A B` with two job files or files of --save";
    }
    plan.action = PlanAction::kDiff;
    plan.file = words[1];
    plan.other = words[2];
    return "";
  }
  if (words.size() == 1) return "";
  return fmt::format(
      "`meshwright plan` takes one job file; '{}' is one too many (besides `plan "
      "explain JOB [STAGE|VALUE]` and `plan diff A B`)",
      words[1]);
}

std::string CheckPlan(const PlanArgs& plan, bool json) {
  const std::pair<const char*, bool> whole_plan[] = {
      {"--what-if", !plan.what_if.empty()},
      {"--timeline", !plan.timeline.empty()},
      {"--svg", !plan.svg.empty()},
      {"--save", !plan.save.empty()},
      {"--json", json},
  };
  for (const auto& [option, given] : whole_plan) {
    if (!given || plan.stop_after == "plan") continue;
    return fmt::format("{} needs the whole plan: leave out --stop-after {}", option,
                       plan.stop_after);
  }
  if (plan.programs && json) {
    return "programs have no JSON form: leave out --programs or --json";
  }
  if (plan.action == PlanAction::kShow) return "";
  const std::pair<const char*, bool> shown_plan[] = {
      {"--what-if", !plan.what_if.empty()},
      {"--timeline", !plan.timeline.empty()},
      {"--svg", !plan.svg.empty()},
      {"--save", !plan.save.empty()},
      {"--programs", plan.programs},
      {"--stop-after", plan.stop_after != "plan"},
      {"--full", plan.full},
  };
  const char* action = plan.action == PlanAction::kDiff ? "diff" : "explain";
  for (const auto& [option, given] : shown_plan) {
    if (given) return fmt::format("{} is for `plan JOB`, not for `plan {}`", option, action);
  }
  if (plan.action == PlanAction::kDiff && !plan.decisions.empty()) {
    return "`plan diff` takes saved plans in place of job files: leave out --plan";
  }
  return "";
}

}  // namespace meshwright::cli
