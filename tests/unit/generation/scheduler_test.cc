// The scheduler and the engine on a model of pages: what a token sees must be its own text, and
// what a text becomes must not depend on the others.
#include "generation/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/philox.h"
#include "generation/engine.h"

namespace meshwright::generation {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 11;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

// What a layer keeps of a token: it depends on the text's source, if it has one.
uint64_t Kept(std::span<const int32_t> source, int32_t token) {
  uint64_t hash = static_cast<uint64_t>(token) + 1;
  for (const int32_t read : source) hash = Mix(hash, static_cast<uint64_t>(read) + 1);
  return hash;
}

// What the model says behind a text: some logits that depend on all of it.
std::vector<double> LogitsOf(std::span<const uint64_t> text) {
  uint64_t hash = 1;
  for (const uint64_t kept : text) hash = Mix(hash, kept);
  std::vector<double> logits;
  for (int64_t i = 0; i < kVocabulary; ++i) {
    logits.push_back(static_cast<double>(Mix(hash, static_cast<uint64_t>(i)) % 1000) / 100);
  }
  return logits;
}

// Pages that hold tokens: a token is written at its place, then reads its text there. A row has the
// source that was read for it last.
class Memory {
 public:
  explicit Memory(const BatchLimits& limits)
      : limits_(limits),
        slots_(static_cast<size_t>(limits.pages * limits.page_tokens)),
        sources_(static_cast<size_t>(limits.texts)) {}

  // Checks the batch, too.
  Result<std::vector<std::vector<double>>> Run(const Batch& batch) {
    EXPECT_LE(static_cast<int64_t>(batch.tokens.size()), limits_.tokens);
    EXPECT_FALSE(batch.tokens.empty());
    if (batch.source) sources_[static_cast<size_t>(batch.source->row)] = batch.source->tokens;
    std::set<std::pair<int32_t, int32_t>> places;
    std::set<int64_t> written;
    for (const BatchToken& token : batch.tokens) {
      EXPECT_TRUE(token.row >= 0 && token.row < limits_.texts);
      EXPECT_TRUE(places.emplace(token.row, token.position).second);
      EXPECT_TRUE(written.insert(SlotOf(batch, token.row, token.position)).second)
          << "two texts share a page";
      const std::vector<int32_t>& source = sources_[static_cast<size_t>(token.row)];
      slots_[static_cast<size_t>(SlotOf(batch, token.row, token.position))] =
          Kept(source, token.token);
      if (limits_.source_positions == 0) continue;
      EXPECT_EQ(batch.source_ends.at(static_cast<size_t>(token.row)) + 1,
                static_cast<int32_t>(source.size()));
    }
    std::vector<std::vector<double>> logits;
    for (const WantedToken& wanted : batch.wanted) {
      const BatchToken& last = batch.tokens[static_cast<size_t>(wanted.place)];
      std::vector<uint64_t> text;
      for (int32_t i = 0; i <= last.position; ++i) {
        text.push_back(slots_[static_cast<size_t>(SlotOf(batch, last.row, i))]);
      }
      logits.push_back(LogitsOf(text));
    }
    return logits;
  }

 private:
  int64_t SlotOf(const Batch& batch, int32_t row, int32_t position) const {
    const int64_t page = batch.table[static_cast<size_t>(row * limits_.text_pages() +
                                                         position / limits_.page_tokens)];
    EXPECT_LT(page, limits_.pages);
    return page * limits_.page_tokens + position % limits_.page_tokens;
  }

  const BatchLimits limits_;
  std::vector<uint64_t> slots_;
  std::vector<std::vector<int32_t>> sources_;  // by row
};

// Numbers from `low` to `high`.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t In(int64_t low, int64_t high) {
    const auto span = static_cast<uint64_t>(high - low + 1);
    return low + static_cast<int64_t>(PhiloxBits(seed_, 77, next_++, 0) % span);
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

Request RequestOf(Draws& draws, uint64_t number, int64_t longest) {
  Request request;
  // Texts that begin alike, as far as one of them goes.
  const int64_t length = draws.In(1, longest);
  const int64_t alike = draws.In(0, length);
  const int64_t kind = draws.In(0, 1);
  for (int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<int32_t>(i < alike ? (3 * i + kind) % kVocabulary
                                                            : draws.In(0, kVocabulary - 1)));
  }
  request.max_new_tokens = draws.In(1, longest);
  request.sampling.draws = draws.In(0, 1) == 1;
  request.sampling.temperature = 1.5;
  if (draws.In(0, 3) == 0) request.stops = {3};
  request.seed = 5;
  request.number = number;
  return request;
}

