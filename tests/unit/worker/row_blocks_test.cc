// Rows of a host actor: each is asked for once, ahead of the step that reads it, and what goes
// wrong is told to who reads.
#include "worker/row_blocks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace meshwright::worker {
namespace {

using actor::Rows;
using actor::RowsAsked;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBatch = 8;

// Two fields: x f32[2] = (step, row), y i32 = the seed.
ir::DataStream Points(int64_t validation_rows = 0) {
  ir::DataStream stream;
  stream.name = "points";
  stream.kind = ir::DataKind::kRecords;
  stream.fields = {{"x", ir::Element::kF32, {2}, {}, {}}, {"y", ir::Element::kI32, {}, {}, {}}};
  stream.actor.type = "maker";
  stream.actor.validation_rows = validation_rows;
  return stream;
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Rows RowsOf(const RowsAsked& asked) {
  Rows rows{{"", ""}};
  for (int64_t i = 0; i < asked.count; ++i) {
    Append(rows.fields[0], static_cast<float>(asked.step));
    Append(rows.fields[0], static_cast<float>(asked.first_row + i));
    Append(rows.fields[1], static_cast<int32_t>(asked.seed));
  }
  return rows;
}

// Answers at once, or keeps the questions of steps from `hold_from` on.
struct Maker {
  std::vector<RowsAsked> asked;
  std::vector<std::pair<RowsAsked, RowBlocks::Done>> held;
  int64_t hold_from = INT64_MAX;
  int64_t fails_at = -1;

  RowBlocks::Ask Ask() {
    return [this](const RowsAsked& question, const RowBlocks::Done& done) {
      asked.push_back(question);
      if (question.step >= hold_from) {
        held.emplace_back(question, done);
      } else if (question.step == fails_at) {
        done(Fail(Aborted("the maker fell")));
      } else {
        done(RowsOf(question));
      }
    };
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const RowsAsked& question : asked) steps.push_back(question.step);
    return steps;
  }
};

RowBlocksOptions InBlocksOf(int64_t block) {
  RowBlocksOptions options;
  options.seed = 7;
  options.batch = kBatch;
  options.block = block;
  return options;
}

Result<std::pair<float, float>> X(RowBlocks& blocks, int64_t sample, bool validation = false) {
  std::array<float, 2> x{};
  const auto bytes = std::as_writable_bytes(std::span(x));
  MW_TRY(blocks.Read({"points", "x", validation}, sample, {ir::DType::kF32, bytes}));
  return std::pair(x[0], x[1]);
}

void ReadStep(RowBlocks& blocks, int64_t step) {
  for (int64_t row = 0; row < kBatch; ++row) {
    const auto x = X(blocks, step * kBatch + row);
    ASSERT_TRUE(x.has_value()) << x.error();
    EXPECT_EQ(x->first, static_cast<float>(step));
    EXPECT_EQ(x->second, static_cast<float>(row));
  }
}

TEST(RowBlocks, EveryRowIsAskedForOnceAndIsThatOfItsStep) {
  Maker maker;
  RowBlocks blocks(Points(), InBlocksOf(3), maker.Ask(), nullptr);
  for (int64_t step = 0; step < 10; ++step) ReadStep(blocks, step);
  // Blocks of 3, 3 and 2 rows, for ten steps and two more.
  ASSERT_THAT(maker.asked, SizeIs(36));
  EXPECT_EQ(maker.asked[0], (RowsAsked{7, 0, 0, 3, false}));
  std::set<std::pair<int64_t, int64_t>> once;
  for (const RowsAsked& asked : maker.asked) {
    EXPECT_TRUE(once.emplace(asked.step, asked.first_row).second) << asked.step;
    EXPECT_EQ(asked.count, asked.first_row == 6 ? 2 : 3);
  }
  int32_t y = 0;
  ASSERT_TRUE(
      blocks.Read({"points", "y"}, 80, {ir::DType::kI32, std::as_writable_bytes(std::span(&y, 1))})
          .ok());
  EXPECT_EQ(y, 7);
}

TEST(RowBlocks, AStepFindsItsRowsAlreadyThere) {
  Maker maker;
  RowBlocks blocks(Points(), InBlocksOf(kBatch), maker.Ask(), nullptr);
  ReadStep(blocks, 0);
  EXPECT_THAT(maker.Steps(), ElementsAre(0, 1, 2));
  // From now on the maker answers nothing: what was asked ahead is enough.
  maker.hold_from = 0;
  ReadStep(blocks, 1);
  EXPECT_THAT(maker.Steps(), ElementsAre(0, 1, 2, 3));
  ReadStep(blocks, 2);
  EXPECT_THAT(maker.Steps(), ElementsAre(0, 1, 2, 3, 4));
}

TEST(RowBlocks, OnlyRowsThatWereReadAreAskedForAhead) {
  Maker maker;
  RowBlocks blocks(Points(), InBlocksOf(2), maker.Ask(), nullptr);
  ASSERT_TRUE(X(blocks, 5).has_value());
  for (const RowsAsked& asked : maker.asked) EXPECT_EQ(asked.first_row, 4);
  EXPECT_THAT(maker.Steps(), ElementsAre(0, 1, 2));
}

TEST(RowBlocks, QuestionsAheadAreBoundedAndDoNotDelayOnesThatAreWaitedFor) {
  Maker maker;
  maker.hold_from = 1;
  RowBlocks blocks(Points(), InBlocksOf(1), maker.Ask(), nullptr);
  ReadStep(blocks, 0);
  EXPECT_THAT(maker.held, SizeIs(RowBlocks::kInFlight));
  // Each answer makes room for one more, until all sixteen were asked for.
  for (size_t i = 0; i < 16; ++i) maker.held.at(i).second(RowsOf(maker.held[i].first));
  EXPECT_THAT(maker.held, SizeIs(16));
  maker.hold_from = INT64_MAX;
  ReadStep(blocks, 1);
}

TEST(RowBlocks, WhatFailsIsToldToWhoReadsIt) {
  Maker maker;
  maker.fails_at = 2;
  RowBlocks blocks(Points(), InBlocksOf(kBatch), maker.Ask(), nullptr);
  ReadStep(blocks, 0);
  ReadStep(blocks, 1);
  const auto failed = X(blocks, 2 * kBatch);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), StatusCode::kAborted);
  EXPECT_THAT(failed.error().message(), AllOf(HasSubstr("stream 'points': rows 0 to 7 of step 2"),
                                              HasSubstr("the maker fell")));
}

