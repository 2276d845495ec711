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
#include "ops/kernel.h"

namespace meshwright::worker {

class JobFeed final : public ops::FeedSource {
 public:
  // data: null: the job has none. staged: inputs that launches bring.
  JobFeed(ops::FeedSource* data, const std::vector<std::string>& staged)
      : data_(data), staged_names_(staged.begin(), staged.end()) {}

  // All rows of an input, until the next Clear(). Errors: kInvalidArgument: launches do not bring
  // this input.
  Status Stage(const std::string& input, std::string bytes);
  void Clear() { staged_.clear(); }

  // Errors: the data's; kInvalidArgument naming an input that was not staged, or whose bytes are no
  // whole rows.
  Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) override;

 private:
  ops::FeedSource* const data_;
  const std::set<std::string> staged_names_;
  std::map<std::string, std::string> staged_;
};

}  // namespace meshwright::worker
