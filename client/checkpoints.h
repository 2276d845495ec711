// Checkpoints that lie with the controller, as clients see them: those of jobs whose workers share
// no folder.
//
// Thread rule: thread-safe. Every call has the deadline of Client::Options, reading one for each
// part that is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"

namespace meshwright::client {

class Checkpoints {
 public:
  virtual ~Checkpoints() = default;
  static std::unique_ptr<Checkpoints> Connect(const Client::Options& options);

  // The controller's checkpoint root, a path on its machine. Errors: as of Client.
  virtual Result<std::string> Root() = 0;
  // Of a job, newest first. Errors: kNotFound: there is no such job, or its checkpoints are
  // elsewhere.
  virtual Result<std::vector<int64_t>> Steps(int64_t job_id) = 0;
  // A part of a file of a checkpoint. Errors: kDataLoss: it is shorter; kNotFound.
  virtual Status Read(int64_t job_id, int64_t step, const std::string& file, int64_t offset,
                      std::span<std::byte> into) = 0;
  // A file, whole.
  virtual Result<std::string> ReadAll(int64_t job_id, int64_t step, const std::string& file) = 0;
  virtual Status Remove(int64_t job_id, int64_t step) = 0;
};

}  // namespace meshwright::client
