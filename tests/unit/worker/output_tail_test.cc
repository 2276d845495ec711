#include "worker/output_tail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>

#include "base/file_io.h"
#include "base/text.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kTailPatienceMs = 20'000;

class OutputTailTest : public ::testing::Test {
 protected:
  OutputTailTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    write_end_ = UniqueFd(ends[1]);
    tail_ =
        std::make_unique<OutputTail>(UniqueFd(ends[0]), "child", [this] { ended_.set_value(); });
  }
  void Print(const std::string& text) {
    ASSERT_TRUE(WriteAll(write_end_.get(), text, "a pipe").ok());
  }

  std::promise<void> ended_;
  UniqueFd write_end_;
  std::unique_ptr<OutputTail> tail_;
};

TEST_F(OutputTailTest, KeepsTheLastLinesAlsoOneThatIsNotEnded) {
  for (int i = 0; i < 100; ++i) Print(fmt::format("line {}\n", i));
  Print("half a line");
  write_end_.Reset();
  const std::vector<std::string> lines = Split(tail_->Take(kTailPatienceMs), '\n');
  ASSERT_EQ(lines.size(), OutputTail::kMostLines);
  EXPECT_EQ(lines.back(), "half a line");
  EXPECT_EQ(lines.front(), "line 81");
  ended_.get_future().wait();
}

TEST_F(OutputTailTest, KeepsNoMoreThanItsBytesOfOneEndlessLine) {
  Print(std::string(9'000, 'x'));
  write_end_.Reset();
  const std::string kept = tail_->Take(kTailPatienceMs);
  EXPECT_LE(kept.size(), OutputTail::kMostBytes);
  EXPECT_GT(kept.size(), 1000u);
}

// A grandchild may hold the pipe for ever.
TEST_F(OutputTailTest, EndsWhileThePipeIsOpen) {
  Print("said\n");
  while (tail_->Take(1) != "said") {
  }
  tail_.reset();
}

}  // namespace
}  // namespace meshwright::worker
