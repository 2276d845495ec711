// completion and __complete: what shells show behind a half-written command line.
#include <fmt/format.h>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/connect.h"

namespace meshwright::cli {
namespace {

// Somebody waits with a finger on a key.
constexpr int64_t kControllerMs = 500;

// The value of a global option among the words; "" where it is not there.
std::string GivenIn(const std::vector<std::string>& words, const std::string& option) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == option && i + 2 < words.size()) return words[i + 1];
    if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
  }
  return "";
}

// What the controller knows; nothing where it does not answer.
std::vector<Candidate> AskController(const std::vector<std::string>& words, Asked asked) {
  GlobalArgs global;
  global.address = GivenIn(words, "--address");
  global.token_file = GivenIn(words, "--token-file");
  Result<client::Client::Options> options = ClientOptions(global);
  if (!options) return {};
  options->timeout_ms = kControllerMs;
  const auto client = client::Client::Connect(*std::move(options));
  if (!client) return {};
  std::vector<Candidate> found;
  if (asked == Asked::kJobs) {
    const auto jobs = (*client)->List();
    if (!jobs) return {};
    for (const client::JobInfo& job : *jobs) {
      found.push_back({std::to_string(job.id),
                       fmt::format("{} {}", client::JobStateName(job.state), job.name)});
    }
  } else {
    const auto workers = (*client)->Workers();
    if (!workers) return {};
    for (const client::WorkerInfo& worker : *workers) found.push_back({worker.name, worker.state});
  }
  return found;
}

}  // namespace

int RunCompletion(const CompletionArgs& args) {
  fmt::print("{}", CompletionScript(args.shell));
  return kExitOk;
}

int RunComplete(const CompleteArgs& args, const GlobalArgs&) {
  const Candidates candidates = Complete(args.words);
  const auto print = [](const Candidate& each) {
    fmt::print("{}\t{}\n", Printable(each.text), Printable(each.meaning));
  };
  for (const Candidate& each : candidates.known) print(each);
  if (candidates.asked != Asked::kNothing && !args.words.empty()) {
    const std::string text = args.words.back().substr(candidates.before.size());
    const bool keys = candidates.asked == Asked::kKeys;
    for (Candidate& each : keys ? CompleteKey(text) : AskController(args.words, candidates.asked)) {
      if (!each.text.starts_with(text)) continue;
      each.text = candidates.before + each.text;
      print(each);
    }
  }
  if (candidates.files) fmt::print(":files\n");
  return kExitOk;
}

}  // namespace meshwright::cli
