#include "worker/job_feed.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace meshwright::worker {

Status JobFeed::Stage(const std::string& input, SharedBytes bytes, int64_t first_row,
                      int64_t rows) {
  if (!staged_names_.contains(input)) {
    return InvalidArgument(
        fmt::format("a launch brings the input '{}', which the job does not take "
                    "from a client",
                    input));
  }
  staged_[input] = {std::move(bytes), first_row, rows};
  return OkStatus();
}

Status JobFeed::ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) {
  if (!staged_names_.contains(source)) {
    if (data_ != nullptr) return data_->ReadRow(source, sample, row);
    return FailedPrecondition(
        fmt::format("input '{}' is to come from the job's data, and the job has none", source));
  }
  const auto it = staged_.find(source);
  if (it == staged_.end()) {
    return InvalidArgument(fmt::format("the call does not bring the input '{}'", source));
  }
  if (row.empty()) return OkStatus();
  const auto& [bytes, first_row, all_rows] = it->second;
  if (bytes.empty() || bytes.size() % row.size() != 0) {
    return InvalidArgument(fmt::format("the input '{}' has {} bytes, which are no whole rows of {}",
                                       source, bytes.size(), row.size()));
  }
  // Rows of step t are t * b and on: the staged ones are those of the step that runs.
  const auto here = static_cast<int64_t>(bytes.size() / row.size());
  const int64_t wanted = sample % (all_rows > 0 ? all_rows : here);
  if (wanted < first_row || wanted >= first_row + here) {
    return InvalidArgument(
        fmt::format("row {} of input '{}' is read here, where rows {} to {} were brought", wanted,
                    source, first_row, first_row + here - 1));
  }
  const auto at = static_cast<size_t>(wanted - first_row) * row.size();
  std::memcpy(row.data(), bytes.data() + at, row.size());
  return OkStatus();
}

}  // namespace meshwright::worker
