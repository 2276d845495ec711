// evaluate, without --data: the loss of a job's model on its validation data, as a job of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/connect.h"
#include "client/evaluation.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kPatienceS = 3600;

// The scalars of the program's own, by what became of them over the batches.
struct Own {
  std::vector<std::string> means;
  std::vector<std::string> sums;
};

Own OwnOf(const ir::JobRequest& job) {
  Own own;
  for (const ir::NamedValue& output : job.main().graph.outputs) {
    if (output.name == "loss_sum" || output.name == "count") continue;
    (output.reduction == ir::Reduction::kMean ? own.means : own.sums).push_back(output.name);
  }
  return own;
}

void PrintOwn(const client::StepMetrics& metrics, const std::vector<std::string>& names,
              const char* what) {
  for (const std::string& name : names) {
    const auto value = metrics.values.find(name);
    if (value == metrics.values.end()) continue;
    fmt::print("{} {:.6g} ({} {} batches)\n", name, value->second, what, metrics.step + 1);
  }
}

void Print(const client::StepMetrics& metrics, int64_t id, const std::string& layout,
           const Own& own, bool json) {
  if (json) {
    nlohmann::ordered_json object = {{"job", id},
                                     {"loss", metrics.loss},
                                     {"tokens", metrics.tokens},
                                     {"batches", metrics.step + 1},
                                     {"seconds", metrics.seconds}};
    object["values"] = metrics.values;
    object["means"] = own.means;  // what is not here is summed over the batches
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("loss {:.4f} (perplexity {:.4g}) over {:.0f} tokens of {} batches, {:.2f} s on {}\n",
             metrics.loss, std::exp(metrics.loss), metrics.tokens, metrics.step + 1,
             metrics.seconds, layout);
  PrintOwn(metrics, own.sums, "sum over");
  PrintOwn(metrics, own.means, "mean of");
}

Result<int> Evaluate(const EvaluateArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("evaluate", global));
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client->Describe(args.id));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job,
                      client::EvaluationOf(description, args.id, args.batches));
  MW_ASSIGN_OR_RETURN(const int64_t id, client->Submit(job));
  std::optional<client::StepMetrics> metrics;
  MW_ASSIGN_OR_RETURN(const client::JobInfo end, client->Watch(
                                                     id,
                                                     [&](const client::JobUpdate& update) {
                                                       if (!update.steps.empty())
                                                         metrics = update.steps.back();
                                                       return true;
                                                     },
                                                     args.timeout_s.value_or(kPatienceS) * 1000));
  if (!client::IsTerminal(end.state)) {
    return Fail(DeadlineExceeded(
        fmt::format("job {} evaluates job {} and is {}; it goes on: meshwright wait {}", id,
                    args.id, client::JobStateName(end.state), id)));
  }
  if (end.state != client::JobState::kSucceeded || !metrics) {
    fmt::print(stderr, "error: job {} {}: {}\n", id, client::JobStateName(end.state), end.message);
    return kExitJobFailed;
  }
  Print(*metrics, args.id, end.layout, OwnOf(job), global.json);
  return kExitOk;
}

}  // namespace

int RunEvaluate(const EvaluateArgs& args, const GlobalArgs& global) {
  if (!args.eval.data.empty()) {
    EvalArgs on_data = args.eval;
    on_data.timeout_s = args.timeout_s.value_or(on_data.timeout_s);
    return RunEvaluateOnData(on_data, global);
  }
  const Result<int> code = Evaluate(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
