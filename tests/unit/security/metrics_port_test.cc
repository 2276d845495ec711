// The HTTP port of a daemon: who may scrape it in the clear, and who by TLS.
#include "security/metrics_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/metrics.h"
#include "security/authority.h"
#include "tests/unit/security/tls_client.h"

namespace meshwright::security {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsPortTest : public ::testing::Test {
 protected:
  MetricsPortTest()
      : authority_(Authority::Create(dir_.File("ca"), SystemClock().UnixMs() / 1000).value()) {
    registry_.MakeGauge("mw_loss", "Loss.").Set(1.5);
  }

  // As a worker does that listens there.
  std::unique_ptr<MetricsPort> Start(const std::string& bind, const std::string& token) {
    EXPECT_TRUE(IssueTo(dir_.File("id"), authority_,
                        {{Role::kWorker, "w0"}, {}, SystemClock().UnixMs() / 1000, kDayS})
                    .ok());
    MetricsPortOptions options;
    options.http.host = bind;
    options.http.request_ms = 20'000;
    options.certificate = OwnCertificate(bind, dir_.File("id"));
    options.scrape_token = token;
    return MetricsPort::Start(options, registry_).value();
  }
  std::string GetByTls(int port, const std::string& path, const std::string& token) {
    TlsClient client(port, authority_.ca_pem(), kWorkerName);
    EXPECT_TRUE(client.trusts()) << "it is no worker of this authority";
    const std::string shown = token.empty() ? "" : "Authorization: Bearer " + token + "\r\n";
    return client.Write("GET " + path + " HTTP/1.1\r\nHost: here\r\n" + shown + "\r\n")
               ? client.ReadAll()
               : "";
  }
  static std::string GetInTheClear(int port, const std::string& path) {
    const UniqueFd fd = Connect(port);
    Say(fd, "GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n");
    return HearAll(fd);
  }

  TempDir dir_ = TempDir::Make().value();
  Authority authority_;
  MetricsRegistry registry_;
};

TEST_F(MetricsPortTest, OnLoopbackIsInTheClearAndOpenWhoeverItIs) {
  const auto port = Start("127.0.0.1", "");
  EXPECT_THAT(GetInTheClear(port->port(), "/metrics"), HasSubstr("mw_loss 1.5\n"));
}

TEST_F(MetricsPortTest, OnLoopbackATokenThatThereIsCounts) {
  const auto port = Start("127.0.0.1", "scrape");
  EXPECT_THAT(GetInTheClear(port->port(), "/metrics"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(GetInTheClear(port->port(), "/healthz"), EndsWith("\r\n\r\nok\n"));
}

TEST_F(MetricsPortTest, OffLoopbackIsTlsForWhoHasTheToken) {
  const auto port = Start("0.0.0.0", "scrape");
  EXPECT_THAT(GetByTls(port->port(), "/metrics", "scrape"), HasSubstr("mw_loss 1.5\n"));
  EXPECT_THAT(GetByTls(port->port(), "/metrics", ""), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(GetByTls(port->port(), "/metrics", "scrapf"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(GetByTls(port->port(), "/healthz", ""), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(GetInTheClear(port->port(), "/metrics"), HasSubstr("https://"));
}

TEST_F(MetricsPortTest, OffLoopbackWithoutATokenIsForNobody) {
  const auto port = Start("0.0.0.0", "");
  const std::string refused = GetByTls(port->port(), "/metrics", "scrape");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(refused, HasSubstr("--scrape-token-file"));
}

// The server behind sees the front alone; who came to the front is asked of it.
TEST_F(MetricsPortTest, SaysWhoCameByTheFront) {
  const auto port = Start("0.0.0.0", "scrape");
  std::string seen;
  port->server().SetSite([&](const HttpRequest& request) {
    seen = request.from;
    HttpReply reply;
    reply.body = port->CallerOf(request);
    return reply;
  });
  TlsClient client(port->port(), authority_.ca_pem(), kWorkerName);
  ASSERT_TRUE(client.trusts());
  const std::string own = "ipv4:127.0.0.1:" + std::to_string(client.port());
  EXPECT_THAT(client.Get("/who"), EndsWith("\r\n\r\n" + own));
  EXPECT_THAT(seen, StartsWith("ipv4:127.0.0.1:"));
  EXPECT_NE(seen, own);
  const auto clear = Start("127.0.0.1", "");
  clear->server().SetSite([&](const HttpRequest& request) {
    HttpReply reply;
    reply.body = clear->CallerOf(request);
    return reply;
  });
  EXPECT_THAT(GetInTheClear(clear->port(), "/who"), HasSubstr("ipv4:127.0.0.1:"));
}

TEST(OwnCertificate, IsThereOffLoopbackForWhoHasAnIdentity) {
  EXPECT_TRUE(OwnCertificate("127.0.0.1", "/id").empty());
  EXPECT_TRUE(OwnCertificate("::1", "/id").empty());
  EXPECT_TRUE(OwnCertificate("10.0.0.1", "").empty());
  EXPECT_EQ(OwnCertificate("10.0.0.1", "/id").key_path, "/id/key.pem");
}

// A worker's certificate is known by its name, and never as a controller.
TEST_F(MetricsPortTest, ShowsTheNameOfAWorkerAndNotThatOfAController) {
  const auto port = Start("0.0.0.0", "scrape");
  EXPECT_FALSE(TlsClient(port->port(), authority_.ca_pem(), kControllerName).trusts());
  const auto request = MakeKeyRequest().value();
  for (const char* name : {kWorkerName, kControllerName}) {
    EXPECT_FALSE(authority_
                     .Sign(request.request_pem,
                           {{Role::kOperator, "eve"}, {name}, SystemClock().UnixMs() / 1000, kDayS})
                     .has_value())
        << name;
  }
}

}  // namespace
}  // namespace meshwright::security
