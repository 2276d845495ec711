#include "base/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/unique_fd.h"

namespace meshwright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The whole answer to one HTTP request line, header included; "" when nothing comes in 10 s.
std::string Ask(int port, const std::string& method_and_path) {
  const UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout{10, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return "";
  }
  const std::string request = method_and_path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  if (write(connection.get(), request.data(), request.size()) < 0) return "";
  std::string answer;
  std::array<char, 4096> block;
  for (ssize_t got = 0; (got = read(connection.get(), block.data(), block.size())) > 0;) {
    answer.append(block.data(), static_cast<size_t>(got));
  }
  return answer;
}

class MetricsServerTest : public testing::Test {
 protected:
  MetricsServerTest() : server_(MetricsServer::Start({}, registry_).value()) {}

  std::string Get(const std::string& path) { return Ask(server_->port(), "GET " + path); }

  MetricsRegistry registry_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesTheRegistryOnAPortOfItsChoice) {
  ASSERT_GT(server_->port(), 0);
  registry_.MakeGauge("mw_loss", "Loss.").Set(1.5);
  const std::string answer = Get("/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, EndsWith("mw_loss 1.5\n"));
}

// Each of them holds a thread until its time is over.
TEST_F(MetricsServerTest, CallersThatNeverFinishTheirRequestDoNotStarveOthers) {
  std::vector<UniqueFd> held;
  for (int i = 0; i < 100; ++i) {
    held.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(held.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_GT(write(held.back().get(), "GET /hea", 8), 0);
  }
  std::string answer;
  for (int i = 0; i < 6 && answer.empty(); ++i) answer = Get("/healthz");
  EXPECT_THAT(answer, EndsWith("\r\n\r\nok\n"));
}

TEST_F(MetricsServerTest, HealthFollowsTheCheck) {
  EXPECT_THAT(Get("/healthz"), EndsWith("\r\n\r\nok\n"));
  server_->SetHealth([] { return Unavailable("event loop stalled for 12 s"); });
  const std::string answer = Get("/healthz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("event loop stalled"));
}

TEST_F(MetricsServerTest, ServesAddedRoutesAndTheirErrors) {
  server_->AddRoute("/api/v1/prometheus/targets", "application/json",
                    []() -> Result<std::string> { return "[]"; });
  server_->AddRoute("/broken", "text/plain",
                    []() -> Result<std::string> { return Fail(Internal("no state")); });
  const std::string answer = Get("/api/v1/prometheus/targets?x=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n[]"));
  EXPECT_THAT(Get("/broken"), StartsWith("HTTP/1.1 500 "));
}

TEST_F(MetricsServerTest, ServesNothingElse) {
  for (const char* path : {"/", "/etc/passwd", "/../../../../etc/passwd", "/metrics/x"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(Ask(server_->port(), "POST /metrics"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(server_->port(), "DELETE /metrics"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(MetricsServerTest, HeadSendsTheLengthWithoutTheBody) {
  const std::string answer = Ask(server_->port(), "HEAD /healthz");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(MetricsServerTest, ATakenPortIsNamedWithTheFix) {
  const auto second = MetricsServer::Start({.port = server_->port()}, registry_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kAlreadyExists) << second.error();
  EXPECT_THAT(second.error().message(), HasSubstr(fmt::format("127.0.0.1:{}", server_->port())));
  EXPECT_THAT(second.error().message(), HasSubstr("choose another port"));
}

TEST_F(MetricsServerTest, AddressesThatCannotWorkAreUsersErrors) {
  EXPECT_EQ(MetricsServer::Start({.host = "no such host"}, registry_).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MetricsServer::Start({.host = "192.0.2.1"}, registry_).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MetricsServer::Start({.port = 70000}, registry_).error().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MetricsServerTest, FreesThePortWhenItEnds) {
  const int port = server_->port();
  server_.reset();
  EXPECT_EQ(Ask(port, "GET /metrics"), "");
  EXPECT_TRUE(MetricsServer::Start({.port = port}, registry_).has_value());
}

}  // namespace
}  // namespace meshwright
