#include "worker/row_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

// Between two looks at whether the job goes on.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

RowBlocks::RowBlocks(const ir::DataStream& stream, const RowBlocksOptions& options, Ask ask,
                     std::function<bool()> cancelled)
    : stream_(stream),
      options_(options),
      ask_(std::move(ask)),
      cancelled_(std::move(cancelled)),
      format_(stream, options.sequence, options.vocabulary) {
  MW_CHECK(options.batch > 0 && options.block > 0) << options.batch << " by " << options.block;
}

void RowBlocks::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  wanted_.clear();
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
  MW_ASSIGN_OR_RETURN(const size_t field, format_.FieldOf(feed));
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
  return format_.Read(*rows, field, at % options_.block, row);
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
  const Status sound = rows.has_value() ? format_.Check(asked.count, *rows) : rows.error();
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
    MW_CHECK(in_flight_ > 0) << "stream '" << stream_.name << "': an answer that nobody asked for";
    --in_flight_;
    entries_[key].rows = std::move(answer);
  }
  changed_.NotifyAll();
  Pump();
}

}  // namespace meshwright::worker
