#include "generation/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::generation {

Engine::Engine(const BatchLimits& limits, StepLogits steps)
    : limits_(limits), steps_(std::move(steps)), scheduler_(limits) {}

Result<int64_t> Engine::Add(Request request, Listener listener) {
  MW_TRY(CheckSampling(request.sampling));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt > limits_.positions) {
    return Fail(InvalidArgument(
        fmt::format("the prompt has {} tokens, and the model has {} positions: shorten the prompt",
                    prompt, limits_.positions)));
  }
  const int64_t id = next_id_++;
  // The last token of a text is never computed.
  const int64_t longest = prompt + LongestOf(request, limits_.positions) - 1;
  MW_TRY(scheduler_.Add(id, request.prompt, longest, request.source));
  Text& text = texts_[id];
  text.tokens = request.prompt;
  text.rules = RulesOf(request, limits_.positions);
  text.request = std::move(request);
  text.listener = std::move(listener);
  return id;
}

void Engine::Cancel(int64_t id) {
  scheduler_.Remove(id);
  texts_.erase(id);
}

Status Engine::Step() {
  Batch batch = scheduler_.Next();
  MW_CHECK(!batch.tokens.empty()) << scheduler_.waiting() << " texts wait for nothing";
  batch.likeliest = WantsLikeliest(batch);
  MW_ASSIGN_OR_RETURN(const StepAnswer answer, steps_(batch));
  const size_t rows = std::visit([](const auto& of) { return of.size(); }, answer);
  MW_CHECK(rows == batch.wanted.size())
      << rows << " answers for " << batch.wanted.size() << " texts";
  for (size_t i = 0; i < batch.wanted.size(); ++i) {
    MW_TRY(Take(batch.wanted[i].id, answer, i));
  }
  return OkStatus();
}

bool Engine::WantsLikeliest(const Batch& batch) const {
  return std::all_of(batch.wanted.begin(), batch.wanted.end(), [&](const auto& wanted) {
    const Text& text = texts_.at(wanted.id);
    return IsLikeliest(text.request.sampling) &&
           !text.rules.ActAt(static_cast<int64_t>(text.tokens.size()));
  });
}

Status Engine::Take(int64_t id, const StepAnswer& answer, size_t row) {
  const auto it = texts_.find(id);
  if (it == texts_.end()) return OkStatus();  // cancelled by a listener of this step
  Text& text = it->second;
  const Request& request = text.request;
  const auto* likeliest = std::get_if<std::vector<int32_t>>(&answer);
  int32_t token = kNoToken;
  if (likeliest != nullptr) {
    token = likeliest->at(row);
  } else {
    MW_ASSIGN_OR_RETURN(token,
                        NextToken(std::get<0>(answer)[row], text.tokens, request.sampling,
                                  {request.seed, request.number, text.tokens.size()}, text.rules));
  }
  if (token == kNoToken) {
    End(id, Finish::kBarred);
    return OkStatus();
  }
  Go(id, text, token);
  return OkStatus();
}

void Engine::Go(int64_t id, Text& text, int32_t token) {
  const Request& request = text.request;
  text.tokens.push_back(token);
  if (request.stops.contains(token)) {
    const auto on_stop = text.listener.on_stop;
    if (on_stop) on_stop(token);
    return End(id, Finish::kStop);
  }
  if (!text.listener.on_token(token)) return Cancel(id);
  if (!texts_.contains(id)) return;
  const auto length = static_cast<int64_t>(text.tokens.size());
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (length - prompt >= request.max_new_tokens) return End(id, Finish::kLength);
  if (length > limits_.positions) return End(id, Finish::kFull);
  scheduler_.Took(id, token);
}

void Engine::End(int64_t id, Finish finish) {
  const Listener listener = std::move(texts_.at(id).listener);
  Cancel(id);
  if (listener.on_end) listener.on_end(finish);
}

}  // namespace meshwright::generation
