#include "web/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "tests/fake_clock.h"
#include "tests/unit/web/fake_cluster.h"
#include "web/assets.h"

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Takes so many bytes, and is gone then.
// Is gone when it has been told this.
class ShortStream final : public HttpStream {
 public:
  explicit ShortStream(std::string last) : last_(std::move(last)) {}
  bool Write(std::string_view text) override {
    text_ += text;
    return text_.find(last_) == std::string::npos;
  }
  const std::string& text() const { return text_; }

 private:
  std::string last_;
  std::string text_;
};

class SiteTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cluster = std::make_unique<FakeCluster>();
    cluster_ = cluster.get();
    cluster_->AddJob(7, proto::JobState::kRunning);
    cluster_->AddSteps(7, 1000);
    cluster_->AddWorker("w0", 2, 1);
    cluster_->state.device_jobs["w0"] = {7, 0};
    cluster_->state.device_runs["w0"] = {{0, JobId(7), 3, 1, {{"step", 120}, {"eval", 40}}}};
    cluster_->events = {{5, 7, "job 7 runs"}, {6, 0, "w0 joined"}};
    cluster_->files = {
        {"7/plan.json", "{\"fits\":true}"},     {"7/plan.svg", "<svg/>"},
        {"7/measured.svg", "<svg/>"},           {"7/timeline.json", "{\"traceEvents\":[]}"},
        {"7/parts.json", "{\"first_step\":2}"}, {"7/job.log", "one\ntwo\n"},
        {"7/config.resolved.toml", "[model]\n"}};
    Fill(*cluster_);
    SiteOptions options;
    options.access = access_;
    options.feed.viewers = 2;
    options.settings = {{"bind", "127.0.0.1"}};
    options.keepalive_ms = 1;
    audit_ = controller::AuditLog::Open(dir_.File("audit.jsonl"), clock_).value();
    options.audit = audit_.get();
    site_ = MakeSite(std::move(cluster), options, clock_);
  }

  // What a test has beside that. It stands before the site does, as the site's watcher looks at
  // the cluster from a thread of its own.
  virtual void Fill(FakeCluster& /*cluster*/) {}

  HttpReply Ask(const std::string& method, const std::string& path,
                std::map<std::string, std::string> headers = {}) {
    HttpRequest request;
    request.method = method;
    const size_t mark = path.find('?');
    request.path = path.substr(0, mark);
    if (mark != std::string::npos) request.query = path.substr(mark + 1);
    request.headers = {{"host", "localhost:7780"}};
    request.from = "ipv4:10.0.0.2:40312";
    for (const auto& [name, value] : headers) request.headers[name] = value;
    return site_->Answer(request);
  }
  Json Get(const std::string& path) {
    const HttpReply reply = Ask("GET", path);
    EXPECT_EQ(reply.code, 200) << path << " " << reply.body;
    return Json::parse(reply.body, nullptr, false);
  }
  static std::string HeaderOf(const HttpReply& reply, const std::string& name) {
    for (const auto& [known, value] : reply.headers) {
      if (known == name) return value;
    }
    return "";
  }

  std::vector<Json> Audited() {
    std::vector<Json> lines;
    for (const std::string& line : Split(ReadFile(dir_.File("audit.jsonl")).value_or(""), '\n')) {
      if (!line.empty()) lines.push_back(Json::parse(line));
    }
    return lines;
  }

  FakeClock clock_;
  TempDir dir_ = TempDir::Make().value();
  std::unique_ptr<controller::AuditLog> audit_;
  AccessOptions access_;
  FakeCluster* cluster_ = nullptr;
  std::unique_ptr<controller::Site> site_;
};

