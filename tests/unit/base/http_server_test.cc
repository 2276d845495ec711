#include "base/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/metrics_server.h"
#include "base/unique_fd.h"
#include "tests/fake_clock.h"

namespace meshwright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

UniqueFd OpenTo(int port) {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout{10, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    connection = UniqueFd();
  }
  return connection;
}

void SendRaw(const UniqueFd& connection, const std::string& text) {
  EXPECT_EQ(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

std::string ReadToEnd(const UniqueFd& connection) {
  std::string answer;
  std::array<char, 65536> block;
  for (ssize_t got = 0; (got = read(connection.get(), block.data(), block.size())) > 0;) {
    answer.append(block.data(), static_cast<size_t>(got));
  }
  return answer;
}

std::string AskRaw(int port, const std::string& request) {
  const UniqueFd connection = OpenTo(port);
  SendRaw(connection, request);
  return ReadToEnd(connection);
}

bool ComesTrue(const std::atomic<bool>& flag) {
  const Deadline deadline = Deadline::After(30'000);
  while (!flag && !deadline.expired()) std::this_thread::yield();
  return flag;
}

// Answers what it was asked.
HttpReply Echo(const HttpRequest& request) {
  HttpReply reply;
  reply.body =
      fmt::format("{} {} q={} a={} h={} c={} [{}]", request.method, request.path, request.query,
                  request.Query("a"), request.Header("x-word"), request.Cookie("id"), request.body);
  return reply;
}

std::unique_ptr<HttpServer> EchoServer() {
  HttpServerOptions options;
  options.body_bytes = 1000;
  options.request_ms = 300;
  return HttpServer::Start(options, Echo).value();
}

TEST(HttpServer, HandsOverRequestsWhole) {
  const auto server = EchoServer();
  EXPECT_THAT(AskRaw(server->port(),
                     "POST /p%20q?a=1%262&b=3 HTTP/1.1\r\nHost: x\r\nX-Word: yes\r\n"
                     "Cookie: a=b; id=seven\r\nContent-Length: 5\r\n\r\nhello"),
              EndsWith("POST /p q q=a=1%262&b=3 a=1&2 h=yes c=seven [hello]"));
  EXPECT_THAT(AskRaw(server->port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), EndsWith("[]"));
}

TEST(HttpServer, BodiesAreBoundedBeforeTheyAreRead) {
  const auto server = EchoServer();
  EXPECT_THAT(AskRaw(server->port(), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(AskRaw(server->port(),
                     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 411 "));
  const std::string whole = fmt::format(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{}", std::string(1000, 'b'));
  EXPECT_THAT(AskRaw(server->port(), whole), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, HeadersAreBounded) {
  const auto server = EchoServer();
  const UniqueFd connection = OpenTo(server->port());
  const std::string request =
      fmt::format("GET / HTTP/1.1\r\nHost: x\r\nX-Word: {}\r\n\r\n", std::string(40'000, 'w'));
  (void)send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(ReadToEnd(connection), ::testing::Not(HasSubstr("200 OK")));
}

TEST(HttpServer, ABodyThatDoesNotComeIsNotWaitedForLong) {
  const auto server = EchoServer();
  EXPECT_THAT(AskRaw(server->port(), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nfour"),
              StartsWith("HTTP/1.1 400 "));
}

// A byte a second comes for as long as one likes: the body has one deadline, not each byte. Time is
// the test's, so that no machine is too slow for it.
TEST(HttpServer, ABodyThatComesSlowlyIsNotWaitedForLong) {
  FakeClock clock;
  HttpServerOptions options;
  options.body_bytes = 1 << 20;
  options.request_ms = 60'000;
  options.clock = &clock;
  const auto server = HttpServer::Start(options, Echo).value();
  const UniqueFd connection = OpenTo(server->port());
  SendRaw(connection, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
  const Deadline patience = Deadline::After(30'000);
  pollfd answer{connection.get(), POLLIN, 0};
  while (!patience.expired() && ::poll(&answer, 1, 1) == 0) {
    (void)send(connection.get(), "b", 1, MSG_NOSIGNAL);
    clock.AdvanceMs(1000);
  }
  ASSERT_NE(answer.revents & POLLIN, 0) << "it is still being read";
  EXPECT_THAT(ReadToEnd(connection), StartsWith("HTTP/1.1 408 "));
  std::array<char, 1> byte;
  const ssize_t more = recv(connection.get(), byte.data(), byte.size(), MSG_DONTWAIT);
  EXPECT_TRUE(more == 0 || errno == ECONNRESET) << "it is open";
}

// Nor is what comes behind an answer read for as long as it comes: a GET has no body.
TEST(HttpServer, WhatComesBehindAnAnswerHoldsNoConnection) {
  HttpServerOptions options;
  options.request_ms = 60'000;
  const auto server = HttpServer::Start(options, Echo).value();
  const UniqueFd connection = OpenTo(server->port());
  SendRaw(connection, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\nb");
  EXPECT_THAT(ReadToEnd(connection), EndsWith("[]"));
  std::array<char, 1> byte;
  EXPECT_EQ(recv(connection.get(), byte.data(), byte.size(), MSG_DONTWAIT), 0) << "it is open";
}

// Whoever sends bodies slowly leaves threads to who asks for health.
TEST(HttpServer, BodiesTakeAQuarterOfTheThreads) {
  FakeClock clock;
  HttpServerOptions options;
  options.threads = 4;
  options.request_ms = 60'000;
  options.clock = &clock;
  const auto server = HttpServer::Start(options, Echo).value();
  const auto slow = [&server] {
    UniqueFd connection = OpenTo(server->port());
    SendRaw(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nfour");
    return connection;
  };
  const UniqueFd first = slow();
  const UniqueFd second = slow();
  // One of them is read, the other one is told to come again.
  std::array<pollfd, 2> both = {{{first.get(), POLLIN, 0}, {second.get(), POLLIN, 0}}};
  ASSERT_EQ(::poll(both.data(), both.size(), 30'000), 1);
  const bool first_refused = (both[0].revents & POLLIN) != 0;
  EXPECT_THAT(ReadToEnd(first_refused ? first : second), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(AskRaw(server->port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), EndsWith("[]"));
  const UniqueFd& read = first_refused ? second : first;
  SendRaw(read, "fives");
  EXPECT_THAT(ReadToEnd(read), EndsWith("[fourfives]"));
}

// What cannot be a request is refused or dropped, and the next one is answered.
TEST(HttpServer, SurvivesBytesThatAreNoRequest) {
  const auto server = EchoServer();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::string valid = "POST /a?b=%41 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok";
  for (int i = 0; i < 60; ++i) {
    std::string bytes = valid;
    for (int changes = 0; changes < 4; ++changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    }
    const UniqueFd connection = OpenTo(server->port());
    (void)send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    shutdown(connection.get(), SHUT_WR);
    (void)ReadToEnd(connection);
  }
  EXPECT_THAT(AskRaw(server->port(), valid), EndsWith("[ok]"));
}

TEST(HttpServer, AStreamLastsUntilItsReaderHasGone) {
  std::atomic<bool> ended = false;
  HttpServerOptions options;
  const auto server = HttpServer::Start(options, [&ended](const HttpRequest&) {
                        HttpReply reply;
                        reply.content_type = "text/event-stream";
                        reply.stream = [&ended](HttpStream& stream) {
                          while (stream.Write("data: x\n\n")) {
                          }
                          ended = true;
                        };
                        return reply;
                      }).value();
  {
    const UniqueFd connection = OpenTo(server->port());
    SendRaw(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::array<char, 4096> block;
    ASSERT_GT(read(connection.get(), block.data(), block.size()), 0);
  }
  EXPECT_TRUE(ComesTrue(ended));
}

// It fills the buffers of the connection, and reads none of it.
TEST(HttpServer, AReaderThatDoesNotReadIsDropped) {
  std::atomic<bool> dropped = false;
  HttpServerOptions options;
  options.request_ms = 200;
  const auto server = HttpServer::Start(options, [&dropped](const HttpRequest&) {
                        HttpReply reply;
                        reply.stream = [&dropped](HttpStream& stream) {
                          const std::string much(1 << 20, 'x');
                          while (stream.Write(much)) {
                          }
                          dropped = true;
                        };
                        return reply;
                      }).value();
  const UniqueFd connection = OpenTo(server->port());
  SendRaw(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(ComesTrue(dropped));
}

TEST(HttpServer, ErrorsHaveTheCodesThatCallersKnow) {
  EXPECT_EQ(ReplyOf(InvalidArgument("x")).code, 400);
  EXPECT_EQ(ReplyOf(Unauthenticated("x")).code, 401);
  EXPECT_EQ(ReplyOf(PermissionDenied("x")).code, 403);
  EXPECT_EQ(ReplyOf(NotFound("x")).code, 404);
  EXPECT_EQ(ReplyOf(FailedPrecondition("x")).code, 409);
  EXPECT_EQ(ReplyOf(ResourceExhausted("x")).code, 429);
  EXPECT_EQ(ReplyOf(Unavailable("x")).code, 503);
  EXPECT_EQ(ReplyOf(Internal("x")).code, 500);
}

TEST(HttpRequest, FormsAreDecoded) {
  EXPECT_EQ(FormValue("a=1&b=x%20y+z", "b"), "x y z");
  EXPECT_EQ(FormValue("a=1&b=x%20y+z", "a"), "1");
  EXPECT_EQ(FormValue("a=1", "c"), "");
  EXPECT_EQ(FormValue("a", "a"), "");
  EXPECT_EQ(FormValue("a=%4", "a"), "");
  EXPECT_EQ(FormValue("a=%zz&b=2", "b"), "2");
  EXPECT_EQ(FormValue("%61=1", "a"), "1");
  EXPECT_EQ(FormValue("a=1=2", "a"), "1=2");
  EXPECT_EQ(FormValue("", "a"), "");
}

TEST(HttpRequest, CookiesAreFoundByTheirWholeName) {
  HttpRequest request;
  request.headers["cookie"] = "xid=1; id=2;id2=3; bad";
  EXPECT_EQ(request.Cookie("id"), "2");
  EXPECT_EQ(request.Cookie("id2"), "3");
  EXPECT_EQ(request.Cookie("bad"), "");
  EXPECT_EQ(request.Cookie("none"), "");
}

TEST(HttpRequest, TakesAnyTextAsAFormOrACookie) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::string letters = "a=&%+;0f \"\n\xff";
  for (int i = 0; i < 20'000; ++i) {
    HttpRequest request;
    for (auto length = random() % 24; length > 0; --length) {
      request.query += letters[random() % letters.size()];
    }
    request.headers["cookie"] = request.query;
    EXPECT_LE(request.Query("a").size(), request.query.size());
    EXPECT_LE(request.Cookie("a").size(), request.query.size());
  }
}

TEST(MetricsServer, AGuardStandsBeforeMetricsAndRoutesButNotBeforeHealth) {
  MetricsRegistry registry;
  const auto server = MetricsServer::Start({}, registry).value();
  const auto text = []() -> Result<std::string> { return "text"; };
  server->AddRoute("/closed", "text/plain", text);
  server->AddRoute("/open", "text/plain", text, RouteAccess::kOpen);
  server->SetGuard([](const HttpRequest& request) {
    return request.Header("authorization") == "Bearer t" ? OkStatus() : Unauthenticated("a token");
  });
  const auto get = [&server](const std::string& path, const std::string& header = "") {
    return AskRaw(server->port(),
                  fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, header));
  };
  for (const char* path : {"/metrics", "/closed"}) {
    EXPECT_THAT(get(path), StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(get(path, "Authorization: Bearer t\r\n"), StartsWith("HTTP/1.1 200 ")) << path;
  }
  EXPECT_THAT(get("/open"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsServer, ASiteAnswersWhatNobodyElseDoes) {
  MetricsRegistry registry;
  const auto server = MetricsServer::Start({}, registry).value();
  server->SetSite(Echo);
  EXPECT_THAT(AskRaw(server->port(), "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"),
              EndsWith("[hi]"));
  EXPECT_THAT(AskRaw(server->port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
              HasSubstr("version=0.0.4"));
  EXPECT_THAT(AskRaw(server->port(), "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
}

}  // namespace
}  // namespace meshwright
