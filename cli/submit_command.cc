#include <fmt/format.h>

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/os_error.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/follow.h"
#include "cli/identity_dirs.h"
#include "cli/input_files.h"
#include "cli/output.h"
#include "cli/prepare_training.h"
#include "cli/resume.h"
#include "cli/run_history.h"
#include "client/data_files.h"
#include "config/job_config.h"
#include "data/roots.h"
#include "ir/training_flops.h"

namespace meshwright::cli {
namespace {

using client::Client;

void PrintEach(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

// The files go to where workers read them; what was uploaded and why is told.
Status SendFiles(Client& client, const SubmitArgs& args, const InputFiles& files,
                 const WeightsFile& weights, ir::JobRequest& request) {
  client::SendOptions options;
  options.upload = args.upload;
  for (const std::string& text : args.data_roots) {
    MW_ASSIGN_OR_RETURN(ir::DataRoot root, data::ParseRoot(text));
    options.roots.push_back(std::move(root));
  }
  MW_ASSIGN_OR_RETURN(client::SentData data, client::SendData(client, {files.dataset}, options));
  PrintEach(data.notes);
  request.data = std::move(data.spec);
  if (weights.path().empty()) return OkStatus();
  options.upload = options.upload || weights.is_temporary();
  MW_ASSIGN_OR_RETURN(client::SentFile sent, client::SendFile(client, weights.path(), options));
  PrintEach(sent.notes);
  request.init_weights = std::move(sent.file);
  request.init_weights.blob.name = files.weights.path;
  return OkStatus();
}

// How the submitted job starts, as lines.
std::string StartText(const ir::JobRequest& request) {
  std::string text;
  if (!request.init_weights.blob.name.empty()) {
    text += fmt::format("  weights  {}\n", request.init_weights.blob.name);
  }
  if (!request.start.empty()) {
    text += fmt::format("  goes on  from step {} ({})\n", request.start.step,
                        request.start.checkpoint.path);
  }
  return text;
}

void PrintSubmitted(int64_t id, const ir::JobRequest& request, const std::string& summary,
                    bool json) {
  if (json) {
    fmt::print("{{\"id\":{}}}\n", id);
  } else {
    fmt::print(
        "job {} submitted: {}{}\n"
        "{}"
        "  follow   meshwright logs -f {}\n"
        "  list     meshwright jobs\n"
        "  cancel   meshwright cancel {}\n",
        id, request.name, summary.empty() ? "" : fmt::format(" ({})", summary), StartText(request),
        id, id);
  }
  std::fflush(stdout);  // wrappers read the id from a pipe
}

// The name in the certificate that the controller is shown; else USER@HOST, as far as they are
// known.
std::string WhoSubmits(const Result<Client::Options>& options) {
  const std::string named = options.has_value() ? NameInIdentity(options->tls_dir) : "";
  if (!named.empty()) return named;
  const char* const user = std::getenv("USER");
  const passwd* const known = user == nullptr ? ::getpwuid(::getuid()) : nullptr;
  std::string who = user != nullptr ? user : known != nullptr ? known->pw_name : "";
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) == 0) who += fmt::format("@{}", host.data());
  return AsUtf8(who, 256);
}

// What a watcher of a job does with its updates.
class Follower {
 public:
  Follower(const SubmitArgs& args, const JobView::Options& view, std::string records)
      : args_(args), view_(SystemClock(), view), records_(std::move(records)) {}

