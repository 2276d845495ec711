#include "tests/e2e/doc_walk.h"

#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kEndMs = 20'000;
constexpr std::string_view kCopy = "scp ";

// "head$ command": the host and the command; an empty host: a line of output.
std::pair<std::string, std::string> PromptOf(const std::string& line) {
  size_t end = 0;
  while (end < line.size() && line[end] >= 'a' && line[end] <= 'z') ++end;
  const bool prompt = end > 0 && end + 1 < line.size() && line[end + 1] == ' ' &&
                      (line[end] == '$' || line[end] == '#');
  if (!prompt) return {"", line};
  return {line.substr(0, end), line.substr(end + 2)};
}

bool HasLine(const std::string& text, const std::string& pattern) {
  for (const std::string& line : Split(text, '\n')) {
    if (FitsPattern(pattern, std::string(Trim(line)))) return true;
  }
  return false;
}

}  // namespace

bool FitsPattern(const std::string& pattern, const std::string& text) {
  const size_t gap = pattern.find("...");
  if (gap == std::string::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, gap))) return false;
  const std::string rest = pattern.substr(gap + 3);
  for (size_t begin = gap; begin <= text.size(); ++begin) {
    if (FitsPattern(rest, text.substr(begin))) return true;
  }
  return false;
}

Result<std::vector<WalkStep>> WalkOf(const std::string& page, const std::string& heading) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(page));
  std::vector<WalkStep> steps;
  bool inside = false;
  bool block = false;
  int number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (!block && line.starts_with("## ")) inside = line == heading;
    if (!inside) continue;
    if (line.starts_with("```")) {
      block = !block && line == "```console";
      continue;
    }
    if (!block || Trim(line).empty()) continue;
    if (!steps.empty() && line.starts_with("> ")) {
      steps.back().command += "\n" + line.substr(2);
      continue;
    }
    auto [host, rest] = PromptOf(line);
    if (host.empty()) {
      if (steps.empty()) {
        return Fail(InvalidArgument(fmt::format("{}:{}: output of no command", page, number)));
      }
      steps.back().output.push_back(std::string(Trim(line)));
      continue;
    }
    WalkStep step{number, host, rest, rest.ends_with(" &"), {}};
    if (step.stays) step.command = rest.substr(0, rest.size() - 2);
    steps.push_back(std::move(step));
  }
  if (steps.empty()) return Fail(NotFound(fmt::format("{} has no steps at '{}'", page, heading)));
  return steps;
}

DocWalk::DocWalk(const NetHosts& net, WalkOptions options)
    : net_(net), options_(std::move(options)) {}

std::string DocWalk::Replaced(std::string text) const {
  for (const auto& [from, to] : options_.replace) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

SubprocessOptions DocWalk::OptionsOf(const WalkStep& step, const std::string& command) const {
  const std::string home = fmt::format("{}/{}", options_.dir, step.host);
  SubprocessOptions options;
  options.args = net_.On(options_.hosts.at(step.host), {"bash", "-c", command});
  options.env = options_.env;
  options.env.emplace_back("HOME", home);
  options.env.emplace_back("TMPDIR", options_.dir);
  options.directory = home;
  options.death_signal = SIGKILL;
  return options;
}

Status DocWalk::Take(const WalkStep& step) {
  if (!options_.hosts.contains(step.host)) {
    return FailedPrecondition(fmt::format("line {}: no host '{}'", step.line, step.host));
  }
  if (step.command == "poweroff -f") return PowerOff(step.host);
  const std::string command = Replaced(step.command);
  MW_TRY(MakeDirs(fmt::format("{}/{}", options_.dir, step.host)));
  if (step.command.starts_with(kCopy)) return Copy(step);
  if (step.stays) return Start(step, command);
  MW_ASSIGN_OR_RETURN(const ProcessOutput run,
                      RunProcess(OptionsOf(step, command), options_.patience_ms));
  return CheckOutput(step, run);
}

Status DocWalk::Start(const WalkStep& step, const std::string& command) {
  SubprocessOptions options = OptionsOf(step, "exec " + command);
  const std::string log = fmt::format("{}/{}-{}.log", options_.dir, step.host, step.line);
  options.stdout_to = options.stderr_to = OutputTo::File(log);
  MW_ASSIGN_OR_RETURN(auto process, Subprocess::Start(options));
  staying_.push_back({step.host, log, std::move(process)});
  return OkStatus();
}

Status DocWalk::PowerOff(const std::string& host) {
  for (auto it = staying_.begin(); it != staying_.end();) {
    if (it->host != host) {
      ++it;
      continue;
    }
    MW_TRY(it->process->Signal(SIGKILL));
    MW_TRY(it->process->Wait(kEndMs));
    it = staying_.erase(it);
  }
  return OkStatus();
}

// As scp would, which needs a server on each host.
Status DocWalk::Copy(const WalkStep& step) {
  const std::vector<std::string> words = Split(step.command.substr(kCopy.size()), ' ');
  const size_t colon = words[0].find(':');
  if (words.size() != 2 || colon == std::string::npos) {
    return FailedPrecondition(fmt::format("line {}: scp HOST:FILE FILE", step.line));
  }
  MW_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadFile(fmt::format("{}/{}/{}", options_.dir, words[0].substr(0, colon),
                                           words[0].substr(colon + 1))));
  const std::string to = fmt::format("{}/{}/{}", options_.dir, step.host, words[1]);
  MW_TRY(WriteFileAtomic(to, bytes));
  std::error_code error;
  std::filesystem::permissions(to, std::filesystem::perms(0600), error);
  return error ? FailedPrecondition(error.message()) : OkStatus();
}

Status DocWalk::CheckOutput(const WalkStep& step, const ProcessOutput& run) const {
  const std::string text = run.stdout_text + "\n" + run.stderr_text;
  const auto wrong = [&](const std::string& what) {
    std::string logs;
    for (const Staying& staying : staying_) {
      logs += fmt::format("---- {}\n{}", staying.log, ReadFile(staying.log).value_or(""));
    }
    return FailedPrecondition(fmt::format("line {}: {}$ {}\n{}; its output:\n{}\n{}", step.line,
                                          step.host, step.command, what, text, logs));
  };
  if (!run.exit.ok()) return wrong(run.exit.ToString());
  for (const std::string& line : step.output) {
    if (!HasLine(text, Replaced(line))) return wrong(fmt::format("no line like '{}'", line));
  }
  return OkStatus();
}

Status DocWalk::End() {
  Status status;
  for (auto it = staying_.rbegin(); it != staying_.rend(); ++it) {
    const auto exit = it->process->Terminate(kEndMs);
    if (exit.has_value() && exit->ok()) continue;
    if (!status.ok()) continue;
    status = FailedPrecondition(fmt::format(
        "{}: {}\n{}", it->log, exit.has_value() ? exit->ToString() : exit.error().message(),
        ReadFile(it->log).value_or("")));
  }
  staying_.clear();
  return status;
}

}  // namespace meshwright::testing
