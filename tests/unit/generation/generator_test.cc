// Streams of a generator: as the texts that are written alone, ended by their readers or by errors.
#include "generation/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace meshwright::generation {
namespace {

using ::testing::HasSubstr;

constexpr BatchLimits kLimits{
    .pages = 12, .page_tokens = 4, .texts = 3, .positions = 24, .tokens = 6, .spare_pages = 1};

// The token behind `last` is the one after it, of eight.
std::vector<double> After(int32_t last) {
  std::vector<double> logits(8, 0.0);
  logits[static_cast<size_t>((last + 1) % 8)] = 1;
  return logits;
}

Result<std::vector<std::vector<double>>> Next(const Batch& batch) {
  std::vector<std::vector<double>> logits;
  for (const WantedToken& wanted : batch.wanted) {
    logits.push_back(After(batch.tokens[static_cast<size_t>(wanted.place)].token));
  }
  return logits;
}

Request RequestFrom(int32_t first, int64_t count) {
  Request request;
  request.prompt = {7, first};
  request.max_new_tokens = count;
  return request;
}

// All of a stream.
Result<std::vector<int32_t>> Read(TextStream& stream) {
  std::vector<int32_t> tokens;
  while (true) {
    MW_ASSIGN_OR_RETURN(const std::optional<int32_t> token, stream.Next(20'000));
    if (!token) return tokens;
    tokens.push_back(*token);
  }
}

TEST(Generator, ManyThreadsGetTheirOwnTexts) {
  Generator generator(kLimits, Next);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int32_t number = 0; number < 8; ++number) {
    threads.emplace_back([&generator, &right, number] {
      for (int round = 0; round < 20; ++round) {
        const auto stream = generator.Generate(RequestFrom(number, 10));
        const auto tokens = Read(*stream);
        std::vector<int32_t> expected;
        for (int32_t i = 1; i <= 10; ++i) expected.push_back((number + i) % 8);
        if (tokens && *tokens == expected && stream->finish() == Finish::kLength) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

TEST(Generator, AStreamThatIsGoneMakesRoom) {
  Generator generator({.pages = 6, .page_tokens = 4, .texts = 1, .positions = 24, .tokens = 6},
                      Next);
  auto first = generator.Generate(RequestFrom(0, 22));
  ASSERT_TRUE(first->Next(20'000));
  first.reset();
  const auto second = generator.Generate(RequestFrom(3, 2));
  const auto tokens = Read(*second);
  ASSERT_TRUE(tokens) << tokens.error();
  EXPECT_EQ(*tokens, (std::vector<int32_t>{4, 5}));
}

TEST(Generator, ErrorsReachTheirStreams) {
  std::atomic<int> steps{0};
  Generator generator(kLimits, [&](const Batch& batch) -> Result<std::vector<std::vector<double>>> {
    if (++steps > 3) return Fail(Unavailable("the mesh is gone"));
    return Next(batch);
  });
  const auto empty = generator.Generate({});
  EXPECT_THAT(empty->Next(20'000).error().ToString(), HasSubstr("no token"));
  const auto broken = generator.Generate(RequestFrom(0, 20));
  const auto tokens = Read(*broken);
  ASSERT_FALSE(tokens);
  EXPECT_THAT(tokens.error().message(), HasSubstr("the mesh is gone"));
  const auto later = generator.Generate(RequestFrom(0, 20));
  EXPECT_THAT(later->Next(20'000).error().message(), HasSubstr("the mesh is gone"));
}

TEST(Generator, AStreamOutlivesItsGenerator) {
  std::unique_ptr<TextStream> stream;
  std::atomic<bool> goes_on{false};
  {
    Generator generator(kLimits, [&](const Batch& batch) {
      while (!goes_on) std::this_thread::yield();
      return Next(batch);
    });
    stream = generator.Generate(RequestFrom(0, 20));
    EXPECT_EQ(stream->Next(1).error().code(), StatusCode::kDeadlineExceeded);
    goes_on = true;
  }
  // Steps that were under way may have written all of it.
  const auto tokens = Read(*stream);
  EXPECT_TRUE(tokens || tokens.error().code() == StatusCode::kCancelled);
}

}  // namespace
}  // namespace meshwright::generation
