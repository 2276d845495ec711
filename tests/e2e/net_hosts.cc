#include "tests/e2e/net_hosts.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "tests/e2e/leftovers.h"

namespace meshwright::testing {
namespace {

std::string NamespaceOf(const std::string& process) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + process + "/ns/net", error).string();
}

Status Run(std::vector<std::string> args) {
  SubprocessOptions options;
  options.args = std::move(args);
  auto run = RunProcess(options, 10'000);
  if (!run.has_value()) return FailedPrecondition(run.error().message());
  if (run->exit.ok()) return OkStatus();
  return FailedPrecondition(fmt::format("{}: {}", Join(options.args, " "), Trim(run->stderr_text)));
}

}  // namespace

Result<std::unique_ptr<NetHosts>> NetHosts::Make(int hosts) {
  MW_TRY(Run({"unshare", "--net", "true"}));
  auto made = std::make_unique<NetHosts>();
  MW_TRY(made->Prepare(hosts));
  return made;
}

std::string NetHosts::Address(int host) { return fmt::format("10.213.78.{}", host + 1); }

std::vector<std::string> NetHosts::On(int host, const std::vector<std::string>& args) const {
  // Only the network is another one: `ip netns exec` would also make a mount namespace of its own
  // for every command, and workers of one host would not believe to be on one.
  std::vector<std::string> all = {"nsenter", fmt::format("--net=/proc/{}/ns/net", holder(host)),
                                  "--"};
  all.insert(all.end(), args.begin(), args.end());
  return all;
}

Status NetHosts::Prepare(int hosts) {
  const std::string ours = NamespaceOf("self");
  for (int host = 0; host < hosts; ++host) {
    SubprocessOptions options;
    options.args = {"unshare", "--net", "tail", "-f", "/dev/null"};
    options.death_signal = SIGKILL;
    MW_ASSIGN_OR_RETURN(auto holder, Subprocess::Start(options));
    const std::string pid = std::to_string(holder->pid());
    holders_.push_back(std::move(holder));
    const bool made = WaitUntil(
        [&] {
          const std::string theirs = NamespaceOf(pid);
          return !theirs.empty() && theirs != ours;
        },
        10'000);
    if (!made) return DeadlineExceeded("a network namespace was not made within 10 s");
  }
  for (int host = 0; host < hosts; ++host) {
    MW_TRY(Run(On(host, {"ip", "link", "set", "lo", "up"})));
    for (int other = 0; other < host; ++other) MW_TRY(Connect(other, host));
  }
  return OkStatus();
}

// A host has one address; the cable to another one is the way to that one alone.
Status NetHosts::Connect(int one, int other) {
  const auto end = [](int to) { return fmt::format("{}{}", kCable, to); };
  MW_TRY(Run({"ip", "link", "add", end(other), "netns", std::to_string(holder(one)), "type", "veth",
              "peer", "name", end(one), "netns", std::to_string(holder(other))}));
  for (const auto& [host, to] : {std::pair(one, other), std::pair(other, one)}) {
    MW_TRY(Run(On(host, {"ip", "addr", "add", Address(host) + "/32", "peer", Address(to) + "/32",
                         "dev", end(to)})));
    MW_TRY(Run(On(host, {"ip", "link", "set", end(to), "up"})));
  }
  return OkStatus();
}

int64_t NetHosts::SentBytes(int host, const std::string& device) const {
  const auto table = ReadFile(fmt::format("/proc/{}/net/dev", holder(host)));
  int64_t bytes = -1;
  for (const std::string& line : Split(table.value_or(""), '\n')) {
    const std::string_view text = Trim(line);
    const size_t end = text.find(':');
    if (end == std::string_view::npos || !text.starts_with(device)) continue;
    // "name: 8 numbers received, 8 sent", bytes first in both.
    std::vector<std::string> numbers;
    for (std::string& word : Split(text.substr(end + 1), ' ')) {
      if (!word.empty()) numbers.push_back(std::move(word));
    }
    if (numbers.size() > 8) bytes = std::max<int64_t>(bytes, 0) + std::atoll(numbers[8].c_str());
  }
  return bytes;
}

}  // namespace meshwright::testing
