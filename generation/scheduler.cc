#include "generation/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/result.h"

namespace meshwright::generation {
namespace {

// The pages of a text, and the end of its source.
void FillRow(const ScheduledText& text, const BatchLimits& limits, Batch& batch) {
  MW_CHECK(text.row >= 0) << "a text without a row runs";
  std::copy(text.pages.numbers.begin(), text.pages.numbers.end(),
            batch.table.begin() + text.row * limits.text_pages());
  if (text.source.empty()) return;
  batch.source_ends[static_cast<size_t>(text.row)] = static_cast<int32_t>(text.source.size()) - 1;
}

}  // namespace

Status BatchLimits::CheckFits(int64_t tokens_of_text) const {
  if (tokens_of_text > positions) {
    return ResourceExhausted(
        fmt::format("a text of up to {} tokens: a text has at most {} positions; shorten the "
                    "prompt, or ask for fewer tokens",
                    tokens_of_text, positions));
  }
  if (PagesOf(tokens_of_text) <= pages) return OkStatus();
  return ResourceExhausted(
      fmt::format("a text of up to {} tokens needs {} pages of {} tokens; there are {}",
                  tokens_of_text, PagesOf(tokens_of_text), page_tokens, pages));
}

Status BatchLimits::CheckSource(int64_t tokens_of_source) const {
  if (source_positions == 0 && tokens_of_source > 0) {
    return InvalidArgument("the text has a source, and the model has no encoder to read it");
  }
  if (source_positions > 0 && tokens_of_source == 0) {
    return InvalidArgument("the text has no source, which the model's encoder is to read");
  }
  if (tokens_of_source <= source_positions) return OkStatus();
  return InvalidArgument(
      fmt::format("the source has {} tokens, and there is room for {}: shorten it",
                  tokens_of_source, source_positions));
}

Scheduler::Scheduler(const BatchLimits& limits)
    : limits_(limits), pool_(limits.pages, limits.page_tokens) {
  MW_CHECK(limits.pages >= 1 && limits.page_tokens >= 1 && limits.texts >= 1 &&
           limits.positions >= 1 && limits.tokens >= limits.texts)
      << limits.tokens << " tokens of " << limits.texts << " texts";
  // The lowest are taken first.
  for (auto row = static_cast<int32_t>(limits.texts); row-- > 0;) free_rows_.push_back(row);
}

Status Scheduler::Add(int64_t id, std::vector<int32_t> text, int64_t longest,
                      std::vector<int32_t> source) {
  if (text.empty()) {
    return InvalidArgument("the prompt has no token: give a text to go on from");
  }
  if (texts_.contains(id)) return InvalidArgument(fmt::format("text {} is known", id));
  MW_TRY(limits_.CheckSource(static_cast<int64_t>(source.size())));
  longest = std::max(longest, static_cast<int64_t>(text.size()));
  MW_TRY(limits_.CheckFits(longest));
  Text& added = texts_[id];
  added.tokens = std::move(text);
  added.source = std::move(source);
  waiting_.push_back(id);
  return OkStatus();
}

void Scheduler::Remove(int64_t id) {
  const auto it = texts_.find(id);
  if (it == texts_.end()) return;
  FreePages(it->second);
  std::erase(waiting_, id);
  std::erase(running_, id);
  texts_.erase(it);
}

void Scheduler::Took(int64_t id, int32_t token) {
  Text& text = Of(id);
  MW_CHECK(text.row >= 0 && text.left() == 0) << "text " << id << " was not wanted";
  text.tokens.push_back(token);
}

Batch Scheduler::Next() {
  Batch batch;
  int64_t budget = limits_.tokens;
  // One token is kept for each text that has one left, whoever came before it.
  int64_t single = 0;
  for (const int64_t id : running_) {
    MW_CHECK(Of(id).left() > 0) << "text " << id << " was wanted, and nothing was said of it";
    if (Of(id).left() == 1) ++single;
  }
  const std::vector<int64_t> by_arrival = running_;
  for (const int64_t id : by_arrival) {
    const Text& text = Of(id);
    if (text.row < 0) continue;  // preempted on the way
    const bool is_single = text.left() == 1;
    const int64_t count = is_single ? 1 : std::min(text.left(), budget - single);
    if (is_single) --single;
    if (count <= 0 || !TakePages(id, text.computed + count)) continue;
    budget -= count;
    Schedule(id, count, batch);
  }
  while (budget > 0 && !batch.source && Admit(batch)) {
    const int64_t id = running_.back();
    const int64_t count = std::min(Of(id).left(), budget);
    MW_CHECK(TakePages(id, Of(id).computed + count)) << "text " << id << " came without room";
    budget -= count;
    Schedule(id, count, batch);
  }
  FillTable(batch);
  return batch;
}

Scheduler::Text& Scheduler::Of(int64_t id) {
  const auto it = texts_.find(id);
  MW_CHECK(it != texts_.end()) << "text " << id << " is unknown";
  return it->second;
}

bool Scheduler::TakePages(int64_t id, int64_t tokens) {
  Text& text = Of(id);
  const auto wanted = static_cast<size_t>(limits_.PagesOf(tokens));
  while (text.pages.numbers.size() < wanted) {
    if (pool_.free() == 0) {
      const int64_t last = running_.back();
      Preempt(last);
      if (last == id) return false;
      continue;
    }
    text.pages.numbers.push_back(pool_.Take());
  }
  return true;
}

void Scheduler::FreePages(Text& text) {
  pool_.Release(text.pages.numbers);
  text.pages = {};
  text.computed = 0;
  if (text.row >= 0) free_rows_.push_back(text.row);
  text.row = -1;
}

void Scheduler::Preempt(int64_t id) {
  FreePages(Of(id));
  std::erase(running_, id);
  waiting_.push_front(id);
  ++preemptions_;
}

// The text that waits longest becomes the last of those that run.
bool Scheduler::Admit(Batch& batch) {
  if (waiting_.empty() || free_rows_.empty()) return false;
  Text& text = Of(waiting_.front());
  const auto length = static_cast<int64_t>(text.tokens.size());
  const PageName before = text.source.empty() ? kNoPage : OwnBeginning(waiting_.front());
  const PagePool::Beginning known =
      pool_.Find(text.tokens, (length - 1) / limits_.page_tokens, before);
  const auto found = static_cast<int64_t>(known.pages.numbers.size());
  // Whoever is alone needs no room to spare.
  const int64_t spare = running_.empty() ? 0 : limits_.spare_pages;
  const int64_t needed = limits_.PagesOf(length) - found + known.free;
  if (needed + spare + PromisedPages() > free_pages()) return false;
  pool_.Hold(known.pages.numbers);
  text.pages = known.pages;
  text.computed = found * limits_.page_tokens;
  found_tokens_ += text.computed;
  text.row = free_rows_.back();
  free_rows_.pop_back();
  if (!text.source.empty()) batch.source = {text.row, text.source};
  running_.push_back(waiting_.front());
  waiting_.pop_front();
  return true;
}

void Scheduler::Schedule(int64_t id, int64_t count, Batch& batch) {
  Text& text = Of(id);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = text.computed + i;
    batch.tokens.push_back(
        {text.tokens[static_cast<size_t>(position)], text.row, static_cast<int32_t>(position)});
  }
  text.computed += count;
  // The step writes all its tokens before any of them reads, so what it fills may be found at once.
  pool_.NameFull(text.tokens, text.computed, text.pages);
  if (text.left() == 0) {
    batch.wanted.push_back({id, static_cast<int64_t>(batch.tokens.size()) - 1});
  }
}

// What texts that run will need for the tokens that they have.
int64_t Scheduler::PromisedPages() const {
  int64_t pages = 0;
  for (const int64_t id : running_) {
    const Text& text = texts_.at(id);
    pages += limits_.PagesOf(static_cast<int64_t>(text.tokens.size())) -
             static_cast<int64_t>(text.pages.numbers.size());
  }
  return pages;
}

void Scheduler::FillTable(Batch& batch) const {
  batch.table.resize(static_cast<size_t>(limits_.texts * limits_.text_pages()));
  if (limits_.source_positions > 0) batch.source_ends.resize(static_cast<size_t>(limits_.texts));
  for (const int64_t id : running_) FillRow(texts_.at(id), limits_, batch);
}

}  // namespace meshwright::generation
