#include "worker/main.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"
#include "security/grpc/library_log.h"
#include "worker/executor_main.h"
#include "worker/host_process.h"

namespace meshwright::worker {
namespace {

constexpr std::string_view kHostMode = "host-actors";

// The number of "--fd=N"; none: it is another flag.
std::optional<int64_t> NumberOf(std::string_view flag, std::string_view name) {
  if (!flag.starts_with(name)) return std::nullopt;
  flag.remove_prefix(name.size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(flag.data(), flag.data() + flag.size(), number);
  const bool whole = error == std::errc() && end == flag.data() + flag.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

struct HostMode {
  int socket = -1;
  int64_t silent_ms = 0;
};

// Of "host-actors --fd=N --silent-ms=N"; none: this is no such command.
std::optional<HostMode> HostModeOf(int argc, char** argv) {
  if (argc != 4 || argv[1] != kHostMode) return std::nullopt;
  const std::optional<int64_t> fd = NumberOf(argv[2], "--fd=");
  const std::optional<int64_t> silent_ms = NumberOf(argv[3], "--silent-ms=");
  if (!fd || !silent_ms) return std::nullopt;
  return HostMode{static_cast<int>(*fd), *silent_ms};
}

}  // namespace

int Main(int argc, char** argv, const actor::Registry& registry) {
  security::TakeGrpcLog();
  if (const std::optional<int> code = RunIfExecutor(argc, argv)) return *code;
  if (const std::optional<HostMode> mode = HostModeOf(argc, argv)) {
    return ServeHostActors(UniqueFd(mode->socket), registry, mode->silent_ms);
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
  actors.actor_silent_ms = command->actor_silent_s * 1000;
  actors.command = {"/proc/self/exe", std::string(kHostMode)};
  return cli::RunWorker(*command, parsed.invocation->global, std::move(actors));
}

}  // namespace meshwright::worker