TEST(RowBlocks, AnswersOfAnotherShapeAndFeedsOfAnotherTypeAreRefused) {
  const auto short_by_one = [](const RowsAsked& asked, const RowBlocks::Done& done) {
    Rows rows = RowsOf(asked);
    rows.fields[1].pop_back();
    done(std::move(rows));
  };
  RowBlocks blocks(Points(), InBlocksOf(kBatch), short_by_one, nullptr);
  EXPECT_THAT(X(blocks, 0).error().message(),
              HasSubstr("answered [64, 31] bytes; 8 rows have 64 of 'x', 32 of 'y'"));
  Maker maker;
  RowBlocks good(Points(), InBlocksOf(kBatch), maker.Ask(), nullptr);
  double x = 0;
  const auto bytes = std::as_writable_bytes(std::span(&x, 1));
  EXPECT_FALSE(good.Read({"points", "x"}, 0, {ir::DType::kI32, bytes}).ok());
  EXPECT_THAT(good.Read({"points", "z"}, 0, {ir::DType::kF32, bytes}).message(),
              HasSubstr("no field 'z'; known: x, y"));
  EXPECT_FALSE(good.Read({"points", "x"}, -1, {ir::DType::kF32, bytes}).ok());
}

TEST(RowBlocks, ValidationRowsAreThoseThatThereAreAndComeAgain) {
  Maker maker;
  RowBlocks blocks(Points(11), InBlocksOf(4), maker.Ask(), nullptr);
  for (int64_t sample = 0; sample < 22; ++sample) {
    const auto x = X(blocks, sample, true);
    ASSERT_TRUE(x.has_value()) << x.error();
    EXPECT_EQ(x->first, static_cast<float>(sample % 11 / kBatch));
    EXPECT_EQ(x->second, static_cast<float>(sample % 11 % kBatch));
  }
  for (const RowsAsked& asked : maker.asked) {
    EXPECT_TRUE(asked.validation);
    EXPECT_LE(asked.step * kBatch + asked.first_row + asked.count, 11);
  }
  RowBlocks none(Points(0), InBlocksOf(4), maker.Ask(), nullptr);
  EXPECT_EQ(X(none, 0, true).error().code(), StatusCode::kFailedPrecondition);
}

