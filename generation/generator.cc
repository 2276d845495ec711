#include "generation/generator.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"

namespace meshwright::generation {

void TextStream::State::Put(int32_t token) {
  const MutexLock lock(mutex);
  tokens.push_back(token);
  changed.NotifyAll();
}

void TextStream::State::End(Finish why) {
  const MutexLock lock(mutex);
  finish = why;
  changed.NotifyAll();
}

void TextStream::State::Fail(Status why) {
  const MutexLock lock(mutex);
  if (finish) return;
  error = std::move(why);
  changed.NotifyAll();
}

bool TextStream::State::HasReader() const {
  const MutexLock lock(mutex);
  return !left;
}

TextStream::~TextStream() {
  const MutexLock lock(state_->mutex);
  state_->left = true;
}

Result<std::optional<int32_t>> TextStream::Next(int64_t timeout_ms) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (state.tokens.empty() && !state.finish && state.error.ok()) {
    if (!state.changed.WaitUntil(state.mutex, due)) break;
  }
  if (!state.tokens.empty()) {
    const int32_t token = state.tokens.front();
    state.tokens.pop_front();
    return std::optional(token);
  }
  if (!state.error.ok()) return meshwright::Fail(state.error);
  if (!state.finish) return meshwright::Fail(DeadlineExceeded("no token yet"));
  return std::optional<int32_t>();
}

Finish TextStream::finish() const {
  const MutexLock lock(state_->mutex);
  MW_CHECK(state_->finish.has_value()) << "the text has not ended";
  return *state_->finish;
}

Generator::Generator(const BatchLimits& limits, StepLogits steps)
    : engine_(limits, std::move(steps)), loop_("generator") {}

Generator::~Generator() {
  loop_.Post([this] { FailAllOnLoop(Cancelled("the generator is gone")); });
  loop_.Stop();
}

std::unique_ptr<TextStream> Generator::Generate(Request request) {
  auto state = std::make_shared<TextStream::State>();
  const bool posted = loop_.Post([this, request = std::move(request), state]() mutable {
    AddOnLoop(std::move(request), state);
  });
  MW_CHECK(posted) << "the generator is being destroyed";
  return std::unique_ptr<TextStream>(new TextStream(std::move(state)));
}

void Generator::AddOnLoop(Request request, const std::shared_ptr<TextStream::State>& state) {
  if (!broken_.ok()) return state->Fail(broken_);
  if (engine_.scheduler().waiting() >= kMostWaiting) {
    return state->Fail(
        ResourceExhausted(fmt::format("{} requests wait already; try again later", kMostWaiting)));
  }
  const auto id = engine_.Add(std::move(request), {[state](int32_t token) {
                                                     state->Put(token);
                                                     return true;
                                                   },
                                                   {},
                                                   [state](Finish finish) { state->End(finish); }});
  if (!id) return state->Fail(id.error());
  states_[*id] = state;
  if (is_stepping_) return;
  is_stepping_ = true;
  loop_.Post([this] { StepOnLoop(); });
}

// Requests that came meanwhile were posted before the next step.
void Generator::StepOnLoop() {
  is_stepping_ = false;
  for (auto it = states_.begin(); it != states_.end();) {
    if (it->second->HasReader()) {
      ++it;
      continue;
    }
    engine_.Cancel(it->first);
    it = states_.erase(it);
  }
  if (engine_.idle()) return states_.clear();
  if (const Status stepped = engine_.Step(); !stepped.ok()) return FailAllOnLoop(stepped);
  is_stepping_ = loop_.Post([this] { StepOnLoop(); });
}

void Generator::FailAllOnLoop(const Status& why) {
  broken_ = why;
  for (const auto& [id, state] : states_) {
    engine_.Cancel(id);
    state->Fail(why);
  }
  states_.clear();
}

}  // namespace meshwright::generation
