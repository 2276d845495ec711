// A port that speaks TLS in front of one that does not: what passes, what is refused before anyone
// has shown anything, and certificates that change.
#include "security/tls_front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/http_server.h"
#include "security/authority.h"
#include "tests/unit/security/tls_client.h"

namespace meshwright::security {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TlsFrontTest : public ::testing::Test {
 protected:
  void SetUp() override {
    authority_ = std::make_unique<Authority>(Authority::Create(dir_.File("ca"), NowS()).value());
    Issue();
    behind_ = HttpServer::Start({.request_ms = 20'000, .body_bytes = 64 << 10},
                                [this](const HttpRequest& request) { return Answer(request); })
                  .value();
    options_.behind = behind_->port();
    options_.certificate = {dir_.File("id/cert.pem"), dir_.File("id/key.pem")};
    options_.handshake_ms = kLongMs;
    options_.request_ms = kLongMs;
    options_.look_ms = 0;
  }
  static int64_t NowS() { return SystemClock().UnixMs() / 1000; }

  void Issue() {
    const Status issued = IssueTo(dir_.File("id"), *authority_,
                                  {{Role::kController, "c"}, {"127.0.0.1"}, NowS(), kDayS});
    ASSERT_TRUE(issued.ok()) << issued;
  }
  static HttpReply Answer(const HttpRequest& request) {
    HttpReply reply;
    reply.body = request.method + " " + request.path + " " + std::to_string(request.body.size());
    if (request.path == "/large") reply.body = std::string(1 << 20, 'x') + "end";
    if (request.path == "/stream") {
      reply.stream = [](HttpStream& stream) {
        for (int i = 0; i < 3; ++i) stream.Write("part\n");
      };
    }
    return reply;
  }
  void Start() {
    auto front = TlsFront::Start(options_);
    ASSERT_TRUE(front.has_value()) << front.error();
    front_ = *std::move(front);
  }
  TlsClient Dial(const std::string& name = "controller.meshwright") {
    return TlsClient(front_->port(), authority_->ca_pem(), name);
  }

  TempDir dir_ = TempDir::Make().value();
  std::unique_ptr<Authority> authority_;
  std::unique_ptr<HttpServer> behind_;
  TlsFrontOptions options_;
  std::unique_ptr<TlsFront> front_;
};

TEST_F(TlsFrontTest, RequestsAndAnswersPass) {
  Start();
  TlsClient client = Dial();
  ASSERT_TRUE(client.trusts());
  EXPECT_THAT(client.Get("/a"), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\nGET /a 0")));
  EXPECT_TRUE(client.whole());
  TlsClient large = Dial("controller.meshwright");
  const std::string answer = large.Get("/large");
  EXPECT_GT(answer.size(), size_t{1} << 20);
  EXPECT_THAT(answer.substr(answer.size() - 4), "xend");
  TlsClient stream = Dial();
  EXPECT_THAT(stream.Get("/stream"), EndsWith("part\npart\npart\n"));
  TlsClient post = Dial();
  ASSERT_TRUE(post.Write("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n" +
                         std::string(40'000, 'b')));
  EXPECT_THAT(post.ReadAll(), EndsWith("POST /p 40000"));
}

TEST_F(TlsFrontTest, ItIsWhoItsCertificateSays) {
  Start();
  EXPECT_TRUE(TlsClient(front_->port(), authority_->ca_pem(), "controller.meshwright").trusts());
  EXPECT_FALSE(TlsClient(front_->port(), authority_->ca_pem(), "other.example").trusts());
  const Authority other = Authority::Create(dir_.File("other"), NowS()).value();
  EXPECT_FALSE(TlsClient(front_->port(), other.ca_pem(), "controller.meshwright").trusts());
}

TEST_F(TlsFrontTest, PlainHttpIsToldThatThisIsTls) {
  Start();
  const UniqueFd plain = Connect(front_->port());
  Say(plain, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  const std::string answer = HearAll(plain);
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("https://")));
  // What the length says is what comes.
  const size_t body = answer.find("\r\n\r\n") + 4;
  EXPECT_THAT(answer, HasSubstr("Content-Length: " + std::to_string(answer.size() - body)));
}

TEST_F(TlsFrontTest, WhoDoesNotShakeHandsOrAskIsNotWaitedFor) {
  options_.handshake_ms = 50;
  Start();
  const UniqueFd silent = Connect(front_->port());
  EXPECT_EQ(HearAll(silent), "");  // ends by itself
  const UniqueFd half = Connect(front_->port());
  Say(half, std::string("\x16\x03\x01", 3));
  (void)HearAll(half);
  front_.reset();
  options_.handshake_ms = kLongMs;
  options_.request_ms = 50;
  Start();
  TlsClient mute = Dial();
  ASSERT_TRUE(mute.trusts());
  EXPECT_EQ(mute.ReadAll(), "");
}

TEST_F(TlsFrontTest, ConnectionsOfOneAddressAreBounded) {
  options_.connections_of_address = 2;
  Start();
  TlsClient first = Dial();
  std::unique_ptr<TlsClient> second =
      std::make_unique<TlsClient>(front_->port(), authority_->ca_pem(), "controller.meshwright");
  ASSERT_TRUE(first.trusts());
  ASSERT_TRUE(second->trusts());
  EXPECT_FALSE(Dial().trusts());
  EXPECT_THAT(first.Get("/a"), EndsWith("GET /a 0"));  // those that are there stay
  second.reset();
  // Who left makes room, as soon as that is seen.
  bool room = false;
  for (int i = 0; i < 3000 && !room; ++i) {
    room = Dial().trusts();
    if (!room) ::poll(nullptr, 0, 10);
  }
  EXPECT_TRUE(room);
}

TEST_F(TlsFrontTest, ConnectionsInAllAreBounded) {
  options_.connections = 1;
  Start();
  TlsClient first = Dial();
  ASSERT_TRUE(first.trusts());
  EXPECT_FALSE(Dial().trusts());
}

TEST_F(TlsFrontTest, ANewCertificateCountsForNewConnections) {
  Start();
  TlsClient before = Dial();
  ASSERT_TRUE(before.trusts());
  const std::string old = before.PeerSha256();
  Issue();
  TlsClient after = Dial();
  ASSERT_TRUE(after.trusts());
  EXPECT_NE(after.PeerSha256(), old);
  EXPECT_THAT(before.Get("/a"), EndsWith("GET /a 0"));
}

TEST_F(TlsFrontTest, FilesThatAreNoGoodChangeNothing) {
  Start();
  const std::string old = Dial().PeerSha256();
  ASSERT_NE(old, "");
  ASSERT_TRUE(WriteFileAtomic(dir_.File("id/cert.pem"), "no certificate", 0644).ok());
  EXPECT_EQ(Dial().PeerSha256(), old);
  Issue();
  ASSERT_EQ(::chmod(dir_.File("id/key.pem").c_str(), 0644), 0);
  EXPECT_EQ(Dial().PeerSha256(), old);
  ASSERT_EQ(::chmod(dir_.File("id/key.pem").c_str(), 0600), 0);
  const std::string found = Dial().PeerSha256();
  EXPECT_NE(found, old);
  EXPECT_NE(found, "");
}

TEST_F(TlsFrontTest, StartsOnlyWithFilesThatFit) {
  const auto message = [this] {
    const auto front = TlsFront::Start(options_);
    return front.has_value() ? std::string() : front.error().message();
  };
  ASSERT_EQ(::chmod(dir_.File("id/key.pem").c_str(), 0644), 0);
  EXPECT_THAT(message(), HasSubstr("chmod 600"));
  ASSERT_EQ(::chmod(dir_.File("id/key.pem").c_str(), 0600), 0);
  const std::string key = MakeKeyRequest().value().key_pem;
  ASSERT_TRUE(WriteFileAtomic(dir_.File("id/key.pem"), key, 0600).ok());
  EXPECT_THAT(message(), HasSubstr("is not the key of the certificate"));
  ASSERT_TRUE(WriteFileAtomic(dir_.File("id/cert.pem"), "nothing", 0644).ok());
  EXPECT_THAT(message(), HasSubstr("id/cert.pem has no certificate"));
}

}  // namespace
}  // namespace meshwright::security