struct Ended {
  std::vector<int32_t> tokens;
  std::optional<Finish> finish;
  friend bool operator==(const Ended&, const Ended&) = default;
};

Ended Alone(const Request& request, int64_t positions) {
  Ended ended;
  const auto written = WriteText(
      request, positions,
      [&](std::span<const int32_t> text) -> Result<std::vector<double>> {
        std::vector<uint64_t> kept;
        for (const int32_t token : text) kept.push_back(Kept(request.source, token));
        return LogitsOf(kept);
      },
      [&](int32_t) { return true; });
  EXPECT_TRUE(written) << written.error();
  if (!written) return ended;
  ended.tokens = written->tokens;
  ended.finish = written->finish;
  if (written->finish == Finish::kStop) ended.tokens.pop_back();
  return ended;
}

BatchLimits LimitsOf(Draws& draws) {
  BatchLimits limits;
  limits.page_tokens = draws.In(1, 5);
  limits.texts = draws.In(1, 6);
  limits.tokens = limits.texts + draws.In(0, 12);
  limits.positions = draws.In(4, 30);
  // At least one text as long as can be, and seldom room for all.
  limits.pages = limits.text_pages() + draws.In(0, 2 * limits.text_pages());
  limits.spare_pages = draws.In(0, 2);
  return limits;
}

struct Counts {
  int64_t preemptions = 0;
  int64_t found_tokens = 0;
};

// Texts come at random, some are cancelled; the others get what they get alone.
void RunSchedule(uint64_t seed, Counts& counts, int64_t longest_source = 0) {
  Draws draws(seed);
  BatchLimits limits = LimitsOf(draws);
  limits.source_positions = longest_source;
  Memory memory(limits);
  Engine engine(limits, [&](const Batch& batch) { return memory.Run(batch); });
  std::map<int64_t, Request> requests;
  std::map<int64_t, Ended> ended;
  std::set<int64_t> cancelled;
  int64_t to_come = draws.In(1, 12);
  for (int64_t step = 0; to_come > 0 || !engine.idle(); ++step) {
    EXPECT_LT(step, 5000) << "no end in sight";
    if (step >= 5000) break;
    while (to_come > 0 && (engine.idle() || draws.In(0, 2) == 0)) {
      --to_come;
      Request request = RequestOf(draws, static_cast<uint64_t>(to_come), limits.positions);
      const int64_t source = longest_source > 0 ? draws.In(1, longest_source) : 0;
      for (int64_t i = 0; i < source; ++i) {
        request.source.push_back(static_cast<int32_t>(draws.In(0, 2)));
      }
      const auto id_to_be = static_cast<int64_t>(requests.size());
      const auto id =
          engine.Add(request, {[&, id_to_be](int32_t token) {
                                 ended[id_to_be].tokens.push_back(token);
                                 return true;
                               },
                               {},
                               [&, id_to_be](Finish finish) { ended[id_to_be].finish = finish; }});
      EXPECT_TRUE(id) << id.error();
      EXPECT_EQ(*id, id_to_be);
      requests[id_to_be] = std::move(request);
    }
    if (draws.In(0, 40) == 0) {
      const int64_t id = draws.In(0, static_cast<int64_t>(requests.size()) - 1);
      if (!ended[id].finish) cancelled.insert(id);
      engine.Cancel(id);
    }
    if (engine.idle()) continue;
    const Status stepped = engine.Step();
    EXPECT_TRUE(stepped.ok()) << stepped;
  }
  EXPECT_EQ(engine.scheduler().free_pages(), limits.pages);
  for (const auto& [id, request] : requests) {
    if (cancelled.contains(id)) continue;
    EXPECT_EQ(ended[id], Alone(request, limits.positions)) << id;
  }
  counts.preemptions += engine.scheduler().preemptions();
  counts.found_tokens += engine.scheduler().found_tokens();
}

