#include "base/shared_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace meshwright {
namespace {

TEST(SharedBytes, CopiesAndPartsAreTheSameMemory) {
  std::string text(1000, 'x');
  text[500] = 'y';
  const char* const at = text.data();
  SharedBytes bytes = std::move(text);
  EXPECT_EQ(bytes.data(), at) << "a string that is given is not copied";
  const SharedBytes copy = bytes;
  EXPECT_EQ(copy.data(), at);
  const SharedBytes part = copy.Part(500, 3);
  EXPECT_EQ(part.data(), at + 500);
  bytes = {};
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(part.view(), "yxx") << "a part keeps the whole alive";
  EXPECT_EQ(copy.Part(998, 100).size(), 2U);
}

TEST(SharedBytes, AreEqualByWhatTheyHold) {
  EXPECT_EQ(SharedBytes("abc"), SharedBytes(std::string("abc")));
  EXPECT_FALSE(SharedBytes("abc") == SharedBytes("abd"));
  EXPECT_EQ(SharedBytes(), SharedBytes(""));
}

}  // namespace
}  // namespace meshwright
