#include "base/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "base/unique_fd.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddress, BracketsAnIpv6Address) {
  EXPECT_EQ(FormatHostPort("127.0.0.1", 80), "127.0.0.1:80");
  EXPECT_EQ(FormatHostPort("::1", 80), "[::1]:80");
  EXPECT_EQ(FormatHostPort("[::1]", 80), "[::1]:80");
  EXPECT_TRUE(ResolveNumeric("[::1]", 80).has_value());
  EXPECT_EQ(ResolveNumeric("no.such.host", 80).error().code(), StatusCode::kInvalidArgument);
}

TEST(ListenAddress, ASocketOfAFolderHasAtMost107Bytes) {
  EXPECT_EQ(LocalSocketIn("/run/m"), "/run/m/controller.sock");
  EXPECT_EQ(LocalSocketIn(std::string(91, 'x')).size(), 107u);
  EXPECT_EQ(LocalSocketIn(std::string(92, 'x')), "");
}

TEST(ListenAddress, KnowsTheNameOfLoopback) {
  EXPECT_EQ(NumericHost("localhost"), "127.0.0.1");
  EXPECT_EQ(NumericHost("[::1]"), "::1");
  EXPECT_EQ(NumericHost("10.0.0.1"), "10.0.0.1");
}

TEST(ListenAddress, TellsAForeignAddressFromAPortInUse) {
  // 192.0.2.0/24 is for documentation: no machine has it.
  const Status foreign = ProbeListen("192.0.2.1", 7700);
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument) << foreign;
  EXPECT_THAT(foreign.message(), HasSubstr("address of this machine"));

  const UniqueFd holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress address = ResolveNumeric("127.0.0.1", 0).value();
  ASSERT_EQ(bind(holder.get(), address.get(), address.bytes), 0);
  ASSERT_EQ(listen(holder.get(), 1), 0);
  sockaddr_in bound{};
  socklen_t bytes = sizeof(bound);
  ASSERT_EQ(getsockname(holder.get(), reinterpret_cast<sockaddr*>(&bound), &bytes), 0);
  const Status taken = ProbeListen("127.0.0.1", ntohs(bound.sin_port));
  EXPECT_EQ(taken.code(), StatusCode::kAlreadyExists) << taken;
  EXPECT_TRUE(ProbeListen("127.0.0.1", 0).ok());
}

}  // namespace
}  // namespace meshwright
