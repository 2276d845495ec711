// The data of a job, open: what feed nodes read, by name.
//
//   Source source = Source::Open(spec, {.sequence = 128, .seed = 1}, opener);
//   source->Read("digits/image", sample, {ir::DType::kF32, bytes});
//
// Thread rule: thread-safe. Ownership: what the opener refers to outlives the source.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/stream.h"
#include "ir/data_spec.h"

namespace meshwright::data {

class Source {
 public:
  // Errors: those of ir::CheckDataSpec and Stream::Open.
  static Result<std::unique_ptr<Source>> Open(const ir::DataSpec& spec,
                                              const StreamOptions& options, const Opener& opener);

  // `feed` as in ir/data_spec.h; `sample` counts from 0: step * global batch + row.
  // Errors: kInvalidArgument: unknown stream; those of Stream::Read.
  Status Read(std::string_view feed, int64_t sample, const RowBuffer& row);

  const Stream* Find(std::string_view stream) const;  // or nullptr

 private:
  Source() = default;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace meshwright::data
