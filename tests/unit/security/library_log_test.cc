#include "security/grpc/library_log.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"

namespace meshwright::security {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LibraryLog : public ::testing::Test {
 protected:
  void StartAt(LogLevel level) {
    LogOptions options;
    options.level = level;
    options.to_stderr = false;
    ASSERT_TRUE(InitLog(options).ok());
    SetLogSink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // what gRPC's own start does
    TakeGrpcLog();
  }
  ~LibraryLog() override {
    SetLogSink(nullptr);
    (void)InitLog({});
  }

  std::vector<std::string> lines_;
};

TEST_F(LibraryLog, HandshakesThatFailAreNoNews) {
  StartAt(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "Handshake failed with fatal error SSL_ERROR_SSL");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "gRPC wrote past the log";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LibraryLog, WhoDebugsSeesThem) {
  StartAt(LogLevel::kDebug);
  gpr_log(GPR_ERROR, "Handshake failed: %d", 7);
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("debug"), HasSubstr("Handshake failed: 7"),
                                        HasSubstr("library_log_test.cc:"))));
}

TEST_F(LibraryLog, WhatEndsTheProcessIsAnError) {
  StartAt(LogLevel::kError);
  gpr_log(GPR_ERROR, "assertion failed: %s", "x != nullptr");
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("x != nullptr")));
}

}  // namespace
}  // namespace meshwright::security
