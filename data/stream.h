// An open stream: reads the field of a sample into the caller's memory.
//
// Training, tokens: the training part holds W windows of `sequence` tokens. Sample n is window
// P(n % W) of epoch n / W, where P permutes [0, W), so every window comes once per epoch. All
// windows of an epoch are shifted by the same amount, drawn anew per epoch from the tokens that W
// whole windows leave over. Training, records: sample n is record P(n % R) of epoch n / R; records
// are whole, nothing is shifted, and all fields read the same record.
//
// A stream of several parts is a mixture: sample n is sample m of part i (data/mixture.h), and of
// each part as above, with an order and a shift of its own. Tails of parts are mixed as the parts
// are; parts of validation files are read in turns. Parts that take turns (data/mixture.h) are
// the same records in several forms: an epoch is a pass over one of them, and the tail is that of
// the first.
//
// Validation: sample n is window or record n (modulo their number), in order, without overlap: of
// the validation files, or of the tail that is never trained on.
//
// A row is a pure function of (files, seed, n): the same on every worker and after every restart.
//
// Thread rule: immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/counts.h"
#include "data/field_reader.h"
#include "data/file_set.h"
#include "ir/data_spec.h"

namespace meshwright::data {

struct StreamOptions {
  int64_t sequence = 1;    // tokens of a window, without the last label
  uint64_t seed = 0;       // of the order
  int64_t vocabulary = 0;  // tokens are below it; 0: not checked
};

// The memory of one row: of a feed's type without its first dim.
struct RowBuffer {
  ir::DType dtype = ir::DType::kI32;
  std::span<std::byte> bytes;
};

class Stream {
 public:
  // REQUIRES: a stream that ir::CheckDataSpec accepts. Errors: those of CheckEnough and FileSet.
  static Result<std::unique_ptr<Stream>> Open(const ir::DataStream& stream,
                                              const StreamOptions& options, Opener opener);

  const std::string& name() const { return name_; }
  const StreamCounts& counts() const { return counts_; }

  // Errors: kInvalidArgument: unknown field, a row of other bytes, a type that does not hold the
  // field, a token outside of the vocabulary, a value that the type does not hold (names its
  // place); kFailedPrecondition: nothing to validate with; kDataLoss: a file was changed.
  Status Read(const ir::FeedName& feed, int64_t sample, const RowBuffer& row);

  // First token, or the record, of training sample `sample`: among all items of the stream.
  int64_t TrainingItem(int64_t sample) const;

 private:
  struct Part {
    int64_t begin = 0;  // its first item
    StreamCounts counts;
    uint64_t seed = 0;
  };

  Stream(const ir::DataStream& stream, const StreamOptions& options,
         std::unique_ptr<FileSet> files);
  // The reader of one field of one part.
  const FieldReader* Find(const ir::FeedName& feed) const;
  void SetParts(const ir::DataStream& stream);
  int64_t ItemOfPart(const Part& part, int64_t sample) const;
  int64_t ValidationItem(int64_t sample) const;
  Result<int64_t> FirstItem(const ir::FeedName& feed, int64_t sample) const;
  Status CheckRow(const ir::DataField& field, const RowBuffer& row) const;
  Status CheckTokens(const FieldReader& reader, int64_t first, const RowBuffer& row) const;

  const std::string name_;
  const std::string files_text_;
  const ir::DataKind kind_;
  const StreamOptions options_;
  const StreamCounts counts_;
  const std::unique_ptr<FileSet> files_;
  bool own_validation_ = false;  // files of its own
  bool takes_turns_ = false;     // training parts
  std::vector<Part> parts_;
  std::vector<int64_t> weights_;       // of parts; in turns: samples of each
  std::vector<size_t> with_tail_;      // parts that have some
  std::vector<int64_t> tail_weights_;  // of these
  std::vector<int64_t> turns_;         // of validation files: samples of each part
  std::vector<int64_t> turn_begins_, turn_samples_;
  std::vector<FieldReader> training_;
  std::vector<FieldReader> validation_;  // of files of their own
};

}  // namespace meshwright::data
