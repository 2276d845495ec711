#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace meshwright {
namespace {

using Strings = std::vector<std::string>;

TEST(Split, KeepsEmptyPieces) {
  EXPECT_EQ(Split("a,,b", ','), (Strings{"a", "", "b"}));
  EXPECT_EQ(Split("", ','), (Strings{""}));
  EXPECT_EQ(Split(",", ','), (Strings{"", ""}));
}

TEST(Split, JoinTurnsItBack) {
  EXPECT_TRUE(rc::check("join(split(text)) == text", [](const std::string& text) {
    RC_ASSERT(Join(Split(text, ','), ",") == text);
  }));
}

TEST(Trim, TakesBlanksFromBothEndsOnly) {
  EXPECT_EQ(Trim("  a b\t\r\n"), "a b");
  EXPECT_EQ(Trim(" \n "), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(EditDistance, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("tensor", "tesnor"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3) << "restricted form: no edits between swapped letters";
}

TEST(EditDistance, IsSymmetricZeroOnlyForEqualAndAtMostTheLongerLength) {
  EXPECT_TRUE(rc::check("metric basics", [] {
    const auto letters = rc::gen::container<std::string>(rc::gen::inRange('a', 'd'));
    const std::string a = *letters, b = *letters;
    const int64_t distance = EditDistance(a, b);
    RC_ASSERT(distance == EditDistance(b, a));
    RC_ASSERT((distance == 0) == (a == b));
    RC_ASSERT(distance <= static_cast<int64_t>(std::max(a.size(), b.size())));
  }));
}

TEST(NearestName, FindsTyposAndNothingFarAway) {
  const Strings names = {"tensor", "pipeline", "data", "sequence"};
  EXPECT_EQ(NearestName("tenosr", names), "tensor");
  EXPECT_EQ(NearestName("PIPELINE", names), "pipeline");
  EXPECT_EQ(NearestName("dat", names), "data");
  EXPECT_EQ(NearestName("zzzzz", names), std::nullopt);
  EXPECT_EQ(NearestName("x", {}), std::nullopt);
  EXPECT_EQ(DidYouMean("tenosr", names), " (did you mean 'tensor'?)");
  EXPECT_EQ(DidYouMean("zzzzz", names), "");
}

TEST(FormatBytes, PicksTheUnitPeopleRead) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(int64_t{13} << 28), "3.25 GiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.00 KiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8.00 EiB");
}

TEST(FormatDuration, PicksTheUnitPeopleRead) {
  EXPECT_EQ(FormatDuration(0), "0 s");
  EXPECT_EQ(FormatDuration(850e-9), "850 ns");
  EXPECT_EQ(FormatDuration(12.34e-6), "12.3 us");
  EXPECT_EQ(FormatDuration(0.00456), "4.56 ms");
  EXPECT_EQ(FormatDuration(0.9999), "1 s");
  EXPECT_EQ(FormatDuration(3.21), "3.21 s");
  EXPECT_EQ(FormatDuration(59.99), "1m00s");
  EXPECT_EQ(FormatDuration(125), "2m05s");
  EXPECT_EQ(FormatDuration(3720), "1h02m");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(FormatDuration(-2), "-2 s");
  EXPECT_EQ(FormatDuration(NAN), "nan s");
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatShortCount, PicksTheLetter) {
  EXPECT_EQ(FormatShortCount(999), "999");
  EXPECT_EQ(FormatShortCount(124'439'808), "124.4M");
  EXPECT_EQ(FormatShortCount(6.7e9), "6.7B");
  EXPECT_EQ(FormatShortCount(999'999), "1.0M");
}

TEST(JsonEscape, EscapesWhatJsonForbids) {
  EXPECT_EQ(JsonEscape("a\"b\\c\n\t\x01"), "a\\\"b\\\\c\\n\\t\\u0001");
  EXPECT_EQ(JsonEscape("größe 😀"), "größe 😀");
}

TEST(JsonEscape, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonEscape("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(JsonEscape("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong";
  EXPECT_EQ(JsonEscape("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "cut off";
  EXPECT_EQ(JsonEscape("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "surrogate";
  EXPECT_EQ(JsonEscape("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace meshwright