TEST_F(SiteTest, ServesThePageUnderAStrictPolicy) {
  const HttpReply page = Ask("GET", "/");
  EXPECT_EQ(page.code, 200);
  EXPECT_THAT(page.content_type, HasSubstr("text/html"));
  const std::string policy = HeaderOf(page, "Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  // By "no-referrer" browsers would say "null" of the page's own form.
  EXPECT_EQ(HeaderOf(page, "Referrer-Policy"), "same-origin");
  const std::string tag = HeaderOf(page, "ETag");
  ASSERT_FALSE(tag.empty());
  const HttpReply again = Ask("GET", "/", {{"if-none-match", tag}});
  EXPECT_EQ(again.code, 304);
  EXPECT_EQ(again.body, "");
}

TEST_F(SiteTest, ThePageIsSmallAndMadeOfWhatIsHere) {
  size_t bytes = 0;
  std::set<std::string> names;
  for (const Asset& asset : Assets()) {
    bytes += asset.bytes.size();
    names.insert(std::string(asset.name));
    EXPECT_EQ(Ask("GET", "/" + std::string(asset.name)).code, 200) << asset.name;
    // Nothing is fetched from elsewhere, and nothing runs that is not a file of ours.
    for (const char* word :
         {"https://", "src=\"http", "innerHTML", "eval(", " style=\"", "onclick=\""}) {
      EXPECT_THAT(std::string(asset.bytes), Not(HasSubstr(word))) << asset.name;
    }
  }
  EXPECT_LT(bytes, 150u << 10);
  EXPECT_TRUE(names.contains("index.html") && names.contains("app.js"));
}

TEST_F(SiteTest, OverviewHasAllThatTheFirstPageShows) {
  const Json overview = Get("/api/v1/overview");
  EXPECT_EQ(overview["role"], "operator");
  EXPECT_EQ(overview["jobs"][0]["id"], 7);
  EXPECT_EQ(overview["jobs"][0]["state"], "RUNNING");
  EXPECT_EQ(overview["workers"][0], Json::parse(R"(["w0","READY",2,1,"host",""])"));
  EXPECT_EQ(overview["totals"]["busy_devices"], 1);
  EXPECT_EQ(overview["events"].size(), 2u);
}

TEST_F(SiteTest, JobsAndTheirParts) {
  EXPECT_EQ(Get("/api/v1/jobs").size(), 1u);
  const Json job = Get("/api/v1/jobs/7");
  EXPECT_EQ(job["recoveries"], 2);
  EXPECT_EQ(job["devices"], Json::parse(R"([["w0",1]])"));
  const Json curve = Get("/api/v1/jobs/7/steps?points=10");
  EXPECT_LE(curve["rows"].size(), 10u);
  EXPECT_EQ(curve["last_step"], 999);
  EXPECT_EQ(Get("/api/v1/jobs/7/events").size(), 1u);
  EXPECT_EQ(Get("/api/v1/jobs/7/log")["lines"], Json::parse(R"(["one","two"])"));
  EXPECT_EQ(Get("/api/v1/jobs/7/plan")["fits"], true);
  const HttpReply picture = Ask("GET", "/api/v1/jobs/7/plan.svg");
  EXPECT_EQ(picture.content_type, "image/svg+xml");
  EXPECT_THAT(HeaderOf(picture, "Content-Security-Policy"), HasSubstr("sandbox"));
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7/config").body, "[model]\n");
}

// The end of JSON is none: a file that is too long is said to be so.
TEST_F(SiteTest, FilesThatHaveToBeWholeAreWholeOrAnError) {
  std::string longest = "\"";
  longest.resize((4 << 20) - 1, 'x');
  cluster_->files["7/plan.json"] = longest + "\"";
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7/plan").code, 200);
  const std::string more = cluster_->files["7/plan.json"] + " ";
  cluster_->files["7/plan.json"] = more;
  cluster_->files["7/plan.svg"] = more;
  cluster_->files["7/plan.txt"] = more;
  const HttpReply plan = Ask("GET", "/api/v1/jobs/7/plan");
  EXPECT_EQ(plan.code, 413);
  EXPECT_THAT(plan.body, HasSubstr("plan.json of job 7 is longer than the 4.00 MiB"));
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7/plan.svg").code, 413);
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7/plan.txt").code, 200) << "of a text the end will do";
}

TEST_F(SiteTest, WorkersHistoryAndConfiguration) {
  EXPECT_EQ(Get("/api/v1/workers")[0]["name"], "w0");
  EXPECT_EQ(Get("/api/v1/workers/w0")["jobs"], Json::parse("[7,0]"));
  EXPECT_EQ(Get("/api/v1/workers/w0")["runs"],
            Json::parse(R"([{"device":0,"job":7,"programs":{"eval":40,"step":120},"rank":3,
                             "stage":1}])"));
  EXPECT_EQ(Get("/api/v1/config")["bind"], "127.0.0.1");
  EXPECT_EQ(Get("/api/v1/history?hours=2")["columns"][0], "unix_ms");
  EXPECT_EQ(Get("/api/v1/events?limit=1")[0]["text"], "w0 joined");
}

