// Where the feeds of a job get their rows: the job's data, or what a launch brought.
//
// Thread rule: Stage and Clear while no program runs; ReadRow from any thread. Ownership: the data
// outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_bytes.h"
#include "ops/kernel.h"

namespace meshwright::worker {

class JobFeed final : public ops::FeedSource {
 public:
  // data: null: the job has none. staged: inputs that launches bring.
  JobFeed(ops::FeedSource* data, const std::vector<std::string>& staged)
      : data_(data), staged_names_(staged.begin(), staged.end()) {}

  // An input, until the next Clear(): all of it, or of `rows` rows those from first_row on. Errors:
  // kInvalidArgument: launches do not bring this input.
  Status Stage(const std::string& input, SharedBytes bytes, int64_t first_row = 0,
               int64_t rows = 0);
  void Clear() { staged_.clear(); }

  // Errors: the data's; kInvalidArgument naming an input that was not staged, whose bytes are no
  // whole rows, or of which others were staged.
  Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) override;

 private:
  ops::FeedSource* const data_;
  const std::set<std::string> staged_names_;
  struct Staged {
    SharedBytes bytes;
    int64_t first_row = 0;
    int64_t rows = 0;  // of the batch; 0: those in bytes are all
  };
  std::map<std::string, Staged> staged_;
};

}  // namespace meshwright::worker
