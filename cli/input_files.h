// The files that a job reads: found and checked before a cluster is asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "config/starting_weights.h"
#include "ir/data_spec.h"
#include "ir/graph.h"

namespace meshwright::cli {

struct InputFiles {
  ir::DataStream dataset;  // of data/describe.h
  config::StartingWeights weights;
};

// Errors name the key of the job file, the path and what to do: kInvalidArgument no dataset, or
// files that are damaged or do not fit together; kNotFound, kPermissionDenied.
// The model says what a sample is; without one they are windows of tokens.
Result<InputFiles> FindInputFiles(const config::JobConfig& config, const models::Model& model = {});

// What only reading shows: too short for one row, no UTF-8, tokens beyond the vocabulary.
// Errors: kInvalidArgument naming key, file and place.
Status CheckInputData(const config::JobConfig& config, const ir::DataStream& dataset,
                      int64_t vocabulary);

// Of a dry run, which needs no data: checks it where it is there.
Status CheckInputDataIfAny(const config::JobConfig& config, int64_t vocabulary);
// The same, for what a sample of the model is.
Status CheckInputDataIfAny(const config::JobConfig& config, const models::Model& model);

// Weights as the one file that is uploaded: shards are merged into a temporary one, and adapters
// come beside the weights in one; it goes with this object.
class WeightsFile {
 public:
  // Errors: those of formats::MergeShards and formats::JoinAdapter.
  static Result<WeightsFile> Open(const config::StartingWeights& weights);
  const std::string& path() const { return path_; }  // empty: random initialisation
  // Gone with this object: workers cannot read it in place.
  bool is_temporary() const { return merged_.has_value(); }

 private:
  std::string path_;
  std::optional<TempDir> merged_;
};

// Weights that do not fit the model are refused before a cluster is asked. Of those that do, what
// nobody may expect (formats::NotesOfWeights). Errors: kInvalidArgument naming the key and the
// tensor.
Result<std::vector<std::string>> CheckStartingWeights(const InputFiles& files,
                                                      const WeightsFile& weights,
                                                      const ir::Graph& loss);

}  // namespace meshwright::cli
