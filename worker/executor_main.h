// The process of an executor: one mesh of one worker, at the other end of its supervisor's socket
// (worker/executor_process.h). It is the worker's binary in a hidden mode.
//
// It is told what it is by the first message, gets its mesh by LoadMesh, and ends when it has let
// go of that, or when the socket does: there is no executor without a supervisor. What it says to
// the controller goes through the supervisor, but for the weights at the end, which it sends over a
// connection of its own.
//
// Thread rule: main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace meshwright::worker {

// What it shares with its supervisor.
struct ExecutorDescriptors {
  int socket = -1;
  int connections = -1;  // collective::MakeRelaySocket()
  int record = -1;       // worker/mesh_record.h
  int snapshots = -1;    // checkpoint::MakeSnapshotMemory()
};

// The word behind a binary's name that makes it an executor.
inline constexpr const char* kExecutorMode = "mesh-executor";

// The command with its descriptors.
std::vector<std::string> ExecutorCommand(std::vector<std::string> command,
                                         const ExecutorDescriptors& descriptors);

// To be called first by the main function of a binary that is an executor's, too: the exit code of
// the process, if this is one.
std::optional<int> RunIfExecutor(int argc, char** argv);

}  // namespace meshwright::worker
