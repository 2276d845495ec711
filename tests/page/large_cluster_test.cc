// The page of a cluster of a thousand workers in which ten thousand things have happened.
//
// The cluster is one that the test writes down; the site, its stream, the HTTP server and the
// browser are the real ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/http_server.h"
#include "base/mutex.h"
#include "tests/deploy/tools.h"
#include "tests/page/looks.h"
#include "tests/unit/web/fake_cluster.h"
#include "web/site.h"

namespace meshwright::testing {
namespace {

using ::testing::IsEmpty;

constexpr int kWorkers = 1000;
constexpr int kDevices = 8;  // of each

// Changes while it is looked at.
class ChangingCluster final : public web::FakeCluster {
 public:
  ChangingCluster() {
    AddJob(7, proto::JobState::kRunning);
    files["gpu-0000/log"] = "it is ready\n";
    for (int i = 0; i < kWorkers; ++i) AddWorker(fmt::format("gpu-{:04}", i), kDevices, i % 9);
  }

  Result<web::ClusterState> Look() override {
    const MutexLock lock(mutex_);
    return FakeCluster::Look();
  }
  Result<web::ClusterState> Tiles() override {
    const MutexLock lock(mutex_);
    return FakeCluster::Tiles();
  }
  Result<std::vector<controller::EventRecord>> Events(int64_t job, int64_t most) override {
    const MutexLock lock(mutex_);
    return FakeCluster::Events(job, most);
  }

  void Happen(int count) {
    const MutexLock lock(mutex_);
    for (int i = 0; i < count; ++i) {
      events.push_back({SystemClock().UnixMs(), i % 2 == 0 ? 7 : 0,
                        fmt::format("thing {} on gpu-{:04}", ++happened_, i % kWorkers)});
    }
  }
  void Drain() {
    const MutexLock lock(mutex_);
    for (proto::WorkerInfo& worker : state.workers) {
      worker.state = "DRAINING";
      worker.busy_devices = 0;
    }
  }

 private:
  Mutex mutex_;
  int happened_ = 0;
};

class LargeCluster : public ::testing::Test, public Looks {
 protected:
  void Begin() {
    auto cluster = std::make_unique<ChangingCluster>();
    cluster_ = cluster.get();
    site_ = web::MakeSite(std::move(cluster), {}, SystemClock());
    auto server =
        HttpServer::Start({}, [this](const HttpRequest& asked) { return site_->Answer(asked); });
    ASSERT_TRUE(server.has_value()) << server.error();
    server_ = *std::move(server);
    StartBrowser();
  }
  void TearDown() override {
    browser_.reset();
    if (site_ != nullptr) site_->Stop();
    server_.reset();
  }
  void Open(const std::string& path) {
    OpenUrl(fmt::format("http://127.0.0.1:{}{}", server_->port(), path));
  }
  void Type(const std::string& label, const std::string& text) {
    const auto typed = browser_->Value(fmt::format(
        "(() => {{ const field = document.querySelector('input[aria-label=\"{}\"]'); "
        "field.value = '{}'; field.dispatchEvent(new Event('input')); return true; }})()",
        label, text));
    ASSERT_TRUE(typed.has_value()) << typed.error();
  }

  ChangingCluster* cluster_ = nullptr;
  std::unique_ptr<controller::Site> site_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(LargeCluster, AThousandWorkersAreSeenFoundAndFollowed) {
  MW_NEEDS("chromium");
  Begin();
  Open("/");
  ExpectText("1000 ready");
  Expect("document.querySelectorAll('.tiles a').length === 1000");
  // Those of 0 devices at work in 8, of some, and of all.
  Expect("document.querySelectorAll('.tiles a[data-use=free]').length === 112");
  Expect("document.querySelectorAll('.tiles a[data-use=part]').length === 777");
  Expect("document.querySelectorAll('.tiles a[data-use=busy]').length === 111");
  Keep("thousand", {});
  Keep("thousand-phone", {.width = 390, .height = 844, .dark = true, .phone = true});
  ASSERT_TRUE(browser_->Resize({}).ok());
  // The keyboard reaches the last one without a thousand stops.
  Expect("document.querySelectorAll('.tiles a[tabindex=\"0\"]').length === 1");
  ASSERT_TRUE(
      browser_->Value("document.querySelector('.tiles a[tabindex=\"0\"]').focus()").has_value());
  ASSERT_TRUE(browser_->Press("End").ok());
  Expect("document.activeElement.getAttribute('aria-label').startsWith('gpu-0999: ready')");
  Type("Workers to show", "gpu-0123");
  Expect("document.querySelectorAll('.tiles li:not([hidden]) a[tabindex=\"0\"]').length === 1");
  Expect("document.querySelectorAll('.tiles li:not([hidden])').length === 1");
  // Each has its place again.
  Type("Workers to show", "");
  Expect("document.querySelectorAll('.tiles li:not([hidden])').length === 1000");
  // All of them change at once: their tiles come a part at a time.
  cluster_->Drain();
  Expect("document.querySelectorAll('.tiles a[data-use=closed]').length === 1000");
  ExpectText("1000 draining");
  Click(".tiles a");
  ExpectText("Devices and what runs on them");
  ExpectText("it is ready");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(LargeCluster, TenThousandEventsAreToldAndFound) {
  MW_NEEDS("chromium");
  Begin();
  Open("/#/events");
  // Some at a time, as they are told; then many more than are told in a look.
  for (int i = 1; i <= 3; ++i) {
    cluster_->Happen(50);
    ExpectText(fmt::format("thing {} on", 50 * i));
  }
  cluster_->Happen(9850);
  ExpectText("thing 10000 on");
  ExpectText("300 of 1,000 in the newest 1,000");
  Expect("document.querySelectorAll('.events li').length === 300");
  ClickButton("Show more");
  Expect("document.querySelectorAll('.events li').length === 600");
  Keep("events", {.width = 390, .height = 844, .phone = true});
  ClickButton("Look further back");
  ExpectText("600 of 10,000 in the newest 10,000");
  Type("Events to show", "thing 17 on");
  ExpectText("1 of 1 found in the newest 10,000");
  ExpectText("thing 17 on gpu-0016");
  // What happens meanwhile is told as before.
  Type("Events to show", "");
  cluster_->Happen(20);
  ExpectText("thing 10020 on");
  ExpectText("300 of 10,000 in the newest 10,000");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

}  // namespace
}  // namespace meshwright::testing
