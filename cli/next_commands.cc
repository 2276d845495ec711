#include "cli/next_commands.h"

#include <fmt/format.h>

namespace meshwright::cli {
namespace {

// As one word of a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string NextCommands(const UpArgs& args, const GlobalArgs& global, const ClusterState& state) {
  std::string text = fmt::format("  export MESHWRIGHT_ADDRESS={}\n", state.address);
  if (!global.token_file.empty()) {
    text += fmt::format("  export MESHWRIGHT_TOKEN=\"$(cat {})\"\n", Quoted(global.token_file));
  }
  text += "  meshwright status\n  meshwright submit examples/gpt-bytes.toml\n";
  text += fmt::format("  {} --address {}          # one more worker on this machine\n",
                      args.worker_binary.empty() ? "meshwright worker" : Quoted(args.worker_binary),
                      state.address);
  if (!state.metrics_address.empty()) {
    text += fmt::format("  http://{}/          # the page: jobs, loss curves, plans, workers\n",
                        state.metrics_address);
  }
  text += fmt::format("  curl -s http://{}/metrics | grep meshwright_\n", state.metrics_address);
  text += fmt::format("  meshwright down --dir {}\n", args.run_dir);
  // What `up` starts listens on loopback.
  return text +
         "\nOther machines do not reach this cluster; docs/operations.md says how to start one "
         "that "
         "they join.\n";
}

}  // namespace meshwright::cli
