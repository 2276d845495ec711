// support-bundle: asks for all parts, of this machine and of the controller.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/line_log.h"
#include "base/text.h"
#include "base/tls_identity.h"
#include "cli/cache_dir.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/describe.h"
#include "cli/doctor.h"
#include "cli/output.h"
#include "cli/support_bundle.h"
#include "client/inspector.h"
#include "proto/messages.h"
#include "report/views_json.h"
#include "security/certificate.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::Inspector;
using client::JobInfo;

constexpr size_t kMostWorkers = 256;

// What this process knows to be secret, wherever it stands in a text.
std::vector<std::string> KnownSecrets(const GlobalArgs& global,
                                      const Result<Client::Options>& options) {
  std::vector<std::string> known;
  for (const char* name : {"MESHWRIGHT_TOKEN", "MESHWRIGHT_JOIN"}) {
    if (const auto value = config::ProcessEnvironment(name)) known.push_back(*value);
  }
  if (!global.token_file.empty()) {
    known.emplace_back(Trim(ReadFile(global.token_file).value_or("")));
  }
  if (!options.has_value()) return known;
  known.push_back(options->token);
  if (options->tls_dir.empty()) return known;
  // Also without the lines around it, and broken into its lines.
  for (const std::string& line :
       Split(ReadFile(options->tls_dir + "/key.pem").value_or(""), '\n')) {
    if (!line.starts_with("-----")) known.push_back(line);
  }
  return known;
}

std::string ProgramText() {
  utsname system{};
  std::string text = fmt::format("meshwright {} ({})\n{}\n", MESHWRIGHT_VERSION,
                                 MESHWRIGHT_BUILD_TYPE, BuildDescription());
  if (::uname(&system) != 0) return text;
  return text + fmt::format("{} {} {}\n", system.sysname, system.release, system.machine);
}

std::string EnvironmentText() {
  std::string text;
  for (const std::string& name : config::ProcessEnvironmentNames("MESHWRIGHT_")) {
    text += fmt::format("{}={}\n", name, config::ProcessEnvironment(name).value_or(""));
  }
  return text;
}

// Whose it is, and until when; not the key.
Result<std::string> IdentityText(const std::string& folder) {
  if (folder.empty()) return std::string("in the clear\n");
  MW_ASSIGN_OR_RETURN(const std::string pem, ReadFile(folder + "/cert.pem"));
  MW_ASSIGN_OR_RETURN(const security::CertificateFacts facts, security::ReadCertificate(pem));
  return fmt::format("{}, until {}, sha256 {}\n",
                     facts.subject ? security::Describe(*facts.subject) : "of no cluster",
                     security::FormatMoment(facts.not_after_s), facts.sha256);
}

Result<std::string> LogEnd(Inspector& inspector, const std::string& worker, int64_t lines) {
  client::LogAsk ask;
  ask.worker = worker;
  ask.what.lines = lines;
  std::string text;
  while (text.size() < SupportBundle::kMostBytes) {
    MW_ASSIGN_OR_RETURN(const client::LogText piece, inspector.Log(ask));
    text += piece.text;
    if (piece.end || piece.text.empty()) break;
    ask.what.from = piece.next;
    ask.kept = ask.kept || !piece.note.empty();  // positions are of the log that answered
  }
  return text;
}

class BundleMaker {
 public:
  BundleMaker(const SupportBundleArgs& args, SupportBundle& bundle)
      : args_(args), bundle_(bundle) {}

  void AddMachine(const GlobalArgs& global) {
    bundle_.Add("version.txt", ProgramText());
    DoctorArgs doctor;
    bundle_.Add("doctor.txt", [&]() -> Result<std::string> {
      MW_ASSIGN_OR_RETURN(const std::vector<Check> checks, ExamineHere(doctor, global));
      return FormatChecks(checks);
    }());
    const std::string path = UserConfigPath(config::ProcessEnvironment);
    if (FileExists(path)) bundle_.Add("client/config.toml", ReadFile(path));
    bundle_.Add("client/environment.txt", EnvironmentText());
  }

  void AddController(const Client::Options& options) {
    bundle_.Add("client/identity.txt", IdentityText(options.tls_dir));
    const auto inspector = Inspector::Make(options);
    if (!inspector.has_value()) return bundle_.Add("controller", Fail(inspector.error()));
    const auto state = (*inspector)->State();
    // Nobody answers: one reason, not one for each part.
    if (!state.has_value()) return bundle_.Add("controller", Fail(state.error()));
    bundle_.Add("controller/state.json", report::JsonText({{"cluster_id", state->cluster_id},
                                                           {"version", state->version},
                                                           {"unix_ms", state->unix_ms}},
                                                          1) +
                                             "\n");
    bundle_.Add("controller/controller.log", LogEnd(**inspector, "", args_.lines));
    bundle_.Add("controller/metrics.prom", (*inspector)->Metrics());
    const auto client = Client::Connect(options);
    if (!client.has_value()) return bundle_.Add("jobs.json", Fail(client.error()));
    AddWorkers(**client, **inspector);
    AddJobs(**client, **inspector);
  }