TEST(RowBlocks, TokensAreWindowsBelowTheVocabulary) {
  ir::DataStream stream;
  stream.fields = {{"window", ir::Element::kU16, {}, {}, {}}};
  stream.actor.type = "writer";
  RowBlocksOptions options = InBlocksOf(1);
  options.sequence = 3;
  options.vocabulary = 6;
  const auto count_up = [](const RowsAsked& asked, const RowBlocks::Done& done) {
    std::string window;
    for (int i = 0; i < 4; ++i) Append(window, static_cast<uint16_t>(asked.step + i));
    done(Rows{{window}});
  };
  RowBlocks blocks(stream, options, count_up, nullptr);
  std::array<int32_t, 4> window{};
  const data::RowBuffer row{ir::DType::kI32, std::as_writable_bytes(std::span(window))};
  ASSERT_TRUE(blocks.Read({"tokens", ""}, 2 * kBatch, row).ok());
  EXPECT_THAT(window, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(blocks.Read({"tokens", ""}, 3 * kBatch, row).message(),
              HasSubstr("token 6 of actor 'writer' is outside the vocabulary of 6"));
}

TEST(RowBlocks, WhoWaitsIsLetGoWhenTheJobEnds) {
  Maker maker;
  maker.hold_from = 0;
  std::atomic<int> looks{0};
  RowBlocks blocks(Points(), InBlocksOf(kBatch), maker.Ask(), [&] { return ++looks == 2; });
  EXPECT_EQ(X(blocks, 0).error().code(), StatusCode::kCancelled);
  blocks.Close();
  const size_t asked = maker.asked.size();
  for (size_t i = 0; i < maker.held.size(); ++i) {
    maker.held[i].second(RowsOf(maker.held[i].first));
  }
  EXPECT_EQ(maker.asked.size(), asked) << "closed blocks ask for nothing";
}

TEST(RowsCodec, BringsBackWhatWasAskedAndAnsweredAndRefusesTheRest) {
  const auto codec = actor::RowsCodec();
  const RowsAsked asked{1, INT64_MAX, -3, 4, true};
  const std::string bytes = codec.message.encode(asked);
  EXPECT_EQ(codec.message.decode(bytes).value(), asked);
  EXPECT_FALSE(codec.message.decode(bytes.substr(1)).has_value());
  for (const Rows& rows : {Rows{}, Rows{{""}}, Rows{{"abc", "", std::string(300, 'x')}}}) {
    EXPECT_EQ(codec.reply.decode(codec.reply.encode(rows)).value(), rows);
  }
  const std::string reply = codec.reply.encode(Rows{{"abc"}});
  for (size_t cut = 1; cut < reply.size(); ++cut) {
    EXPECT_FALSE(codec.reply.decode(reply.substr(0, cut)).has_value()) << cut;
  }
  EXPECT_FALSE(codec.reply.decode(std::string(8, '\xff') + "x").has_value());
}

}  // namespace
}  // namespace meshwright::worker