TEST_F(SiteTest, AWorkersLogComesInPieces) {
  cluster_->files["w0/log"] = "one\ntwo\n";
  const Json log = Get("/api/v1/workers/w0/log?lines=50&from=12&job=7&kept=1");
  EXPECT_EQ(log["lines"], Json::parse(R"(["one","two"])"));
  EXPECT_EQ(log["next"], 77);
  EXPECT_EQ(log["live"], false);
  EXPECT_EQ(cluster_->asked.what.lines, 50);
  EXPECT_EQ(cluster_->asked.what.from, 12);
  EXPECT_EQ(cluster_->asked.what.job, 7);
  EXPECT_TRUE(cluster_->asked.kept);
  EXPECT_EQ(Get("/api/v1/workers/w0/log")["live"], true);
  EXPECT_EQ(cluster_->asked.what.from, -1) << "the last lines, where no position is said";
  EXPECT_EQ(cluster_->asked.what.lines, 200);
  EXPECT_EQ(Ask("GET", "/api/v1/workers/w9/log").code, 404);
  EXPECT_EQ(Get("/api/v1/jobs/7/hang")["stalled"], false);
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/8/hang").code, 404);
}

TEST_F(SiteTest, WhatIsNotThereIsSaidWithItsCode) {
  for (const char* path :
       {"/x", "/../state.db", "/api/v1/x", "/api/v1/", "/api/v1/jobs/8", "/api/v1/jobs/8/plan",
        "/api/v1/jobs/7/secret", "/api/v1/jobs/7/plan/more", "/api/v1/jobs/x", "/api/v1/jobs/",
        "/api/v1/jobs/-7", "/api/v1/jobs/7%00", "/api/v1/workers/w9", "/api/v1/workers/w0/x",
        "/api/v1/jobs/99999999999999999999", "/api/v1//jobs"}) {
    const HttpReply reply = Ask("GET", path);
    EXPECT_EQ(reply.code, 404) << path;
  }
  EXPECT_THAT(Ask("GET", "/api/v1/jobs/8").body, HasSubstr("{\"error\":\"there is no job 8\"}"));
  EXPECT_EQ(Ask("DELETE", "/api/v1/jobs/7").code, 405);
  // Numbers outside of their bounds are brought inside.
  EXPECT_LE(Get("/api/v1/jobs/7/steps?points=0")["rows"].size(), 1u);
  EXPECT_EQ(Get("/api/v1/jobs/7/steps?points=x")["rows"].size(), 500u);
}

TEST_F(SiteTest, OrdersReachTheCluster) {
  for (const char* word : {"stop", "pause", "resume", "checkpoint"}) {
    EXPECT_EQ(Ask("POST", std::string("/api/v1/jobs/7/") + word).code, 200) << word;
  }
  using Orders = std::vector<std::pair<int64_t, JobOrder>>;
  EXPECT_EQ(cluster_->orders, (Orders{{7, JobOrder::kStop},
                                      {7, JobOrder::kPause},
                                      {7, JobOrder::kResume},
                                      {7, JobOrder::kCheckpoint}}));
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/explode").code, 404);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7").code, 404);
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7/stop").code, 404);
  cluster_->refuses = FailedPrecondition("job 7 has already ended: \"x\"");
  const HttpReply refused = Ask("POST", "/api/v1/jobs/7/stop");
  EXPECT_EQ(refused.code, 409);
  EXPECT_EQ(Json::parse(refused.body)["error"], "job 7 has already ended: \"x\"");
  EXPECT_EQ(cluster_->orders.size(), 4u);
}

TEST_F(SiteTest, AnotherPageCannotOrderAnything) {
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"origin", "http://evil.example"}}).code, 403);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"host", "evil.example"}}).code, 403);
  EXPECT_EQ(Ask("GET", "/api/v1/overview", {{"host", "evil.example"}}).code, 403);
  EXPECT_EQ(Ask("GET", "/", {{"host", "evil.example"}}).code, 403);
  EXPECT_TRUE(cluster_->orders.empty());
}

