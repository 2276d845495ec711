#include "base/log_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace meshwright {
namespace {

constexpr int64_t kNoonMs = 1772366400000;  // 2026-03-01T12:00:00Z

TEST(LogLines, SayWhenAndHowGrave) {
  constexpr const char* kText = "2026-03-01T12:00:00.123Z warn  controller: worker 3 is lost";
  EXPECT_EQ(UnixMsOfLine(kText), kNoonMs + 123);
  EXPECT_EQ(LevelOfLine(kText), LogLevel::kWarn);
  EXPECT_EQ(JobOfLine(kText), 0);
  constexpr const char* kForeign =
      "executor 4711 of job 12 | 2026-03-01T12:00:01.000Z error worker: no space";
  EXPECT_EQ(UnixMsOfLine(kForeign), kNoonMs + 1000);
  EXPECT_EQ(LevelOfLine(kForeign), LogLevel::kError);
  EXPECT_EQ(JobOfLine(kForeign), 12);
}

TEST(LogLines, AboutTheEndOfAJobsProcessAreOfTheJob) {
  EXPECT_EQ(JobOfLine("2026-03-01T12:00:00.123Z warn  worker: worker 'w2': the executor of job 12 "
                      "(mesh 3) was killed by signal 6"),
            12);
  EXPECT_EQ(JobOfLine("2026-03-01T12:00:00.123Z info  worker: mesh 3 runs in executor 4711: the "
                      "executor of job 12"),
            12);
  const std::string name(120, 'w');
  EXPECT_EQ(JobOfLine(R"({"time":"2026-03-01T12:00:00.123Z","level":"warn","component":"worker",)"
                      R"("source":"worker/process_mesh.cc:199","message":"worker ')" +
                      name + R"(': the executor of job 12 (mesh 3) was killed by signal 6"})"),
            12);
}

TEST(LogLines, OfJsonSayTheSame) {
  constexpr const char* kOwn =
      R"({"time":"2026-03-01T12:00:00.123Z","level":"error","component":"worker","message":"x"})";
  EXPECT_EQ(UnixMsOfLine(kOwn), kNoonMs + 123);
  EXPECT_EQ(LevelOfLine(kOwn), LogLevel::kError);
  EXPECT_EQ(JobOfLine(kOwn), 0);
  constexpr const char* kForeign =
      R"({"process":"executor 4711","job":12,"time":"2026-03-01T12:00:01.000Z","level":"info"})";
  EXPECT_EQ(UnixMsOfLine(kForeign), kNoonMs + 1000);
  EXPECT_EQ(JobOfLine(kForeign), 12);
}

TEST(LogLines, ThatAreNoneSayNothing) {
  for (const char* line : {"", "terminate called", "2026-03-01", "2026-13-01T12:00:00.000Z x",
                           "executor 4711 | double free", "{}", "{\"time\":\"yesterday\"}"}) {
    EXPECT_EQ(UnixMsOfLine(line), std::nullopt) << line;
    EXPECT_EQ(LevelOfLine(line), LogLevel::kInfo) << line;
    EXPECT_EQ(JobOfLine(line), 0) << line;
  }
  // What looks like a mark in a message is none.
  EXPECT_EQ(JobOfLine("2026-03-01T12:00:00.123Z warn  a: b of job 3 | c"), 0);
}

TEST(LogLines, ReadAWholeTimestampOnly) {
  EXPECT_EQ(ParseTimestamp("2026-03-01T12:00:00Z"), kNoonMs);
  EXPECT_EQ(ParseTimestamp("2026-03-01T12:00:00.250Z"), kNoonMs + 250);
  EXPECT_EQ(ParseTimestamp("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(ParseTimestamp("2024-02-29T00:00:00Z"), 1709164800000);
  for (const char* text : {"2026-03-01T12:00:00", "2026-03-01", "2026-03-01T12:00:00Zx", "now"}) {
    EXPECT_EQ(ParseTimestamp(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace meshwright
