#include "base/json_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JsonError, SaysLineAndColumn) {
  EXPECT_THAT(JsonErrorOf("{\n \"a\": 1,\n}"), StartsWith("parse error at line 3, column 1: "));
  EXPECT_THAT(JsonErrorOf(""), HasSubstr("line 1"));
  for (const char* text : {"{}", "[1, 2]", "\"a\"", "null"})
    EXPECT_EQ(JsonErrorOf(text), "") << text;
}

TEST(JsonError, TellsNoJsonFromNoObject) {
  EXPECT_EQ(WhyNoJsonObject("[1]"), "no JSON object");
  EXPECT_THAT(WhyNoJsonObject("{"), StartsWith("no JSON: parse error at line 1"));
}

}  // namespace
}  // namespace meshwright
