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

std::vector<StreamCounts> CountsOfParts(const ir::DataStream& stream, int64_t sequence) {
  std::vector<int64_t> items;
  for (const ir::DataPart& part : stream.parts) items.push_back(part.items);
  if (items.empty() && !stream.fields.empty()) items.push_back(ItemsOf(stream.fields[0].slices));
  const bool tail = !stream.fields.empty() && stream.fields[0].validation.empty();
  std::vector<StreamCounts> parts;
  for (const int64_t count : items) {
    StreamCounts counts;
    counts.items = count;
    if (tail) {
      counts.validation_items =
          static_cast<int64_t>(std::floor(static_cast<double>(count) * stream.validation_fraction));
    }
    counts.training_items = count - counts.validation_items;
    MW_CHECK(counts.training_items >= 0)
        << "a validation fraction of " << stream.validation_fraction;
    counts.training_samples = SamplesOf(stream, counts.training_items, sequence);
    counts.validation_samples = SamplesOf(stream, counts.validation_items, sequence);
    parts.push_back(counts);
  }
  return parts;
}

std::vector<int64_t> ValidationSamplesOf(const ir::DataStream& stream, int64_t sequence) {
  if (stream.fields.empty()) return {};
  if (stream.validation_parts.empty()) {
    return {SamplesOf(stream, ItemsOf(stream.fields[0].validation), sequence)};
  }
  std::vector<int64_t> samples;
  for (const ir::DataPart& part : stream.validation_parts) {
    samples.push_back(SamplesOf(stream, part.items, sequence));
  }
  return samples;
}

StreamCounts CountsOf(const ir::DataStream& stream, int64_t sequence) {
  StreamCounts counts;
  if (stream.fields.empty()) return counts;
  if (!stream.actor.empty()) {
    // It makes as many as it is asked for.
    counts.items = counts.training_items = counts.training_samples = INT64_MAX;
    counts.validation_items = counts.validation_samples = stream.actor.validation_rows;
    return counts;
  }
  for (const StreamCounts& part : CountsOfParts(stream, sequence)) {
    counts.items += part.items;
    counts.training_items += part.training_items;
    counts.validation_items += part.validation_items;
    counts.training_samples += part.training_samples;
    counts.validation_samples += part.validation_samples;
  }
  const ir::DataField& field = stream.fields[0];
  if (field.validation.empty()) return counts;
  counts.validation_items = ItemsOf(field.validation);
  for (const int64_t samples : ValidationSamplesOf(stream, sequence)) {
    counts.validation_samples += samples;
  }
  return counts;
}

namespace {

// Of a mixture each part is to have samples: their proportions are the job's.
Status CheckEachPart(const ir::DataStream& stream, int64_t sequence) {
  const std::vector<StreamCounts> parts = CountsOfParts(stream, sequence);
  for (size_t i = 0; i < stream.parts.size(); ++i) {
    if (parts[i].training_samples > 0) continue;
    return InvalidArgument(fmt::format(
        "data set '{}' is too short: {} {}, of which {} are for training, are no row",
        stream.parts[i].name, parts[i].items,
        stream.kind == ir::DataKind::kTokens ? "tokens" : "records", parts[i].training_items));
  }
  const std::vector<int64_t> validation = ValidationSamplesOf(stream, sequence);
  for (size_t i = 0; i < stream.validation_parts.size(); ++i) {
    if (validation[i] > 0) continue;
    return InvalidArgument(fmt::format("validation set '{}' is too short: it has no row",
                                       stream.validation_parts[i].name));
  }
  return OkStatus();
}

}  // namespace

Status CheckEnough(const ir::DataStream& stream, int64_t sequence) {
  if (!stream.actor.empty()) return OkStatus();
  const bool tokens = stream.kind == ir::DataKind::kTokens;
  if (tokens) MW_TRY(CheckWholeTokens(stream));
  MW_TRY(CheckEachPart(stream, sequence));
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
