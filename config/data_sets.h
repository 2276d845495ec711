// The data sets of a mixture and of validations, as a job file says them:
//
//   training.datasets = ["chats/*.jsonl: weight=3", "books: weight=1, format=text"]
//   validation.datasets = ["code: held/code.jsonl", "news: held/news.txt: format=text"]
//
// Without these keys a job has the one of training.dataset_path, and of validation.dataset_path.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::config {

struct DataSet {
  std::string name;    // of a validation set; of what is trained on, the path
  std::string path;    // as training.dataset_path
  std::string format;  // as training.dataset_format
  int64_t weight = 1;  // in a mixture
  friend bool operator==(const DataSet&, const DataSet&) = default;
};

// What the job is trained on; empty where it says nothing. Errors: kInvalidArgument naming key and
// entry: it cannot be read, dataset_path beside datasets, two of one path.
Result<std::vector<DataSet>> TrainingSets(const JobConfig& config);
// Errors: as above, and two of one name.
Result<std::vector<DataSet>> ValidationSets(const JobConfig& config);

}  // namespace meshwright::config
