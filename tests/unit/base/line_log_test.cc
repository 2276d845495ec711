#include "base/line_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace meshwright {
namespace {

// In memory and in files: the same promises.
class LineLogTest : public ::testing::TestWithParam<bool> {
 protected:
  LineLogTest() : dir_(TempDir::Make("mw-line-log").value()) { Reopen(); }
  void Reopen() {
    LineLogOptions options;
    options.folder = GetParam() ? dir_.path() : "";
    options.name = "w0";
    options.segment_bytes = 1000;
    options.segments = 3;
    log_.reset();
    log_ = LineLog::Open(options).value();
  }
  static std::string Line(int second, const std::string& text, int job = 0) {
    const std::string own =
        fmt::format("2026-03-01T12:00:{:02}.000Z info  worker: {}", second, text);
    return job == 0 ? own : fmt::format("executor 7 of job {} | {}", job, own);
  }
  std::vector<std::string> Read(const LineQuery& query) {
    const LinePiece piece = log_->Read(query).value();
    next_ = piece.next;
    end_ = piece.end;
    std::vector<std::string> lines = Split(piece.text, '\n');
    lines.pop_back();
    return lines;
  }

  TempDir dir_;
  std::unique_ptr<LineLog> log_;
  int64_t next_ = 0;
  bool end_ = false;
};

TEST_P(LineLogTest, KeepsWithinItsBoundTheNewestLines) {
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(log_->Add(fmt::format("line {}", i)).ok());
  EXPECT_LE(log_->bytes(), 3000);
  EXPECT_GE(log_->bytes(), 2000);
  int64_t on_disk = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir_.path())) {
    on_disk += static_cast<int64_t>(file.file_size());
  }
  EXPECT_EQ(on_disk, GetParam() ? log_->bytes() : 0);
  const std::vector<std::string> all = Read({});
  EXPECT_EQ(all.back(), "line 499");
  EXPECT_GT(all.size(), 200U);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i], fmt::format("line {}", 500 - all.size() + i)) << "no gap";
  }
}

TEST_P(LineLogTest, GivesTheLastLinesAndGoesOnBehindThem) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(log_->Add(fmt::format("line {}", i)).ok());
  EXPECT_EQ(Read({.lines = 2}), (std::vector<std::string>{"line 8", "line 9"}));
  EXPECT_TRUE(end_);
  const int64_t next = next_;
  EXPECT_EQ(Read({.from = next}), std::vector<std::string>{});
  ASSERT_TRUE(log_->Add("line 10\nline 11\n").ok());
  EXPECT_EQ(Read({.from = next}), (std::vector<std::string>{"line 10", "line 11"}));
}

TEST_P(LineLogTest, AnAnswerHasABoundAndNoLineIsLostBetweenTwo) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(log_->Add(fmt::format("line {}", i)).ok());
  std::vector<std::string> all;
  LineQuery query{.most_bytes = 40};
  do {
    const std::vector<std::string> piece = Read(query);
    EXPECT_LE(piece.size(), 6U);
    all.insert(all.end(), piece.begin(), piece.end());
    query.from = next_;
  } while (!end_);
  ASSERT_EQ(all.size(), 100U);
  EXPECT_EQ(all[99], "line 99");
}

TEST_P(LineLogTest, FindsLinesOfATimeAndOfAJob) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(log_->Add(Line(i, "x", i % 2 == 0 ? 3 : 4)).ok());
  ASSERT_TRUE(log_->Add("a line without a time").ok());
  const int64_t noon_ms = 1772366400000;
  EXPECT_EQ(Read({.since_unix_ms = noon_ms + 18'000}).size(), 3U);
  EXPECT_EQ(Read({.job = 3}).size(), 10U);
  const std::vector<std::string> last = Read({.lines = 2, .job = 4});
  EXPECT_EQ(last, (std::vector<std::string>{Line(17, "x", 4), Line(19, "x", 4)}));
  EXPECT_EQ(Read({.since_unix_ms = noon_ms + 60'000}).size(), 0U);
}

TEST_P(LineLogTest, APositionOfAnEarlierLogIsNoError) {
  ASSERT_TRUE(log_->Add("a line").ok());
  EXPECT_EQ(Read({.from = 1'000'000}), std::vector<std::string>{});
  EXPECT_EQ(next_, log_->end());
}

INSTANTIATE_TEST_SUITE_P(Where, LineLogTest, ::testing::Bool(),
                         [](const auto& where) { return where.param ? "Files" : "Memory"; });

TEST(LineLogFiles, AreTakenUpByTheNextLife) {
  const TempDir dir = TempDir::Make("mw-line-log").value();
  LineLogOptions options{.folder = dir.path(), .name = "w0"};
  int64_t end = 0;
  {
    const auto log = LineLog::Open(options).value();
    ASSERT_TRUE(log->Add("one").ok());
    end = log->end();
  }
  // A process that dies may leave half a line.
  for (const auto& file : std::filesystem::directory_iterator(dir.path())) {
    ASSERT_TRUE(AppendFile(file.path().string(), "hal").ok());
  }
  const auto log = LineLog::Open(options).value();
  ASSERT_TRUE(log->Add("two").ok());
  EXPECT_EQ(log->Read({.from = end})->text, "hal\ntwo\n");
  // Another worker's files are not its own.
  options.name = "w";
  EXPECT_EQ(LineLog::Open(options).value()->bytes(), 0);
}

TEST(SafeFileNames, AreDifferentForDifferentNames) {
  EXPECT_EQ(SafeFileName("gpu-7.rack_2"), "gpu-7.rack_2");
  EXPECT_EQ(SafeFileName("../x"), "%2E.%2Fx");
  const std::string longer(300, 'a');
  EXPECT_LE(SafeFileName(longer).size(), 120U);
  EXPECT_NE(SafeFileName(longer), SafeFileName(longer + "b"));
}

}  // namespace
}  // namespace meshwright
