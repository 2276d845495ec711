#include "worker/main.h"

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"
#include "worker/host_process.h"

namespace meshwright::worker {
namespace {

constexpr std::string_view kHostMode = "host-actors";
constexpr std::string_view kFdFlag = "--fd=";

// The socket of "host-actors --fd=N"; -1: this is no such command.
int HostSocket(int argc, char** argv) {
  if (argc != 3 || argv[1] != kHostMode) return -1;
  std::string_view flag = argv[2];
  if (flag.substr(0, kFdFlag.size()) != kFdFlag) return -1;
  flag.remove_prefix(kFdFlag.size());
  int fd = -1;
  const auto [end, error] = std::from_chars(flag.data(), flag.data() + flag.size(), fd);
  return error == std::errc() && end == flag.data() + flag.size() ? fd : -1;
}

}  // namespace

int Main(int argc, char** argv, const actor::Registry& registry) {
  if (const int socket = HostSocket(argc, argv); socket >= 0) {
    return ServeHostActors(UniqueFd(socket), registry);
  }
  std::vector<std::string> args(argv + 1, argv + argc);
  args.insert(args.begin(), "worker");
  const cli::ParsedArgs parsed = cli::ParseArgs(args);
  const auto* command =
      parsed.invocation ? std::get_if<cli::WorkerArgs>(&parsed.invocation->command) : nullptr;
  if (command == nullptr) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == cli::kExitOk ? stdout : stderr);
    return parsed.exit_code;
  }
  HostActorOptions actors;
  actors.types = registry.types();
  actors.command = {"/proc/self/exe", std::string(kHostMode)};
  return cli::RunWorker(*command, parsed.invocation->global, std::move(actors));
}

}  // namespace meshwright::worker