class TokenSiteTest : public SiteTest {
 protected:
  TokenSiteTest() { access_ = {"look", "act", true}; }
};

TEST_F(TokenSiteTest, WithoutATokenThereIsAFormAndNothingElse) {
  EXPECT_THAT(Ask("GET", "/").body, HasSubstr("<form method=\"post\" action=\"/login\""));
  for (const char* path :
       {"overview", "jobs", "jobs/7", "jobs/8", "workers", "stream", "config", "x"}) {
    EXPECT_EQ(Ask("GET", std::string("/api/v1/") + path).code, 401) << path;
  }
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop").code, 401);
  const std::map<std::string, std::string> viewer = {{"authorization", "Bearer look"}};
  EXPECT_THAT(Ask("GET", "/", viewer).body, HasSubstr("app.js"));
  EXPECT_EQ(Ask("GET", "/api/v1/jobs/7", viewer).code, 200);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", viewer).code, 403);
  EXPECT_TRUE(cluster_->orders.empty());
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"authorization", "Bearer act"}}).code, 200);
}

TEST_F(TokenSiteTest, WhatIsDoneAndRefusedIsWrittenDownWithWhoAndWhere) {
  const std::map<std::string, std::string> viewer = {{"authorization", "Bearer look"}};
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"authorization", "Bearer act"}}).code, 200);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/checkpoint", viewer).code, 403);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"authorization", "Bearer x"}}).code, 401);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/anything", {{"authorization", "Bearer x"}}).code, 401);
  EXPECT_EQ(Ask("GET", "/api/v1/overview").code, 401);
  EXPECT_EQ(Ask("GET", "/api/v1/overview", viewer).code, 200);  // it only looks
  EXPECT_EQ(Ask("POST", "/login").code, 303);
  const Json wanted[] = {{"the operator's token", "operator", "page/stop", "job 7", "ok"},
                         {"the viewer's token", "viewer", "page/checkpoint", "job 7", "may not"},
                         {"", "", "page/stop", "", "wrong token"},
                         {"", "", "page/act", "", "wrong token"},
                         {"", "", "page/look", "", "wants a token"},
                         {"", "", "page/login", "", "wrong token"}};
  const std::vector<Json> lines = Audited();
  ASSERT_EQ(lines.size(), std::size(wanted));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["who"], wanted[i][0]) << lines[i];
    EXPECT_EQ(lines[i]["role"], wanted[i][1]) << lines[i];
    EXPECT_EQ(lines[i]["from"], "ipv4:10.0.0.2:40312") << lines[i];
    EXPECT_EQ(lines[i]["what"], wanted[i][2]) << lines[i];
    EXPECT_EQ(lines[i]["on"], wanted[i][3]) << lines[i];
    EXPECT_THAT(lines[i]["answer"].get<std::string>(), HasSubstr(wanted[i][4].get<std::string>()));
  }
}

TEST_F(TokenSiteTest, TheFormHasItsIcon) {
  EXPECT_EQ(Ask("GET", "/favicon.ico").content_type, "image/svg+xml");
  EXPECT_THAT(Ask("GET", "/").body, HasSubstr("href=\"/icon.svg\""));
}

TEST_F(SiteTest, WithoutTokensNobodyHasARole) {
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/pause").code, 200);
  EXPECT_EQ(Ask("POST", "/api/v1/jobs/7/stop", {{"origin", "http://evil.example"}}).code, 403);
  const std::vector<Json> lines = Audited();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["who"], "");
  EXPECT_EQ(lines[0]["role"], "");
  EXPECT_EQ(lines[0]["answer"], "ok");
  EXPECT_EQ(lines[1]["on"], "job 7");
  EXPECT_THAT(lines[1]["answer"].get<std::string>(), HasSubstr("another page"));
}

class ExpiringTokenSiteTest : public SiteTest {
 protected:
  ExpiringTokenSiteTest() {
    EXPECT_TRUE(WriteFileAtomic(tokens_.File("look"), "look", 0600).ok());
    access_ = {LiveToken::InFile(tokens_.File("look"), clock_).value(), "act", true};
  }
  TempDir tokens_ = TempDir::Make().value();
};

