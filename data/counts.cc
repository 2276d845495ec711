#include "data/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace meshwright::data {
namespace {

int64_t ItemsOf(const std::vector<ir::DataSlice>& slices) {
  int64_t items = 0;
  for (const ir::DataSlice& slice : slices) items += slice.items;
  return items;
}

int64_t SamplesOf(const ir::DataStream& stream, int64_t items, int64_t sequence) {
  if (stream.kind == ir::DataKind::kRecords) return items;
  MW_CHECK(sequence >= 1) << "windows of " << sequence << " tokens";
  return items < sequence + 1 ? 0 : (items - 1) / sequence;
}

// A single file of tokens that is all one slice must be whole tokens.
Status CheckWholeTokens(const ir::DataStream& stream) {
  MW_CHECK(stream.fields.size() == 1) << "a stream of tokens has one field";
  const ir::DataField& field = stream.fields[0];
  for (const ir::DataSlice& slice : field.slices) {
    const ir::FileRef& file = stream.files[static_cast<size_t>(slice.file)];
    if (file.blob.size_bytes == 0) {
      return InvalidArgument(fmt::format("token file {} is empty", file.blob.name));
    }
    const int64_t rest =
        file.blob.size_bytes - slice.begin_bytes - slice.items * field.item_bytes();
    if (rest == 0) continue;
    return InvalidArgument(fmt::format(
        "token file {} is truncated: {} bytes are no whole number of {}-byte tokens; write it "
        "again",
        file.blob.name, file.blob.size_bytes, field.item_bytes()));
  }
  return OkStatus();
}

}  // namespace

StreamCounts CountsOf(const ir::DataStream& stream, int64_t sequence) {
  StreamCounts counts;
  if (stream.fields.empty()) return counts;
  if (!stream.actor.empty()) {
    // It makes as many as it is asked for.
    counts.items = counts.training_items = counts.training_samples = INT64_MAX;
    counts.validation_items = counts.validation_samples = stream.actor.validation_rows;
    return counts;
  }
  const ir::DataField& field = stream.fields[0];
  counts.items = ItemsOf(field.slices);
  if (field.validation.empty()) {
    const double tail = static_cast<double>(counts.items) * stream.validation_fraction;
    counts.validation_items = static_cast<int64_t>(std::floor(tail));
    counts.training_items = counts.items - counts.validation_items;
    MW_CHECK(counts.training_items >= 0)
        << "a validation fraction of " << stream.validation_fraction;
  } else {
    counts.validation_items = ItemsOf(field.validation);
    counts.training_items = counts.items;
  }
  counts.training_samples = SamplesOf(stream, counts.training_items, sequence);
  counts.validation_samples = SamplesOf(stream, counts.validation_items, sequence);
  return counts;
}

Status CheckEnough(const ir::DataStream& stream, int64_t sequence) {
  if (!stream.actor.empty()) return OkStatus();
  const bool tokens = stream.kind == ir::DataKind::kTokens;
  if (tokens) MW_TRY(CheckWholeTokens(stream));
  const StreamCounts counts = CountsOf(stream, sequence);
  if (counts.training_samples > 0) return OkStatus();
  if (!tokens) {
    return InvalidArgument(
        fmt::format("stream '{}' ({}): {} records, {} of them for training; it needs one at least",
                    stream.name, FilesText(stream), counts.items, counts.training_items));
  }
  return InvalidArgument(fmt::format(
      "token file {} is too short: {} tokens, {} of them for training, but a row needs {} "
      "(sequence {} + 1); use a longer file or a shorter sequence",
      FilesText(stream), counts.items, counts.training_items, sequence + 1, sequence));
}

bool HasValidation(const ir::DataSpec& data, int64_t sequence) {
  const Result<std::vector<ir::DataStream>> streams = ir::StreamsOf(data);
  if (!streams.has_value()) return false;
  return std::all_of(streams->begin(), streams->end(), [&](const ir::DataStream& stream) {
    return CountsOf(stream, sequence).validation_samples > 0;
  });
}

std::string FilesText(const ir::DataStream& stream) {
  if (stream.files.empty()) return "no file";
  const std::string& first = stream.files[0].blob.name;
  if (stream.files.size() == 1) return first;
  return fmt::format("{} and {} more", first, stream.files.size() - 1);
}

}  // namespace meshwright::data
