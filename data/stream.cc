#include "data/stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/convert.h"
#include "data/mixture.h"
#include "data/order.h"

namespace meshwright::data {

Result<std::unique_ptr<Stream>> Stream::Open(const ir::DataStream& stream,
                                             const StreamOptions& options, Opener opener) {
  MW_TRY(CheckEnough(stream, options.sequence));
  MW_ASSIGN_OR_RETURN(auto files, FileSet::Open(stream.files, std::move(opener)));
  return std::unique_ptr<Stream>(new Stream(stream, options, std::move(files)));
}

Stream::Stream(const ir::DataStream& stream, const StreamOptions& options,
               std::unique_ptr<FileSet> files)
    : name_(stream.name),
      files_text_(FilesText(stream)),
      kind_(stream.kind),
      options_(options),
      counts_(CountsOf(stream, options.sequence)),
      files_(std::move(files)),
      own_validation_(!stream.fields[0].validation.empty()) {
  SetParts(stream);
  for (const ir::DataField& field : stream.fields) {
    training_.emplace_back(*files_, field, field.slices);
    if (own_validation_) validation_.emplace_back(*files_, field, field.validation);
  }
}

const FieldReader* Stream::Find(const ir::FeedName& feed) const {
  const auto& readers = feed.validation && own_validation_ ? validation_ : training_;
  if (feed.field.empty() && readers.size() == 1) return &readers[0];
  const auto at = std::find_if(readers.begin(), readers.end(), [&](const FieldReader& reader) {
    return reader.field().name == feed.field;
  });
  return at == readers.end() ? nullptr : &*at;
}

void Stream::SetParts(const ir::DataStream& stream) {
  int64_t begin = 0;
  takes_turns_ = TakesTurns(stream.parts);
  for (const StreamCounts& counts : CountsOfParts(stream, options_.sequence)) {
    const size_t i = parts_.size();
    // The seed of the first part is the job's: a mixture of one is what it is alone.
    const uint64_t seed =
        i == 0 ? options_.seed : EpochBits(options_.seed, static_cast<int64_t>(i), "data/part");
    parts_.push_back({begin, counts, seed});
    const int64_t weight = stream.parts.empty() || takes_turns_ ? 1 : stream.parts[i].weight;
    weights_.push_back(takes_turns_ ? counts.training_samples : weight);
    if (counts.validation_samples > 0 && (i == 0 || !takes_turns_)) {
      with_tail_.push_back(i);
      tail_weights_.push_back(weight);
    }
    begin += counts.items;
  }
  if (!own_validation_) return;
  begin = 0;
  turn_samples_ = ValidationSamplesOf(stream, options_.sequence);
  for (size_t i = 0; i < turn_samples_.size(); ++i) {
    const bool parts = !stream.validation_parts.empty();
    turns_.push_back(parts ? stream.validation_parts[i].weight : 1);
    turn_begins_.push_back(begin);
    if (parts) begin += stream.validation_parts[i].items;
  }
}

int64_t Stream::TrainingItem(int64_t sample) const {
  const MixedSample of =
      takes_turns_ ? SampleOfTurns(weights_, sample) : SampleOfMixture(weights_, sample);
  return ItemOfPart(parts_[of.part], of.sample);
}

int64_t Stream::ItemOfPart(const Part& part, int64_t sample) const {
  MW_CHECK(part.counts.training_samples > 0) << "stream '" << name_ << "' has nothing to train on";
  const int64_t samples = part.counts.training_samples;
  const int64_t epoch = sample / samples;
  const bool tokens = kind_ == ir::DataKind::kTokens;
  const uint64_t key = EpochBits(part.seed, epoch, tokens ? "data/window" : "data/record");
  const int64_t index = PermutedIndex(sample % samples, samples, key);
  if (!tokens) return part.begin + index;
  const int64_t spare = part.counts.training_items - 1 - samples * options_.sequence;
  MW_CHECK(spare >= 0) << samples << " windows of " << options_.sequence << " in "
                       << part.counts.training_items << " tokens";
  const uint64_t shift =
      EpochBits(part.seed, epoch, "data/shift") % (static_cast<uint64_t>(spare) + 1);
  return part.begin + index * options_.sequence + static_cast<int64_t>(shift);
}

// REQUIRES something to validate with.
int64_t Stream::ValidationItem(int64_t sample) const {
  const int64_t step = kind_ == ir::DataKind::kTokens ? options_.sequence : 1;
  if (own_validation_) {
    const MixedSample of = SampleOfTurns(turns_, sample);
    return turn_begins_[of.part] + of.sample % turn_samples_[of.part] * step;
  }
  const MixedSample of = SampleOfMixture(tail_weights_, sample);
  const Part& part = parts_[with_tail_[of.part]];
  return part.begin + part.counts.training_items +
         of.sample % part.counts.validation_samples * step;
}

Result<int64_t> Stream::FirstItem(const ir::FeedName& feed, int64_t sample) const {
  if (sample < 0)
    return Fail(InvalidArgument(fmt::format("stream '{}': sample {}", name_, sample)));
  if (!feed.validation) return TrainingItem(sample);
  if (counts_.validation_samples == 0) {
    const bool tokens = kind_ == ir::DataKind::kTokens;
    return Fail(FailedPrecondition(fmt::format(
        "stream '{}' ({}): {} {} to validate with, but a row needs {}; raise validation_fraction",
        name_, files_text_, counts_.validation_items, tokens ? "tokens" : "records",
        tokens ? options_.sequence + 1 : 1)));
  }
  return ValidationItem(sample);
}

Status Stream::CheckRow(const ir::DataField& field, const RowBuffer& row) const {
  const bool tokens = kind_ == ir::DataKind::kTokens;
  const int64_t elements =
      tokens ? options_.sequence + 1 : field.item_bytes() / ir::ElementBytes(field.element);
  const auto wanted = static_cast<size_t>(elements * ir::DTypeBytes(row.dtype));
  const bool readable =
      tokens ? row.dtype == ir::DType::kI32 : ir::ReadableAs(field.element, row.dtype);
  if (readable && row.bytes.size() == wanted) return OkStatus();
  return InvalidArgument(fmt::format(
      "feed '{}/{}': a row of {} bytes of {}; a sample is {} elements of {}", name_, field.name,
      row.bytes.size(), ir::DTypeName(row.dtype), elements, ir::ElementName(field.element)));
}

Status Stream::CheckTokens(const FieldReader& reader, int64_t first, const RowBuffer& row) const {
  const auto count = static_cast<int64_t>(row.bytes.size() / sizeof(int32_t));
  const int64_t limit =
      options_.vocabulary > 0 ? options_.vocabulary : std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < count; ++i) {
    int32_t token = 0;
    std::memcpy(&token, row.bytes.data() + i * static_cast<int64_t>(sizeof token), sizeof token);
    if (token >= 0 && token < limit) continue;
    return InvalidArgument(
        fmt::format("token {} at {} is outside the vocabulary of {}: tokenizer and model are "
                    "not of one another, or the vocab_size of the model is too small",
                    token, reader.Place(first + i, "position"), limit));
  }
  return OkStatus();
}

