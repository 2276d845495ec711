#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "base/os_error.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/job_config.h"
#include "cli/output.h"
#include "ir/schema.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::JobInfo;

// Forward plus backward: the gradient of a contraction costs two of its size.
double FlopsPerStep(const ir::Graph& loss) {
  double flops = 0;
  for (const ir::Node& node : loss.nodes) flops += ir::CostOf(loss, node).flops;
  return 3 * flops;
}

Status UploadBlobs(Client& client, const JobConfig& config, ir::JobRequest& request) {
  if (config.dataset_path.empty()) {
    return InvalidArgument(
        "training.dataset_path is empty; name a text file, for example --set "
        "training.dataset_path=book.txt");
  }
  auto data = client.UploadFile(config.dataset_path);
  if (!data) return data.error().WithContext("training.dataset_path");
  request.data.blob = *data;
  if (config.initial_load_path.empty()) return OkStatus();
  std::string path = config.initial_load_path;
  if (FileExists(path + "/model.safetensors")) path += "/model.safetensors";
  auto weights = client.UploadFile(path);
  if (!weights) return weights.error().WithContext("checkpoint.initial_load_path");
  request.init_weights = *weights;
  return OkStatus();
}

void PrintSubmitted(int64_t id, const PreparedJob& prepared, bool json) {
  if (json) {
    fmt::print("{{\"id\":{}}}\n", id);
  } else {
    fmt::print(
        "job {} submitted: {} ({})\n"
        "  follow   meshwright logs -f {}\n"
        "  list     meshwright jobs\n"
        "  cancel   meshwright cancel {}\n",
        id, prepared.request.name, prepared.model.summary, id, id);
  }
  std::fflush(stdout);  // wrappers read the id from a pipe
}

// What a watcher of a job does with its updates.
class Follower {
 public:
  Follower(const SubmitArgs& args, StepPrinter printer, bool json)
      : args_(args), printer_(printer), json_(json) {}

  Status OpenRecord() {
    if (args_.record.empty()) return OkStatus();
    record_.reset(std::fopen(args_.record.c_str(), "we"));
    if (record_) return OkStatus();
    return OsError(errno, fmt::format("cannot write {}", args_.record));
  }

  bool OnUpdate(const client::JobUpdate& update) {
    if (!json_) PrintEvents(update);
    printer_.SetMemory(update.info.device_memory_bytes, update.info.device_budget_bytes);
    for (const client::StepMetrics& step : update.steps) {
      const std::string text = printer_.Add(step);
      if (!args_.quiet) fmt::print("{}", text);
      if (record_) fmt::print(record_.get(), "{}\n", StepJson(step));
    }
    std::fflush(stdout);
    return true;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void PrintEvents(const client::JobUpdate& update) {
    for (const std::string& line : update.log_lines) fmt::print(stderr, "  {}\n", line);
    if (update.info.layout.empty() || layout_ == update.info.layout) return;
    layout_ = update.info.layout;
    fmt::print("  layout   {}\n", layout_);
  }

  const SubmitArgs& args_;
  StepPrinter printer_;
  const bool json_;
  std::string layout_;
  std::unique_ptr<std::FILE, Close> record_;
};

Result<int> Submit(const SubmitArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const JobConfig config, LoadJobConfig(args.file, args.overrides));
  MW_ASSIGN_OR_RETURN(PreparedJob prepared, PrepareJob(config));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(global));
  MW_TRY(UploadBlobs(*client, config, prepared.request));
  MW_ASSIGN_OR_RETURN(const int64_t id, client->Submit(prepared.request));
  PrintSubmitted(id, prepared, global.json);
  if (args.no_wait) return kExitOk;
  const ir::TrainSpec& train = prepared.request.train;
  const StepPrinter printer({.steps = train.steps,
                             .log_every = train.log_every,
                             .flops_per_step = FlopsPerStep(prepared.request.loss),
                             .color = UseColor(global.color),
                             .json = global.json});
  Follower follower(args, printer, global.json);
  MW_TRY(follower.OpenRecord());
  MW_ASSIGN_OR_RETURN(
      const JobInfo end,
      client->Watch(
          id, [&](const client::JobUpdate& update) { return follower.OnUpdate(update); },
          args.timeout_s * 1000));
  if (!client::IsTerminal(end.state)) {
    fmt::print(stderr, "job {} goes on; follow it with `meshwright logs -f {}`\n", id, id);
    return kExitTimeout;
  }
  fmt::print("{}", global.json ? JobJson(end) + "\n" : FormatJobEnd(end));
  return ExitCodeOfJob(end);
}

}  // namespace

int RunSubmit(const SubmitArgs& args, const GlobalArgs& global) {
  const Result<int> code = Submit(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
