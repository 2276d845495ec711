#include "cli/own_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::cli {
namespace {

const std::vector<OwnAddress>& OfAHost() {
  static const std::vector<OwnAddress> own = {{"127.0.0.1"},    {"::1"},     {"fe80::1"},
                                              {"169.254.3.4"},  {"fd00::7"}, {"10.9.9.9", false},
                                              {"192.168.1.20"}, {"10.0.0.1"}};
  return own;
}

TEST(DialableAddress, IsOneThatOthersReach) {
  EXPECT_EQ(DialableAddress("0.0.0.0", OfAHost()), "192.168.1.20");
  EXPECT_EQ(DialableAddress("::", OfAHost()), "192.168.1.20");
  EXPECT_EQ(DialableAddress("::", {{"::1"}, {"fd00::7"}}), "fd00::7");
  EXPECT_EQ(DialableAddress("0.0.0.0", {{"fd00::7"}}), "") << "nobody listens there";
  EXPECT_EQ(DialableAddress("0.0.0.0", {{"127.0.0.1"}}), "");
  EXPECT_EQ(DialableAddress("10.0.0.1", OfAHost()), "10.0.0.1") << "as it was said";
}

TEST(OwnAddresses, HaveLoopback) {
  std::vector<std::string> texts;
  for (const OwnAddress& own : OwnAddresses()) texts.push_back(own.text);
  EXPECT_THAT(texts, ::testing::Contains("127.0.0.1"));
}

}  // namespace
}  // namespace meshwright::cli