TEST_F(ExpiringTokenSiteTest, AStreamEndsWithItsToken) {
  const HttpReply reply = Ask("GET", "/api/v1/stream", {{"authorization", "Bearer look"}});
  ASSERT_TRUE(reply.stream);
  ASSERT_TRUE(WriteFileAtomic(tokens_.File("look"), "other", 0600).ok());
  clock_.AdvanceMs(LiveToken::kLookMs);
  ShortStream stream("never said");
  reply.stream(stream);  // returns
  EXPECT_THAT(stream.text(), HasSubstr("event: hello\n"));
}

TEST_F(SiteTest, AStreamSaysHelloAndThatItLives) {
  const HttpReply reply = Ask("GET", "/api/v1/stream?job=7");
  ASSERT_TRUE(reply.stream);
  EXPECT_EQ(reply.content_type, "text/event-stream");
  ShortStream stream(":\n\n");
  reply.stream(stream);
  EXPECT_THAT(stream.text(), HasSubstr("event: hello\n"));
  EXPECT_THAT(stream.text(), HasSubstr(":\n\n"));
}

TEST_F(SiteTest, ViewersAreCountedUntilTheirAnswersGo) {
  auto one = std::make_unique<HttpReply>(Ask("GET", "/api/v1/stream"));
  const HttpReply two = Ask("GET", "/api/v1/stream");
  const HttpReply three = Ask("GET", "/api/v1/stream");
  EXPECT_EQ(three.code, 503);
  EXPECT_EQ(HeaderOf(three, "Retry-After"), "5");
  one.reset();
  EXPECT_EQ(Ask("GET", "/api/v1/stream").code, 200);
}

class ToolSessionsSiteTest : public SiteTest {
 protected:
  void Fill(FakeCluster& cluster) override {
    for (int64_t id = 100; id < 400; ++id) {
      cluster.AddJob(id, proto::JobState::kSucceeded);
      cluster.state.jobs.front().tool = "generate";
    }
  }
};

TEST_F(ToolSessionsSiteTest, EndedOnesLeaveTheOverviewToJobs) {
  const Json jobs = Get("/api/v1/overview")["jobs"];
  EXPECT_EQ(jobs[0]["id"], 399);
  EXPECT_EQ(jobs[0]["tool"], "generate");
  EXPECT_EQ(jobs.back()["id"], 7) << "older than all of them";
  EXPECT_GT(Get("/api/v1/jobs").size(), 300u);
}

TEST_F(SiteTest, StoppingEndsStreams) {
  const HttpReply reply = Ask("GET", "/api/v1/stream");
  site_->Stop();
  ShortStream stream("never said");
  reply.stream(stream);  // returns
  EXPECT_EQ(Ask("GET", "/api/v1/stream").code, 503);
}

// Every path that the description has is there, and the answers have what it says.
TEST_F(SiteTest, TheDescriptionIsOfTheseAnswers) {
  cluster_->files["w0/log"] = "a line\n";
  const Json api = Get("/openapi.json");
  ASSERT_EQ(api["openapi"], "3.1.0");
  for (const auto& [path, methods] : api["paths"].items()) {
    if (path == "/prometheus/targets") continue;  // the metrics' server has it
    std::string real = "/api/v1" + path;
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"{id}", "7"}, {"{name}", "w0"}}) {
      if (const size_t at = real.find(name); at != std::string::npos)
        real.replace(at, name.size(), value);
    }
    for (const auto& [method, what] : methods.items()) {
      if (path == "/jobs/{id}/plan.txt") continue;  // this job has none
      EXPECT_EQ(Ask(method == "get" ? "GET" : "POST", real).code, 200) << real;
    }
  }
  const auto& schemas = api["components"]["schemas"];
  const std::pair<const char*, Json> answers[] = {{"Job", Get("/api/v1/jobs")[0]},
                                                  {"Worker", Get("/api/v1/workers")[0]},
                                                  {"Overview", Get("/api/v1/overview")}};
  for (const auto& [schema, answer] : answers) {
    for (const auto& [name, value] : answer.items()) {
      EXPECT_TRUE(schemas[schema]["properties"].contains(name)) << name;
    }
  }
}

}  // namespace
}  // namespace meshwright::web