 private:
  void AddWorkers(Client& client, Inspector& inspector) {
    const auto workers = client.Workers();
    if (!workers.has_value()) return bundle_.Add("workers.json", Fail(workers.error()));
    auto objects = nlohmann::ordered_json::array();
    for (const client::WorkerInfo& worker : *workers) {
      objects.push_back(report::WorkerObject(worker));
    }
    bundle_.Add("workers.json", report::JsonText(objects, 1) + "\n");
    for (size_t i = 0; i < std::min(workers->size(), kMostWorkers); ++i) {
      const std::string& name = (*workers)[i].name;
      bundle_.Add(fmt::format("workers/{}.log", SafeFileName(name).substr(0, 48)),
                  LogEnd(inspector, name, args_.lines));
    }
  }

  // The newest ones, those of users and those of tools, and all that have not ended.
  void AddJobs(Client& client, Inspector& inspector) {
    const auto jobs = client.List();
    if (!jobs.has_value()) return bundle_.Add("jobs.json", Fail(jobs.error()));
    std::vector<JobInfo> chosen = *jobs;
    std::sort(chosen.begin(), chosen.end(),
              [](const JobInfo& a, const JobInfo& b) { return a.id > b.id; });
    auto objects = nlohmann::ordered_json::array();
    int64_t ended = 0;
    int64_t ended_sessions = 0;
    for (const JobInfo& job : chosen) {
      const bool session = !job.tool.empty();
      int64_t& count = session ? ended_sessions : ended;
      const int64_t most = session ? args_.sessions : args_.jobs;
      if (client::IsTerminal(job.state) && ++count > most) continue;
      objects.push_back(report::JobObject(job));
      AddJob(client, inspector, job);
    }
    bundle_.Add("jobs.json", report::JsonText(objects, 1) + "\n");
  }

  void AddJob(Client& client, Inspector& inspector, const JobInfo& info) {
    const std::string folder = fmt::format("jobs/{}/", info.id);
    JobStory story;
    story.info = info;
    if (auto description = client.Describe(info.id)) story.request = std::move(description->job);
    const auto events = client.Logs(info.id);
    if (events.has_value()) story.events = *events;
    bundle_.Add(folder + "describe.txt",
                FormatDescription(story, kDescribedEvents, SystemClock().UnixMs(), false));
    bundle_.Add(folder + "config.resolved.toml", story.request.config_text);
    bundle_.Add(folder + "events.log", events.has_value()
                                           ? Result<std::string>(Join(*events, "\n"))
                                           : Result<std::string>(Fail(events.error())));
    // What the plan forecast beside what was measured, of the steps that are on record.
    for (const auto& [name, form] : {std::pair{"plan.txt", client::StoryForm::kTable},
                                     std::pair{"why.txt", client::StoryForm::kWhy}}) {
      const auto text = client.Story({info.id, {}, form});
      // No step was recorded: the job ended before, or it is no training.
      const bool none = !text.has_value() && text.error().code() == StatusCode::kNotFound;
      if (!none) bundle_.Add(folder + name, text);
    }
    if (!client::IsTerminal(info.state)) {
      bundle_.Add(folder + "hang.txt", inspector.Hang(info.id, false));
    }
  }

  static constexpr int64_t kDescribedEvents = 8;

  const SupportBundleArgs& args_;
  SupportBundle& bundle_;
};

void TellBundle(const SupportBundle& bundle, const std::string& file, size_t bytes, bool json) {
  if (json) {
    auto missing = nlohmann::ordered_json::array();
    for (const MissingPart& part : bundle.missing()) {
      missing.push_back({{"name", part.name}, {"why", part.why}});
    }
    fmt::print("{}\n", report::JsonText({{"file", file},
                                         {"files", bundle.files()},
                                         {"bytes", bytes},
                                         {"left_out", bundle.left_out()},
                                         {"missing", missing}}));
    return;
  }
  fmt::print("{}: {} files, {}; what looked like a secret was left out in {} places\n", file,
             bundle.files(), FormatBytes(static_cast<int64_t>(bytes)), bundle.left_out());
  fmt::print("  look at it before you send it: tar -tf {}\n", file);
  std::fflush(stdout);
  for (const MissingPart& part : bundle.missing()) {
    fmt::print(stderr, "note: {} is missing: {}\n", part.name, part.why);
  }
}

}  // namespace

int RunSupportBundle(const SupportBundleArgs& args, const GlobalArgs& global) {
  const int64_t now_ms = SystemClock().UnixMs();
  const Result<Client::Options> options = ClientOptions(global);
  BundleFacts facts;
  facts.name = fmt::format("meshwright-support-{:%Y%m%dT%H%M%SZ}",
                           fmt::gmtime(static_cast<std::time_t>(now_ms / 1000)));
  facts.version = proto::kVersion;
  facts.address = options.has_value() ? options->address : "";
  facts.unix_ms = now_ms;
  SupportBundle bundle(facts, Redactor(KnownSecrets(global, options)));
  BundleMaker maker(args, bundle);
  maker.AddMachine(global);
  if (options.has_value()) {
    maker.AddController(*options);
  } else {
    bundle.Add("controller", Fail(options.error()));
  }
  const std::string file = args.out.empty() ? facts.name + ".tar" : args.out;
  const std::string tar = bundle.Tar();
  const Status written = WriteFileAtomic(file, tar, 0600);
  if (!written.ok()) return ReportError(written);
  TellBundle(bundle, file, tar.size(), global.json);
  return kExitOk;
}

}  // namespace meshwright::cli
