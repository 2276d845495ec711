#include "worker/row_blocks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/convert.h"

namespace meshwright::worker {
namespace {

// Between two looks at whether the job goes on.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

RowBlocks::RowBlocks(const ir::DataStream& stream, const RowBlocksOptions& options, Ask ask,
                     std::function<bool()> cancelled)
    : stream_(stream), options_(options), ask_(std::move(ask)), cancelled_(std::move(cancelled)) {
  MW_CHECK(options.batch > 0 && options.block > 0) << options.batch << " by " << options.block;
  const bool tokens = stream.kind == ir::DataKind::kTokens;
  for (const ir::DataField& field : stream.fields) {
    fields_.push_back({field, field.item_bytes() * (tokens ? options.sequence + 1 : 1)});
  }
}

void RowBlocks::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  wanted_.clear();
}

Result<size_t> RowBlocks::FieldOf(const ir::FeedName& feed) const {
  if (feed.field.empty() && fields_.size() == 1) return 0;
  std::vector<std::string> known;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].field.name == feed.field) return i;
    known.push_back(fields_[i].field.name);
  }
  return Fail(InvalidArgument(fmt::format("stream '{}' has no field '{}'; known: {}", stream_.name,
                                          feed.field, fmt::join(known, ", "))));
}

actor::RowsAsked RowBlocks::Asked(const Key& key) const {
  const auto& [validation, step, block] = key;
  actor::RowsAsked asked{options_.seed, step, block * options_.block, 0, validation};
  asked.count = std::min(options_.block, options_.batch - asked.first_row);
  if (validation) {
    const int64_t first = step * options_.batch + asked.first_row;
    asked.count = std::min(asked.count, stream_.actor.validation_rows - first);
  }
  return asked;
}

bool RowBlocks::Exists(const Key& key) const { return Asked(key).count > 0; }

Status RowBlocks::Read(const ir::FeedName& feed, int64_t sample, const data::RowBuffer& row) {
  MW_ASSIGN_OR_RETURN(const size_t index, FieldOf(feed));
  if (sample < 0) {
    return InvalidArgument(fmt::format("stream '{}': sample {}", stream_.name, sample));
  }
  if (feed.validation) {
    if (stream_.actor.validation_rows == 0) {
      return FailedPrecondition(
          fmt::format("stream '{}' of actor '{}' has no rows to validate with; set validation_rows",
                      stream_.name, stream_.actor.type));
    }
    sample %= stream_.actor.validation_rows;
  }
  const int64_t at = sample % options_.batch;
  const Key key{feed.validation, sample / options_.batch, at / options_.block};
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const actor::Rows> rows, Wait(key));
  const Field& field = fields_[index];
  const auto begin = static_cast<size_t>(at % options_.block * field.row_bytes);
  const std::string_view bytes(rows->fields[index]);
  return Convert(field, bytes.substr(begin, static_cast<size_t>(field.row_bytes)), row);
}

RowBlocks::Answer RowBlocks::Wait(const Key& key) {
  bool ask = false;
  bool touched = true;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[key];
    touched = std::exchange(entry.touched, true);
    if (touched && entry.rows) return *entry.rows;
    // Not behind those that nobody waits for yet.
    ask = !std::exchange(entry.asked, true);
    if (ask) {
      std::erase(wanted_, key);
      ++in_flight_;
    }
  }
  if (ask) AskFor(key);
  if (!touched) AskAhead(key);
  MutexLock lock(mutex_);
  while (true) {
    // Others may have let go of it, once it was answered: its step is over for them.
    const auto it = entries_.find(key);
    if (it == entries_.end()) break;
    if (it->second.rows) return *it->second.rows;
    (void)changed_.WaitFor(mutex_, kLook);
    if (cancelled_ && cancelled_()) {
      return Fail(Cancelled(fmt::format("stream '{}': the job has ended", stream_.name)));
    }
  }
  lock.Unlock();
  return Wait(key);
}