  // Before the job is submitted: a record that cannot be written must not cost a run.
  Status OpenRecord() {
    MW_TRY(records_.Prepare());
    if (args_.record.empty()) return OkStatus();
    const int fd = ::open(args_.record.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return OsError(errno, fmt::format("cannot write --record {}", args_.record));
    record_.reset(::fdopen(fd, "w"));
    if (record_) return OkStatus();
    return OsError(errno, fmt::format("cannot write --record {}", args_.record));
  }

  // Once there is a job: a refused one leaves the record of the last run as it was.
  Status StartRecord() {
    if (!record_ || ::ftruncate(::fileno(record_.get()), 0) == 0) return OkStatus();
    if (errno == EINVAL) return OkStatus();  // a pipe or a device has no old content
    return OsError(errno, fmt::format("cannot empty --record {}", args_.record));
  }

  JobView& view() { return view_; }

  // Of a job that nobody follows.
  void PrintWhoRecords(int64_t id) const {
    if (records_.folder().empty()) return;
    fmt::print(stderr,
               "note: metrics.tensorboard_dir is written by who follows the job: `meshwright "
               "records {} --follow --to {}`\n",
               id, records_.folder());
  }

  void OnUpdate(const client::JobUpdate& update, const ir::JobRequest& request) {
    records_.OnUpdate(update, request);
    if (!record_) return;
    for (const client::StepMetrics& step : update.steps) {
      fmt::print(record_.get(), "{}\n", StepJson(step));
    }
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const SubmitArgs& args_;
  JobView view_;
  LiveRecords records_;
  std::unique_ptr<std::FILE, Close> record_;
};

// Submits and follows.
Result<int> Send(Client& client, const SubmitArgs& args, const GlobalArgs& global,
                 const ir::JobRequest& request, const std::string& summary, Follower& follower) {
  MW_ASSIGN_OR_RETURN(const int64_t id, client.Submit(request));
  PrintSubmitted(id, request, summary, global.json);
  if (args.no_wait) {
    follower.PrintWhoRecords(id);
    return kExitOk;
  }
  MW_TRY(follower.StartRecord());
  const FollowOptions options{.job_id = id,
                              .timeout_s = args.timeout_s,
                              .json = global.json,
                              .color = UseColor(global.color)};
  return FollowJob(client, options, follower.view(),
                   [&](const client::JobUpdate& update) { follower.OnUpdate(update, request); });
}

JobView::Options ViewOf(const ir::JobRequest& request, const SubmitArgs& args,
                        const GlobalArgs& global) {
  return {.steps = {.steps = request.train.steps,
                    .log_every = request.train.log_every,
                    .flops_per_step = ir::TrainingFlops(request),
                    .color = UseColor(global.color),
                    .json = global.json,
                    .width = TerminalColumns(STDOUT_FILENO)},
          .events = !global.json,
          .step_lines = !args.quiet,
          .live = !global.json && !args.quiet};
}

// Where the configuration that a job was made of has its records written.
std::string RecordsOf(const ir::JobRequest& request) {
  if (request.config_text.empty()) return "";
  config::ConfigSource source;
  source.text = request.config_text;
  source.environment_names = {};
  const auto config = config::ParseJobConfig(source);
  return config.has_value() ? config->tensorboard_dir : "";
}

// The job of a checkpoint, which brings its data and its model.
Result<int> SubmitAgain(const SubmitArgs& given, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const SubmitArgs args, WithStart(given));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(global));
  MW_ASSIGN_OR_RETURN(const std::optional<Resumed> resumed, FindResumed(args, global, *client));
  MW_ASSIGN_OR_RETURN(ir::JobRequest request, JobAgain(*resumed, args));
  GoOn(*resumed, args, request);
  MW_TRY(config::AtKey(ir::ValidateJob(request), config::JobConfig()));
  Follower follower(args, ViewOf(request, args, global), RecordsOf(request));
  MW_TRY(follower.OpenRecord());
  return Send(*client, args, global, request, "", follower);
}

Result<int> Submit(const SubmitArgs& given, const GlobalArgs& global) {
  if (given.file.empty()) return SubmitAgain(given, global);
  const PlannedJobFile source{given.file, given.overrides, given.decisions};
  MW_ASSIGN_OR_RETURN(config::JobConfig config, LoadPlannedJob(source));
  // What is wrong with it is said when the job file has been read.
  const Result<Client::Options> options = ClientOptions(global);
  if (config.owner.empty()) config.owner = WhoSubmits(options);
  MW_ASSIGN_OR_RETURN(const SubmitArgs args, WithStart(given, config));
  auto prepared_job = PrepareTraining(config);
  if (!prepared_job) return Fail(NamingOtherJob(prepared_job.error(), source));
  config::PreparedJob prepared = *std::move(prepared_job);
  PrintNotes(config);
  PrintNotes(prepared.model);
  MW_TRY(PrintForeignPlan(args.decisions, prepared.request, nullptr));
  MW_ASSIGN_OR_RETURN(const InputFiles files, FindInputFiles(config, prepared.model));
  if (!files.weights.note.empty()) fmt::print(stderr, "note: {}\n", files.weights.note);
  MW_TRY(CheckInputData(config, files.dataset, prepared.model.vocabulary));
  MW_ASSIGN_OR_RETURN(const WeightsFile weights, WeightsFile::Open(files.weights));
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> notes,
                      CheckStartingWeights(files, weights, prepared.request.main().graph));
  PrintEach(notes);
  Follower follower(args, ViewOf(prepared.request, args, global), config.tensorboard_dir);
  MW_TRY(follower.OpenRecord());
  MW_TRY(options);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(*options));
  MW_ASSIGN_OR_RETURN(const std::optional<Resumed> resumed, FindResumed(args, global, *client));
  MW_TRY(SendFiles(*client, args, files, weights, prepared.request));
  if (resumed) GoOn(*resumed, args, prepared.request);
  return Send(*client, args, global, prepared.request, prepared.model.summary, follower);
}

}  // namespace

int RunSubmit(const SubmitArgs& args, const GlobalArgs& global) {
  const Result<int> code = Submit(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
