#include "base/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace meshwright {
namespace {

using ::testing::HasSubstr;

TEST(Guarded, PassesOnWhatTheBodyReturns) {
  EXPECT_EQ(Guarded("it", []() -> Result<int> { return 7; }).value(), 7);
  EXPECT_EQ(Guarded("it", [] { return NotFound("no"); }).code(), StatusCode::kNotFound);
  EXPECT_TRUE(Guarded("it", [] { return OkStatus(); }).ok());
}

TEST(Guarded, TurnsAnExceptionIntoAStatusThatSaysWhere) {
  const Result<int> thrown =
      Guarded("the planner", []() -> Result<int> { throw std::out_of_range("index 7"); });
  ASSERT_FALSE(thrown.has_value());
  EXPECT_EQ(thrown.error().code(), StatusCode::kInternal);
  EXPECT_THAT(thrown.error().message(), HasSubstr("the planner"));
  EXPECT_THAT(thrown.error().message(), HasSubstr("index 7"));
  EXPECT_EQ(Guarded("it", []() -> Status { throw std::bad_alloc(); }).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Guarded("it", []() -> Status { throw 3; }).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace meshwright
