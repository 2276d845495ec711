// The files that a job reads: found and checked before a cluster is asked.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "config/starting_weights.h"

namespace meshwright::cli {

struct InputFiles {
  std::string dataset;
  config::StartingWeights weights;
};

// Errors name the key of the job file, the path and what to do: kInvalidArgument no dataset, or a
// folder where a file is meant; kNotFound, kPermissionDenied.
Result<InputFiles> FindInputFiles(const config::JobConfig& config);

// Weights as the one file that is uploaded: shards are merged into a temporary one, which goes with
// this object.
class WeightsFile {
 public:
  // Errors: those of formats::MergeShards.
  static Result<WeightsFile> Open(const config::StartingWeights& weights);
  const std::string& path() const { return path_; }  // empty: random initialisation

 private:
  std::string path_;
  std::optional<TempDir> merged_;
};

}  // namespace meshwright::cli
