// The page's HTTP, asked of a real controller with a real job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/page/page_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageApi : public PageFixture {
 protected:
  std::string StateOf(int64_t id) {
    return Json(fmt::format("/api/v1/jobs/{}", id)).value("state", "");
  }
  bool AwaitState(int64_t id, const std::string& wanted) {
    const Deadline deadline = Deadline::After(60'000);
    while (StateOf(id) != wanted && !deadline.expired()) {
    }
    return StateOf(id) == wanted;
  }
};

TEST_F(PageApi, TellsOfAJobAsTheCommandDoes) {
  Begin();
  const int64_t id = Submit("curve", 40);
  const auto followed = cluster_->Follow(id);
  ASSERT_TRUE(followed.has_value()) << followed.error();
  const nlohmann::json jobs = Json("/api/v1/jobs");
  const ProcessOutput printed =
      RunMeshwright({"--address", cluster_->address(), "jobs", "-o", "json"}).value();
  EXPECT_EQ(jobs, nlohmann::json::parse(printed.stdout_text));
  const nlohmann::json curve = Json(fmt::format("/api/v1/jobs/{}/steps", id));
  ASSERT_EQ(curve["rows"].size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(curve["rows"][i][0], static_cast<int64_t>(i));
    EXPECT_DOUBLE_EQ(curve["rows"][i][2].get<double>(), followed->steps[i].loss);
  }
  const nlohmann::json plan = AwaitJson(fmt::format("/api/v1/jobs/{}/plan", id));
  EXPECT_EQ(plan["stages"].size(), 1u);
  EXPECT_GT(plan["forecast"]["step_s"].get<double>(), 0);
  EXPECT_THAT(Get(fmt::format("/api/v1/jobs/{}/plan.svg", id)).body, HasSubstr("<svg"));
  EXPECT_THAT(Get(fmt::format("/api/v1/jobs/{}/log", id)).body, HasSubstr("\"lines\":["));
  EXPECT_EQ(Json("/api/v1/workers").size(), 2u);
  EXPECT_EQ(Json("/api/v1/workers/w0")["jobs"].size(), 1u);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("meshwright_jobs{"));
  EXPECT_EQ(Get("/readyz").body, "ok\n");
  // What it knows outlives the controller.
  ASSERT_TRUE(cluster_->controller().Terminate(10'000).has_value());
  const Status again = cluster_->RestartController();
  ASSERT_TRUE(again.ok()) << again;
  EXPECT_EQ(AwaitJson(fmt::format("/api/v1/jobs/{}/steps", id))["rows"].size(), 40u);
}

TEST_F(PageApi, OrdersHaveTheirEffect) {
  Begin();
  const int64_t id = Submit("driven", kLong);
  ASSERT_TRUE(cluster_->RunUntil(id, 5).ok());
  const std::string job = fmt::format("/api/v1/jobs/{}", id);
  EXPECT_EQ(Json(job)["checkpoint_step"], nullptr);
  EXPECT_EQ(Post(job + "/checkpoint").code, 200);
  const Deadline deadline = Deadline::After(60'000);
  while (Json(job)["checkpoint_step"].is_null() && !deadline.expired()) {
  }
  EXPECT_GE(Json(job)["checkpoint_step"].get<int64_t>(), 1);
  EXPECT_EQ(StateOf(id), "RUNNING");  // it goes on
  EXPECT_EQ(Post(job + "/pause").code, 200);
  EXPECT_TRUE(AwaitState(id, "PAUSED"));
  EXPECT_EQ(Post(job + "/checkpoint").code, 503);
  EXPECT_EQ(Post(job + "/resume").code, 200);
  EXPECT_TRUE(AwaitState(id, "RUNNING"));
  EXPECT_EQ(Post(job + "/stop", "Origin: http://evil.example\r\n").code, 403);
  EXPECT_EQ(Post(job + "/stop", "Origin: http://localhost\r\n").code, 200);
  EXPECT_TRUE(AwaitState(id, "CANCELLED"));
  EXPECT_EQ(Post(job + "/checkpoint").code, 409);
  EXPECT_EQ(Post("/api/v1/jobs/99/stop").code, 404);
}

TEST_F(PageApi, AStreamTellsStepsAsTheyAreDone) {
  Begin();
  const int64_t id = Submit("live", kLong);
  ASSERT_TRUE(cluster_->RunUntil(id, 3).ok());
  const HttpAnswer stream =
      AskHttp(port(), {.path = fmt::format("/api/v1/stream?job={}", id)}, [](const auto& body) {
        return body.find("event: jobs\n") != std::string::npos &&
               body.find("event: steps\n") != body.rfind("event: steps\n");
      });
  EXPECT_EQ(stream.code, 200);
  EXPECT_THAT(stream.header, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(stream.body, HasSubstr("event: hello\n"));
  EXPECT_THAT(stream.body, HasSubstr(fmt::format("data: {{\"job\":{},\"steps\":[", id)));
  EXPECT_EQ(Post(fmt::format("/api/v1/jobs/{}/stop", id)).code, 200);
}

TEST_F(PageApi, TokensAreWantedWhereThereAreSome) {
  TempDir dir = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(dir.File("look"), "look\n", 0600).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.File("act"), "act\n", 0600).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.File("scrape"), "scrape\n", 0600).ok());
  Begin({"--page-token-file", dir.File("look"), "--operator-token-file", dir.File("act"),
         "--scrape-token-file", dir.File("scrape")});
  EXPECT_EQ(Get("/healthz").code, 200);
  EXPECT_EQ(Get("/readyz").code, 200);
  EXPECT_EQ(Get("/metrics").code, 401);
  EXPECT_EQ(Get("/metrics", "Authorization: Bearer look\r\n").code, 401);
  EXPECT_EQ(Get("/metrics", "Authorization: Bearer scrape\r\n").code, 200);
  EXPECT_EQ(Get("/api/v1/prometheus/targets").code, 401);
  EXPECT_EQ(Get("/api/v1/overview").code, 401);
  EXPECT_EQ(Get("/api/v1/overview", "Authorization: Bearer look\r\n").code, 200);
  const HttpAnswer login = Post("/login", "Origin: http://localhost\r\n", "token=look");
  EXPECT_EQ(login.code, 303);
  const size_t at = login.header.find("meshwright_page=");
  ASSERT_NE(at, std::string::npos) << login.header;
  const std::string cookie =
      "Cookie: " + login.header.substr(at, login.header.find(';', at) - at) + "\r\n";
  EXPECT_EQ(Get("/api/v1/overview", cookie).code, 200);
  EXPECT_EQ(Post("/api/v1/jobs/1/stop", cookie + "Origin: http://localhost\r\n").code, 403);
  EXPECT_EQ(Get("/openapi.json").code, 200);
}

TEST(PageStart, OffLoopbackThePageIsNotThereOrIsRefused) {
  TempDir dir = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(dir.File("token"), "cluster\n", 0600).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.File("look"), "look\n", 0600).ok());
  const ProcessOutput refused =
      RunMeshwright({"--token-file", dir.File("token"), "controller", "--bind", "0.0.0.0", "--port",
                     "0", "--metrics-port", "0", "--state-dir", dir.File("state"),
                     "--page-token-file", dir.File("look")})
          .value();
  EXPECT_EQ(refused.exit.code, 2);
  EXPECT_THAT(refused.stderr_text, HasSubstr("--page-behind-tls"));
}

}  // namespace
}  // namespace meshwright::testing
