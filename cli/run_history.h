// What the controller has on record of a job's run, as the commands about records want it.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "report/run_records.h"

namespace meshwright::cli {

// Hands over all steps that the job has done, oldest first, with what is known of the job then.
// follow: and those to come, until it ends or timeout_s (0: none) has passed. Returns what was
// known last. Errors: those of the client and of `take`.
Result<client::JobInfo> ReadSteps(client::Client& client, int64_t job, bool follow,
                                  int64_t timeout_s,
                                  const std::function<Status(const client::JobUpdate&)>& take);

// Its request; an empty one where the controller has none: it was never planned, or an older
// version did it.
Result<ir::JobRequest> RequestOf(client::Client& client, int64_t job);

// Records of a job while somebody follows it: opened with its first steps, once it is known how it
// runs. What goes wrong is told once, as a note, and ends the records, not the following.
class LiveRecords {
 public:
  // folder: of all records; empty: none are written.
  explicit LiveRecords(std::string folder) : folder_(std::move(folder)) {}

  // Makes the folder, so that one that cannot be written is known before a job is submitted.
  Status Prepare() const;
  void OnUpdate(const client::JobUpdate& update, const ir::JobRequest& request);
  const std::string& folder() const { return folder_; }

 private:
  Status Write(const client::JobUpdate& update, const ir::JobRequest& request);

  std::string folder_;
  std::unique_ptr<report::RunRecorder> recorder_;
};

}  // namespace meshwright::cli