Status Stream::Read(const ir::FeedName& feed, int64_t sample, const RowBuffer& row) {
  const FieldReader* reader = Find(feed);
  if (reader == nullptr) {
    std::vector<std::string> known;
    for (const FieldReader& each : training_) known.push_back(each.field().name);
    return InvalidArgument(fmt::format("stream '{}' has no field '{}'; known: {}", name_,
                                       feed.field, fmt::join(known, ", ")));
  }
  MW_TRY(CheckRow(reader->field(), row));
  MW_ASSIGN_OR_RETURN(const int64_t first, FirstItem(feed, sample));
  const ir::Element element = reader->field().element;
  const bool tokens = kind_ == ir::DataKind::kTokens;
  std::byte* to = row.bytes.data();
  MW_TRY(reader->Visit(
      first, tokens ? options_.sequence + 1 : 1,
      [&](std::span<const std::byte> bytes, int64_t begin) -> Status {
        const int64_t misfit = ConvertElements(element, bytes, row.dtype, to);
        to += static_cast<int64_t>(bytes.size()) / ir::ElementBytes(element) *
              ir::DTypeBytes(row.dtype);
        if (misfit < 0) return OkStatus();
        return InvalidArgument(fmt::format(
            "a value of {} does not fit {}: {}", ir::ElementName(element), ir::DTypeName(row.dtype),
            tokens ? reader->Place(begin + misfit, "position") : reader->Place(begin, "record")));
      }));
  return tokens ? CheckTokens(*reader, first, row) : OkStatus();
}

}  // namespace meshwright::data
