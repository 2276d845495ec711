#include "web/mount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;

struct MountCase {
  const char* bind;
  const char* viewer;
  const char* operators;
  bool behind_tls;
  int port;
  bool tls;
  const char* wanted;  // "there", "not there", or a part of the error
};

TEST(MountPage, IsThereWhereItIsSafe) {
  const MountCase cases[] = {
      {"127.0.0.1", "", "", false, 0, false, "there"},
      {"localhost", "", "", false, 0, false, "there"},
      {"127.0.0.1", "v", "o", false, 0, false, "there"},
      {"127.0.0.1", "v", "o", true, 0, false, "there"},
      {"127.0.0.1", "", "", true, 0, false, "there is no token"},
      {"127.0.0.1", "v", "v", false, 0, false, "the same token"},
      {"0.0.0.0", "", "", false, 0, false, "not there"},
      {"0.0.0.0", "v", "o", false, 0, false, "in the clear"},
      {"0.0.0.0", "v", "", true, 0, false, "there"},
      {"0.0.0.0", "", "o", true, 0, false, "there"},
      {"0.0.0.0", "", "", true, 0, false, "there is no token"},
      {"0.0.0.0", "v", "o", false, 0, true, "there"},
      {"0.0.0.0", "v", "", false, 0, true, "there"},
      {"0.0.0.0", "", "", false, 0, true, "not there"},
      {"0.0.0.0", "v", "v", false, 0, true, "the same token"},
      {"127.0.0.1", "", "", false, 0, true, "there"},
      {"127.0.0.1", "", "", false, -1, false, "not there"},
  };
  for (const MountCase& c : cases) {
    PageOptions page;
    page.viewer_token = c.viewer;
    page.operator_token = c.operators;
    page.behind_tls = c.behind_tls;
    controller::ServerOptions server;
    server.bind = c.bind;
    server.metrics_port = c.port;
    if (c.tls) server.http_certificate = {"cert.pem", "key.pem"};
    const auto mounted = MountPage(page, server);
    const std::string wanted = c.wanted;
    if (!mounted.has_value()) {
      EXPECT_EQ(mounted.error().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(mounted.error().message(), HasSubstr(wanted)) << c.bind;
      continue;
    }
    EXPECT_EQ(mounted->there ? "there" : "not there", wanted) << c.bind << " " << c.viewer;
    EXPECT_EQ(static_cast<bool>(server.make_site), mounted->there);
  }
}

TEST(MountPage, IsNotThereWhereNobodyWantsIt) {
  PageOptions page;
  page.wanted = false;
  controller::ServerOptions server;
  server.metrics_port = 0;
  const auto mounted = MountPage(page, server);
  ASSERT_TRUE(mounted.has_value());
  EXPECT_FALSE(mounted->there);
  EXPECT_EQ(mounted->why_not, "");
}

}  // namespace
}  // namespace meshwright::web
