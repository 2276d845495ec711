#include "base/json_int.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace meshwright {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Parsed(const char* text) { return json::parse(text, nullptr, false); }

TEST(JsonInt, TakesWholeNumbersOfTheRange) {
  EXPECT_EQ(JsonInt(Parsed("-9223372036854775808"), "n").value(), INT64_MIN);
  EXPECT_EQ(JsonInt(Parsed("9223372036854775807"), "n").value(), INT64_MAX);
  EXPECT_EQ(JsonInt<uint64_t>(Parsed("18446744073709551615"), "n").value(), UINT64_MAX);
  EXPECT_EQ(JsonInt<int32_t>(Parsed("-7"), "n").value(), -7);
  EXPECT_EQ(JsonInt(Parsed("9"), "n", int64_t{0}, int64_t{9}).value(), 9);
  EXPECT_EQ(JsonInt(nlohmann::ordered_json(3), "n").value(), 3);
}

// get<int64_t>() took each of these for some number.
TEST(JsonInt, RefusesWhatIsNone) {
  for (const char* text : {"1e308", "-1e308", "1e19", "1.5", "1.0", "9223372036854775808", "true",
                           "null", "\"1\"", "[1]", "{}"}) {
    EXPECT_FALSE(FindJsonInt(Parsed(text))) << text;
    const auto number = JsonInt(Parsed(text), "top_k");
    ASSERT_FALSE(number.has_value()) << text;
    EXPECT_THAT(number.error().message(), HasSubstr("\"top_k\" is ")) << text;
  }
  EXPECT_FALSE(FindJsonInt<int32_t>(Parsed("2147483648")));
  EXPECT_FALSE(FindJsonInt<uint32_t>(Parsed("-1")));
  EXPECT_FALSE(FindJsonInt<uint64_t>(Parsed("-1")));
  EXPECT_FALSE(FindJsonInt(Parsed("-1"), int64_t{0}));
  EXPECT_EQ(JsonInt(Parsed("10"), "top_k", int64_t{0}, int64_t{9}).error().message(),
            "\"top_k\" is 10, not a whole number from 0 to 9");
}

TEST(JsonInt, OfAMemberSaysThatItIsMissing) {
  const json object = Parsed("{\"a\": 1, \"b\": 1e308}");
  EXPECT_EQ(JsonIntOf(object, "a").value(), 1);
  EXPECT_THAT(JsonIntOf(object, "b").error().message(), HasSubstr("\"b\" is 1e+308"));
  EXPECT_EQ(JsonIntOf(object, "c").error().message(), "\"c\" is missing");
  EXPECT_FALSE(JsonIntOf(Parsed("[1]"), "a").has_value());
}

}  // namespace
}  // namespace meshwright