TEST(Engine, GivesEveryTextWhatItGetsAloneInAThousandSchedules) {
  Counts counts;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    RunSchedule(seed, counts);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(counts.preemptions, 200);  // it did come to that
  EXPECT_GT(counts.found_tokens, 5000);
}

// Texts that begin alike behind other sources share no page; one that comes back finds its own.
TEST(Engine, GivesEveryTextWhatItsOwnSourceSays) {
  Counts counts;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RunSchedule(seed, counts, 4);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(counts.preemptions, 50);
  EXPECT_GT(counts.found_tokens, 50);
}

TEST(Scheduler, RefusesSourcesByTheirLength) {
  BatchLimits limits{.pages = 20, .page_tokens = 4, .texts = 3, .positions = 40, .tokens = 8};
  Scheduler without(limits);
  EXPECT_THAT(without.Add(1, {5}, 9, {1}).ToString(), HasSubstr("no encoder"));
  limits.source_positions = 3;
  Scheduler with(limits);
  EXPECT_THAT(with.Add(1, {5}, 9).ToString(), HasSubstr("has no source"));
  EXPECT_THAT(with.Add(1, {5}, 9, {1, 2, 3, 4}).ToString(),
              HasSubstr("the source has 4 tokens, and there is room for 3"));
  ASSERT_TRUE(with.Add(1, {5}, 9, {1, 2, 3}).ok());
  ASSERT_TRUE(with.Add(2, {6}, 9, {4}).ok());
  // One text joins in a step.
  const Batch first = with.Next();
  ASSERT_TRUE(first.source);
  EXPECT_EQ(first.source->tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(first.wanted.size(), 1u);
  with.Took(1, 7);
  const Batch second = with.Next();
  EXPECT_EQ(second.source->tokens, (std::vector<int32_t>{4}));
  EXPECT_EQ(second.wanted.size(), 2u);
  EXPECT_EQ(second.source_ends[static_cast<size_t>(second.source->row)], 0);
}

TEST(Scheduler, APromptComesInPiecesAndHoldsNobodyUp) {
  Scheduler scheduler({.pages = 20, .page_tokens = 4, .texts = 3, .positions = 40, .tokens = 8});
  ASSERT_TRUE(scheduler.Add(1, {5, 6}, 10).ok());
  Batch batch = scheduler.Next();
  EXPECT_EQ(batch.tokens, (std::vector<BatchToken>{{5, 0, 0}, {6, 0, 1}}));
  EXPECT_EQ(batch.wanted, (std::vector<WantedToken>{{1, 1}}));
  scheduler.Took(1, 7);
  ASSERT_TRUE(scheduler.Add(2, std::vector<int32_t>(16, 9), 20).ok());
  for (int32_t piece = 0; piece < 2; ++piece) {
    batch = scheduler.Next();
    EXPECT_EQ(batch.tokens.size(), 8u);
    EXPECT_EQ(batch.tokens[0], (BatchToken{7, 0, 2 + piece}));
    EXPECT_EQ(batch.tokens[1], (BatchToken{9, 1, 7 * piece}));
    EXPECT_EQ(batch.wanted, (std::vector<WantedToken>{{1, 0}}));
    scheduler.Took(1, 7);
  }
  batch = scheduler.Next();
  EXPECT_EQ(batch.tokens.size(), 3u);
  EXPECT_EQ(batch.wanted, (std::vector<WantedToken>{{1, 0}, {2, 2}}));
}

TEST(Scheduler, TheLastToArriveGivesItsPagesAndComesBackFirst) {
  Scheduler scheduler({.pages = 4, .page_tokens = 2, .texts = 3, .positions = 8, .tokens = 8});
  ASSERT_TRUE(scheduler.Add(1, {1, 2, 3, 4}, 8).ok());
  ASSERT_TRUE(scheduler.Add(2, {6, 7, 8, 9}, 8).ok());
  ASSERT_TRUE(scheduler.Add(3, {1}, 8).ok());
  EXPECT_EQ(scheduler.Next().wanted.size(), 2u);
  scheduler.Took(1, 5);
  scheduler.Took(2, 5);
  const Batch batch = scheduler.Next();  // the fifth token of 1 needs a page
  EXPECT_EQ(batch.tokens, (std::vector<BatchToken>{{5, 0, 4}}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(scheduler.waiting(), 2);
  scheduler.Remove(1);
  EXPECT_EQ(scheduler.Next().wanted[0].id, 2);
}

TEST(Scheduler, AKnownBeginningIsNotComputedAgain) {
  Scheduler scheduler({.pages = 8, .page_tokens = 2, .texts = 2, .positions = 8, .tokens = 8});
  ASSERT_TRUE(scheduler.Add(1, {1, 2, 3, 4, 5}, 6).ok());
  ASSERT_TRUE(scheduler.Add(2, {1, 2, 3, 4}, 6).ok());
  const Batch both = scheduler.Next();  // 2 begins in the same step as 1, and must compute a token
  EXPECT_EQ(both.tokens.size(), 7u);
  EXPECT_EQ(both.tokens[5], (BatchToken{3, 1, 2}));
  EXPECT_EQ(both.table[0], both.table[4]);  // its first page is that of 1
  scheduler.Remove(1);
  scheduler.Remove(2);
  EXPECT_EQ(scheduler.free_pages(), 8);
  ASSERT_TRUE(scheduler.Add(3, {1, 2, 3, 4, 5}, 6).ok());
  EXPECT_EQ(scheduler.Next().tokens, (std::vector<BatchToken>{{5, 1, 4}}));
  EXPECT_EQ(scheduler.found_tokens(), 2 + 4);
  scheduler.Remove(3);
  // Pages that are taken for something else are forgotten.
  for (int64_t id = 4; id < 9; ++id) {
    const auto first = static_cast<int32_t>(id);
    ASSERT_TRUE(scheduler.Add(id, {first, first, first, first, first, first}, 6).ok());
    (void)scheduler.Next();
    scheduler.Remove(id);
  }
  ASSERT_TRUE(scheduler.Add(9, {1, 2, 3, 4, 5}, 6).ok());
  EXPECT_EQ(scheduler.Next().tokens.size(), 5u);
}

TEST(Scheduler, RefusesWhatCouldNeverBeComputed) {
  Scheduler scheduler({.pages = 2, .page_tokens = 4, .texts = 1, .positions = 40, .tokens = 8});
  EXPECT_THAT(scheduler.Add(1, {}, 4).ToString(), HasSubstr("no token"));
  EXPECT_THAT(scheduler.Add(1, {1}, 41).ToString(), HasSubstr("at most 40 positions"));
  EXPECT_THAT(scheduler.Add(1, {1}, 9).ToString(), HasSubstr("needs 3 pages of 4 tokens"));
  EXPECT_TRUE(scheduler.Add(1, {1}, 8).ok());
  EXPECT_THAT(scheduler.Add(1, {1}, 8).ToString(), HasSubstr("text 1 is known"));
}

TEST(Engine, AListenerMayHaveEnoughAndMayAdd) {
  const BatchLimits limits{.pages = 8, .page_tokens = 4, .texts = 2, .positions = 16, .tokens = 4};
  Memory memory(limits);
  Engine engine(limits, [&](const Batch& batch) { return memory.Run(batch); });
  Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 9;
  int tokens = 0;
  int ends = 0;
  const auto added =
      engine.Add(request, {[&](int32_t) { return ++tokens < 3; }, {}, [&](Finish) { ++ends; }});
  ASSERT_TRUE(added) << added.error();
  Request second = request;
  second.max_new_tokens = 1;
  bool followed = false;
  const auto chained =
      engine.Add(second, {[](int32_t) { return true; },
                          {},
                          [&](Finish finish) {
                            EXPECT_EQ(finish, Finish::kLength);
                            if (followed) return;
                            followed = true;
                            ASSERT_TRUE(engine.Add(second, {[](int32_t) { return true; }, {}, {}}));
                          }});
  ASSERT_TRUE(chained) << chained.error();
  while (!engine.idle()) ASSERT_TRUE(engine.Step().ok());
  EXPECT_EQ(tokens, 3);
  EXPECT_EQ(ends, 0);
  EXPECT_TRUE(followed);
}

}  // namespace
}  // namespace meshwright::generation
