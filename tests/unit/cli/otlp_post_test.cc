// Spans for a collector: where they go, and what is said when it does not take them.
#include "cli/otlp_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "base/http_server.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cli/args.h"

namespace meshwright::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 10'000;

// Answers as it is told, and keeps what it was sent.
class Collector {
 public:
  explicit Collector(HttpReply reply) {
    HttpServerOptions options;
    options.body_bytes = 1 << 20;
    auto server = HttpServer::Start(options, [this, reply](const HttpRequest& request) {
      const MutexLock lock(mutex_);
      last_ = request;
      return reply;
    });
    EXPECT_TRUE(server.has_value()) << server.error();
    if (server.has_value()) server_ = *std::move(server);
  }

  OtlpEndpoint At(const std::string& path = "/v1/traces") const {
    return {"127.0.0.1:" + std::to_string(server_->port()), path};
  }
  HttpRequest last() {
    const MutexLock lock(mutex_);
    return last_;
  }

 private:
  Mutex mutex_;
  HttpRequest last_ MW_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

HttpReply Says(int code, const std::string& body) {
  return {code, "application/json", body, {}, {}};
}

// A port of loopback that takes connections, as many as wait for it, and never answers.
struct Silence {
  Silence() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    EXPECT_EQ(::listen(fd.get(), 4), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  }
  OtlpEndpoint Place() const { return {"127.0.0.1:" + std::to_string(ntohs(at.sin_port)), "/"}; }
  UniqueFd fd;
  sockaddr_in at{};
};

TEST(OtlpPlaces, AreUrlsOfCollectors) {
  EXPECT_EQ(ParseOtlpEndpoint("http://127.0.0.1:4318")->Url(), "http://127.0.0.1:4318/v1/traces");
  EXPECT_EQ(ParseOtlpEndpoint("http://[::1]:4318/")->Url(), "http://[::1]:4318/v1/traces");
  EXPECT_EQ(ParseOtlpEndpoint("http://c:80/otlp/x?y=1")->Url(), "http://c:80/otlp/x?y=1");
  for (const char* url : {"http://c", "http://:4318", "http://c:0", "http://c:4318/a b",
                          "http://c:4318/a\r\nX: y", "http://unix:/x", "ftp://c:1", "http://"}) {
    const auto place = ParseOtlpEndpoint(url);
    ASSERT_FALSE(place.has_value()) << url;
    EXPECT_THAT(place.error().message(), HasSubstr("http://127.0.0.1:4318/v1/traces")) << url;
  }
  EXPECT_THAT(ParseOtlpEndpoint("http://me:secret@c:4318").error().message(),
              HasSubstr("no user and no password"));
  EXPECT_THAT(ParseOtlpEndpoint("https://c:4318").error().message(),
              HasSubstr("a collector on this host"));
}

TEST(OtlpPlaces, OfRecordsTakeOtlpAlone) {
  const auto parsed =
      ParseArgs({"records", "3", "--format", "otlp", "--to", "http://127.0.0.1:4318"});
  EXPECT_TRUE(parsed.invocation.has_value()) << parsed.text;
  const auto both =
      ParseArgs({"records", "3", "--format", "otlp,csv", "--to", "http://127.0.0.1:4318"});
  EXPECT_EQ(both.exit_code, kExitUsage);
  EXPECT_THAT(both.text, HasSubstr("--format otlp alone"));
  const auto secure = ParseArgs({"records", "3", "--format", "otlp", "--to", "https://c:4318"});
  EXPECT_EQ(secure.exit_code, kExitUsage);
  EXPECT_THAT(secure.text, HasSubstr("in the clear only"));
}

TEST(OtlpPost, SendsARequestAsItIs) {
  Collector collector(Says(200, R"({"partialSuccess":{}})"));
  const std::string body = R"({"resourceSpans":[]})" + std::string(300'000, ' ');
  const Status posted = PostOtlp(collector.At("/v1/traces"), body, kPatienceMs);
  ASSERT_TRUE(posted.ok()) << posted;
  EXPECT_EQ(collector.last().method, "POST");
  EXPECT_EQ(collector.last().path, "/v1/traces");
  EXPECT_EQ(collector.last().Header("content-type"), "application/json");
  EXPECT_EQ(collector.last().body, body);
}

TEST(OtlpPost, SaysWhatTheCollectorObjectsTo) {
  const auto post = [](int code, const std::string& body) {
    Collector collector(Says(code, body));
    return PostOtlp(collector.At(), "{}", kPatienceMs);
  };
  const Status refused = post(400, R"({"code":3,"message":"no traceId"})");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("answers 400"), HasSubstr("no traceId")));
  EXPECT_THAT(post(404, "").message(), HasSubstr("a collector does at /v1/traces"));
  const Status busy = post(503, "");
  EXPECT_EQ(busy.code(), StatusCode::kUnavailable);
  EXPECT_THAT(busy.message(), HasSubstr("again later"));
  const Status part =
      post(200, R"({"partialSuccess":{"rejectedSpans":"7","errorMessage":"too old\u001b"}})");
  EXPECT_EQ(part.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(part.message(), HasSubstr("has refused 7 of the spans: too old\\x1b"));
  EXPECT_TRUE(post(200, R"({"partialSuccess":{"rejectedSpans":"0","errorMessage":""}})").ok());
  EXPECT_TRUE(post(200, "").ok());
}

TEST(OtlpPost, EndsInTimeWhereNobodyAnswers) {
  const Silence silence;
  const Status late = PostOtlp(silence.Place(), "{}", 200);
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("has not taken the spans within"));
  const OtlpEndpoint gone = Silence().Place();
  const Status nobody = PostOtlp(gone, "{}", kPatienceMs);
  EXPECT_EQ(nobody.code(), StatusCode::kUnavailable);
  EXPECT_THAT(nobody.message(), AllOf(HasSubstr("nothing takes connections at " + gone.address),
                                      HasSubstr("start the collector")));
}

}  // namespace
}  // namespace meshwright::cli