void RowBlocks::AskAhead(const Key& key) {
  const bool validation = std::get<0>(key);
  const int64_t step = std::get<1>(key);
  {
    const MutexLock lock(mutex_);
    for (int64_t next = step + 1; next <= step + kAhead; ++next) {
      const Key later{validation, next, std::get<2>(key)};
      if (Exists(later) && entries_.try_emplace(later).second) wanted_.push_back(later);
    }
    // Devices of a pipeline may be a step behind.
    std::erase_if(entries_, [&](const auto& entry) {
      const bool of_validation = std::get<0>(entry.first);
      const int64_t of_step = std::get<1>(entry.first);
      const bool near = of_step >= step - 1 && of_step <= step + kAhead;
      return of_validation == validation && !near && entry.second.rows.has_value();
    });
  }
  Pump();
}

void RowBlocks::Pump() {
  while (true) {
    Key key;
    {
      const MutexLock lock(mutex_);
      if (closed_ || wanted_.empty() || in_flight_ >= kInFlight) return;
      key = wanted_.front();
      wanted_.pop_front();
      entries_[key].asked = true;
      ++in_flight_;
    }
    AskFor(key);
  }
}

void RowBlocks::AskFor(const Key& key) {
  ask_(Asked(key), [this, key](Result<actor::Rows> rows) { OnRows(key, std::move(rows)); });
}

void RowBlocks::OnRows(const Key& key, Result<actor::Rows> rows) {
  const actor::RowsAsked asked = Asked(key);
  const Status sound = rows.has_value() ? CheckRows(asked, *rows) : rows.error();
  Answer answer;
  if (sound.ok()) {
    answer = std::make_shared<const actor::Rows>(std::move(*rows));
  } else {
    answer =
        Fail(sound.WithContext(fmt::format("stream '{}': {}rows {} to {} of step {}", stream_.name,
                                           asked.validation ? "validation " : "", asked.first_row,
                                           asked.first_row + asked.count - 1, asked.step)));
  }
  {
    const MutexLock lock(mutex_);
    --in_flight_;
    entries_[key].rows = std::move(answer);
  }
  changed_.NotifyAll();
  Pump();
}

Status RowBlocks::CheckRows(const actor::RowsAsked& asked, const actor::Rows& rows) const {
  bool fits = rows.fields.size() == fields_.size();
  std::vector<std::string> wanted;
  std::vector<size_t> found;
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto bytes = static_cast<size_t>(fields_[i].row_bytes * asked.count);
    wanted.push_back(fmt::format("{} of '{}'", bytes, fields_[i].field.name));
    fits = fits && rows.fields[i].size() == bytes;
  }
  if (fits) return OkStatus();
  for (const std::string& field : rows.fields) found.push_back(field.size());
  return InvalidArgument(fmt::format("the actor '{}' answered [{}] bytes; {} rows have {}",
                                     stream_.actor.type, fmt::join(found, ", "), asked.count,
                                     fmt::join(wanted, ", ")));
}

Status RowBlocks::Convert(const Field& field, std::string_view bytes,
                          const data::RowBuffer& row) const {
  const bool tokens = stream_.kind == ir::DataKind::kTokens;
  const ir::Element element = field.field.element;
  const int64_t elements = field.row_bytes / ir::ElementBytes(element);
  const bool readable = tokens ? row.dtype == ir::DType::kI32 : ir::ReadableAs(element, row.dtype);
  if (!readable || row.bytes.size() != static_cast<size_t>(elements * ir::DTypeBytes(row.dtype))) {
    return InvalidArgument(
        fmt::format("feed '{}/{}': a row of {} bytes of {}; a sample is {} elements of {}",
                    stream_.name, field.field.name, row.bytes.size(), ir::DTypeName(row.dtype),
                    elements, ir::ElementName(element)));
  }
  const int64_t misfit = data::ConvertElements(
      element, std::as_bytes(std::span(bytes.data(), bytes.size())), row.dtype, row.bytes.data());
  if (misfit >= 0) {
    return InvalidArgument(fmt::format("a value of {} does not fit {}: element {} of a row of '{}'",
                                       ir::ElementName(element), ir::DTypeName(row.dtype), misfit,
                                       field.field.name));
  }
  if (!tokens || options_.vocabulary == 0) return OkStatus();
  for (int64_t i = 0; i < elements; ++i) {
    int32_t token = 0;
    std::memcpy(&token, row.bytes.data() + i * static_cast<int64_t>(sizeof token), sizeof token);
    if (token >= 0 && token < options_.vocabulary) continue;
    return InvalidArgument(fmt::format("token {} of actor '{}' is outside the vocabulary of {}",
                                       token, stream_.actor.type, options_.vocabulary));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
