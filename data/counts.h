// How much a stream holds: items (tokens, records) and samples (windows, records), for training
// and for validation. The one place that counts: client, controller and worker ask it.
//
//   tokens, sequence s: W windows need W * s + 1 tokens
//   records:            a sample is a record
//   validation:         files of its own, or the last floor(items * fraction) items
//   a host actor's:     as many as one asks for; validation as the actor's source says
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"

namespace meshwright::data {

struct StreamCounts {
  int64_t items = 0;             // in all, without validation files
  int64_t training_items = 0;    // of these
  int64_t validation_items = 0;  // the rest, or those of the validation files
  int64_t training_samples = 0;  // of an epoch
  int64_t validation_samples = 0;
  friend bool operator==(const StreamCounts&, const StreamCounts&) = default;
};

// REQUIRES of all: a stream that ir::CheckDataSpec accepts, sequence >= 1.
//
// Of each part that is trained on, or of all as one: without those of validation files.
std::vector<StreamCounts> CountsOfParts(const ir::DataStream& stream, int64_t sequence);
// Samples of each set of validation files, or of all as one.
std::vector<int64_t> ValidationSamplesOf(const ir::DataStream& stream, int64_t sequence);
// The sum over the parts.
StreamCounts CountsOf(const ir::DataStream& stream, int64_t sequence);

// Whether there is something to train on. Errors: kInvalidArgument naming stream and file: empty,
// no whole number of tokens, too short for one row.
Status CheckEnough(const ir::DataStream& stream, int64_t sequence);

// Whether every stream that the data has holds at least one sample to validate with. False for data
// that ir::CheckDataSpec refuses.
bool HasValidation(const ir::DataSpec& data, int64_t sequence);

// "a.bin", or "a.bin and 3 more": the files of a stream, for messages.
std::string FilesText(const ir::DataStream& stream);

}  // namespace meshwright::data
