#include "tests/e2e/net_hosts.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>

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

Result<std::unique_ptr<NetHosts>> NetHosts::Make() {
  MW_TRY(Run({"unshare", "--net", "true"}));
  auto hosts = std::make_unique<NetHosts>();
  MW_TRY(hosts->Prepare());
  return hosts;
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

Status NetHosts::Prepare() {
  const std::string ours = NamespaceOf("self");
  for (auto& holder : holders_) {
    SubprocessOptions options;
    options.args = {"unshare", "--net", "tail", "-f", "/dev/null"};
    options.death_signal = SIGKILL;
    MW_ASSIGN_OR_RETURN(holder, Subprocess::Start(options));
    const std::string pid = std::to_string(holder->pid());
    const bool made = WaitUntil(
        [&] {
          const std::string theirs = NamespaceOf(pid);
          return !theirs.empty() && theirs != ours;
        },
        10'000);
    if (!made) return DeadlineExceeded("a network namespace was not made within 10 s");
  }
  MW_TRY(Run({"ip", "link", "add", kCable, "netns", std::to_string(holder(0)), "type", "veth",
              "peer", "name", kCable, "netns", std::to_string(holder(1))}));
  for (int host = 0; host < kHosts; ++host) {
    MW_TRY(Run(On(host, {"ip", "addr", "add", Address(host) + "/24", "dev", kCable})));
    for (const char* device : {"lo", kCable}) {
      MW_TRY(Run(On(host, {"ip", "link", "set", device, "up"})));
    }
  }
  return OkStatus();
}

int64_t NetHosts::SentBytes(int host, const std::string& device) const {
  const auto table = ReadFile(fmt::format("/proc/{}/net/dev", holder(host)));
  for (const std::string& line : Split(table.value_or(""), '\n')) {
    const std::string_view text = Trim(line);
    if (text.rfind(device + ":", 0) != 0) continue;
    // "name: 8 numbers received, 8 sent", bytes first in both.
    std::vector<std::string> numbers;
    for (std::string& word : Split(text.substr(device.size() + 1), ' ')) {
      if (!word.empty()) numbers.push_back(std::move(word));
    }
    return numbers.size() > 8 ? std::atoll(numbers[8].c_str()) : -1;
  }
  return -1;
}

}  // namespace meshwright::testing
