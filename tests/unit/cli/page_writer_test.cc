#include "cli/page_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;

// A model of ten tokens, of which each follows the one before.
class Counting {
 public:
  Result<generation::StepAnswer> Run(const generation::Batch& batch) {
    if (fails_) return Fail(Internal("the cluster is gone"));
    read_ += static_cast<int64_t>(batch.tokens.size());
    std::vector<int32_t> next;
    for (const generation::WantedToken& wanted : batch.wanted) {
      next.push_back((batch.tokens[static_cast<size_t>(wanted.place)].token + 1) % 10);
    }
    return generation::StepAnswer(next);
  }
  int64_t TakeRead() { return std::exchange(read_, 0); }
  void Fails(bool fails) { fails_ = fails; }

 private:
  int64_t read_ = 0;
  bool fails_ = false;
};

TEST(PageWriter, ReadsNothingOfAConversationTwice) {
  Counting model;
  PageWriter writer({.pages = 16, .page_tokens = 4, .texts = 1, .positions = 64, .tokens = 8},
                    [&](const generation::Batch& batch) { return model.Run(batch); });
  generation::Request request;
  for (int32_t i = 0; i < 16; ++i) request.prompt.push_back(i % 10);
  request.max_new_tokens = 3;
  const auto go_on = [](int32_t) { return true; };
  const auto first = writer.Write(request, go_on);
  ASSERT_TRUE(first) << first.error();
  EXPECT_THAT(first->tokens, ElementsAre(6, 7, 8));
  EXPECT_EQ(model.TakeRead(), 16 + 2);
  request.prompt.insert(request.prompt.end(), {6, 7, 8, 1, 2});
  const auto second = writer.Write(request, go_on);
  ASSERT_TRUE(second) << second.error();
  EXPECT_THAT(second->tokens, ElementsAre(3, 4, 5));
  EXPECT_EQ(model.TakeRead(), 5 + 2) << "the full pages of what was read are found";
  // Who has enough, and what fails, leave nothing behind.
  ASSERT_TRUE(writer.Write(request, [](int32_t) { return false; }));
  model.Fails(true);
  EXPECT_FALSE(writer.Write(request, go_on));
  model.Fails(false);
  model.TakeRead();
  const auto again = writer.Write(request, go_on);
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->tokens, second->tokens);
  EXPECT_EQ(model.TakeRead(), 21 + 2);
}

}  // namespace
}  // namespace meshwright::cli
