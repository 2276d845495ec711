// The options of commands that look at a cluster from outside: logs, debug, doctor; and those of a
// worker about its own log.
//
// Thread rule: main thread. What is filled in outlives the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/args.h"

namespace meshwright::cli {

void AddLogs(CLI::App& app, LogsArgs& args);
void AddSupportBundle(CLI::App& app, SupportBundleArgs& args);
// What the parser's own rules cannot say; "" when there is nothing to object.
std::string CheckLogs(const LogsArgs& args);
void AddDebug(CLI::App& app, DebugArgs& args);
void AddDoctor(CLI::App& app, DoctorArgs& args);
void AddWorkerLog(CLI::App& worker, WorkerArgs& args);
void AddLogFormat(CLI::App& app, GlobalArgs& global);

}  // namespace meshwright::cli
