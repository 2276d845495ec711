// The page in Debian's Chromium: what it shows, what its buttons do, and that nothing complains.
//
// With MESHWRIGHT_PICTURES=FOLDER it writes what it sees there, for docs/page.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/deploy/tools.h"
#include "tests/page/browser.h"
#include "tests/page/page_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Page : public PageFixture {
 protected:
  void Look() {
    Begin();
    auto browser = Browser::Start();
    ASSERT_TRUE(browser.has_value()) << browser.error();
    browser_ = *std::move(browser);
  }
  void Open(const std::string& path) {
    ASSERT_TRUE(browser_->Open(Url(path)).ok());
    const Status ready = browser_->Await("document.querySelector('main').dataset.ready === 'true'");
    ASSERT_TRUE(ready.ok()) << ready;
  }
  void Expect(const std::string& expression) {
    const Status status = browser_->Await(expression, 60'000);
    EXPECT_TRUE(status.ok()) << status;
  }
  // That the page says this somewhere.
  void ExpectText(const std::string& text) {
    Expect(fmt::format("document.body.innerText.includes('{}')", text));
  }
  void Click(const std::string& selector) {
    const auto clicked =
        browser_->Value(fmt::format("document.querySelector('{}').click()", selector));
    EXPECT_TRUE(clicked.has_value()) << clicked.error();
  }
  void ClickButton(const std::string& text) {
    const auto clicked = browser_->Value(fmt::format(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === '{}').click()",
        text));
    EXPECT_TRUE(clicked.has_value()) << clicked.error();
  }
  void Keep(const std::string& name, const Browser::Window& window) {
    EXPECT_TRUE(browser_->Resize(window).ok());
    // Nothing sticks out to the right.
    Expect("document.documentElement.scrollWidth <= document.documentElement.clientWidth");
    const auto picture = browser_->Picture();
    ASSERT_TRUE(picture.has_value()) << picture.error();
    EXPECT_EQ(picture->substr(1, 3), "PNG");
    const char* const folder = std::getenv("MESHWRIGHT_PICTURES");
    if (folder == nullptr) return;
    EXPECT_TRUE(WriteFileAtomic(fmt::format("{}/{}.png", folder, name), *picture).ok());
  }

  std::unique_ptr<Browser> browser_;
};

TEST_F(Page, ShowsJobsAndTheirCurvesAsTheyLearn) {
  MW_NEEDS("chromium");
  Look();
  const int64_t done = Submit("warm-up", 60);
  ASSERT_TRUE(cluster_->Follow(done).has_value());
  const int64_t id = Submit("gpt-bytes", kLong);
  ASSERT_TRUE(cluster_->RunUntil(id, 20).ok());
  Open("/");
  ExpectText("gpt-bytes");
  ExpectText("running");
  ExpectText("2 of 2");
  Expect("document.getElementById('live').dataset.state === 'live'");
  Expect("document.querySelectorAll('.spark polyline').length >= 2");
  Expect("document.querySelectorAll('.tiles a').length === 2");
  // The row follows the job without anybody asking.
  Expect(
      "window.seen = window.seen || document.querySelector('.jobs .small').textContent, "
      "window.seen !== document.querySelector('.jobs .small').textContent");
  Keep("overview", {});
  Keep("overview-dark", {.dark = true});
  Keep("overview-phone", {.width = 390, .height = 844, .phone = true});
  ASSERT_TRUE(browser_->Resize({}).ok());
  Open(fmt::format("/#/jobs/{}", id));
  Expect("document.querySelector('.chart .line.c0').getAttribute('d').length > 50");
  ExpectText("Tokens per second");
  ExpectText("Memory by kind");
  Expect("document.querySelectorAll('.stack').length === 2");
  // The curve grows.
  Expect(
      "window.before = window.before || document.querySelector('figcaption output').textContent, "
      "window.before !== document.querySelector('figcaption output').textContent");
  Keep("job", {});
  Keep("job-dark", {.dark = true});
  Keep("job-phone", {.width = 390, .height = 844, .phone = true});
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(Page, ButtonsHaveTheirEffect) {
  MW_NEEDS("chromium");
  Look();
  const int64_t id = Submit("driven", kLong);
  ASSERT_TRUE(cluster_->RunUntil(id, 5).ok());
  Open(fmt::format("/#/jobs/{}", id));
  ExpectText("running");
  ClickButton("Save a checkpoint");
  ExpectText("A checkpoint is being saved");
  Expect(
      "[...document.querySelectorAll('.stat')].some((s) => "
      "/Checkpoint\\s+step/.test(s.innerText))");
  ClickButton("Pause");
  Expect("document.querySelector('.head .pill').dataset.state === 'PAUSED'");
  EXPECT_EQ(cluster_->client().Get(id).value().state, client::JobState::kPaused);
  ClickButton("Resume");
  Expect("document.querySelector('.head .pill').dataset.state === 'RUNNING'");
  // Stopping is asked for twice.
  ClickButton("Stop");
  Expect("document.getElementById('ask').open");
  ClickButton("Keep going");
  Expect("!document.getElementById('ask').open");
  EXPECT_EQ(cluster_->client().Get(id).value().state, client::JobState::kRunning);
  ClickButton("Stop");
  Click("#ask-yes");
  Expect("document.querySelector('.head .pill').dataset.state === 'CANCELLED'");
  EXPECT_EQ(cluster_->client().Get(id).value().state, client::JobState::kCancelled);
  Expect("document.querySelector('.actions').hidden");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// What tools asked stands aside once it has ended, until somebody wants to see it.
TEST_F(Page, EndedSessionsOfToolsAreShownWhenAskedFor) {
  MW_NEEDS("chromium");
  Look();
  const int64_t trained = Submit("trained", 3);
  ASSERT_TRUE(cluster_->Follow(trained).has_value());
  const auto asked =
      RunMeshwright({"--address", cluster_->address(), "evaluate", std::to_string(trained)});
  ASSERT_TRUE(asked.has_value() && asked->exit.ok()) << asked->stderr_text;
  Open("/");
  ExpectText("trained");
  ExpectText("1 ended session");
  const std::string shown = "document.querySelector('.jobs').innerText.includes('eval')";
  Expect("!" + shown);
  ClickButton("1 ended session");
  Expect(shown);
  Expect(
      "[...document.querySelectorAll('button')].some((b) => b.textContent === "
      "'1 ended session' && b.getAttribute('aria-pressed') === 'true')");
  ClickButton("1 ended session");
  Expect("!" + shown);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(Page, HasEveryViewAndIsWalkedByKeyboard) {
  MW_NEEDS("chromium");
  Look();
  const int64_t id = Submit("views", 30);
  ASSERT_TRUE(cluster_->Follow(id).has_value());
  Open(fmt::format("/#/jobs/{}/plan", id));
  Expect("document.querySelector('.picture img').naturalWidth > 100");
  ExpectText("Step, measured");
  ExpectText("h.{0-3}.");
  Keep("plan", {});
  Open(fmt::format("/#/jobs/{}/log", id));
  Expect("document.querySelectorAll('.events li').length > 2");
  Open(fmt::format("/#/jobs/{}/config", id));
  ExpectText("Folder on the controller");
  Open("/#/workers/w0");
  ExpectText("Devices and what runs on them");
  Keep("worker", {});
  Open("/#/events");
  ExpectText("submitted");
  Open("/#/config");
  ExpectText("state-dir");
  Open("/#/jobs/99");
  ExpectText("there is no job 99");
  browser_->ForgetComplaints();  // the browser names the 404 that this page asked for
  Open("/");
  // The first stop of the tab key leads past the head; workers are one stop, and arrows walk on.
  ASSERT_TRUE(browser_->Press("Tab").ok());
  Expect("document.activeElement.textContent === 'Skip to the content'");
  Expect("document.querySelectorAll('.tiles a[tabindex=\"0\"]').length === 1");
  ASSERT_TRUE(
      browser_->Value("document.querySelector('.tiles a[tabindex=\"0\"]').focus()").has_value());
  ASSERT_TRUE(browser_->Press("ArrowRight").ok());
  Expect("document.activeElement.getAttribute('aria-label').startsWith('w1 on')");
  // What has a picture has words, and what can be pressed has a name.
  Expect(
      "[...document.querySelectorAll('svg[role=img]')].every((s) => s.getAttribute('aria-label'))");
  Expect(
      "[...document.querySelectorAll('input, button, a')].every((e) => "
      "e.getAttribute('aria-label') || e.textContent.trim())");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(Page, GoesOnWhenTheControllerIsStartedAgain) {
  MW_NEEDS("chromium");
  Look();
  const int64_t first = Submit("before", 10);
  ASSERT_TRUE(cluster_->Follow(first).has_value());
  Open("/");
  ExpectText("before");
  ASSERT_TRUE(cluster_->controller().Terminate(10'000).has_value());
  const Status again = cluster_->RestartController();
  ASSERT_TRUE(again.ok()) << again;
  ASSERT_TRUE(cluster_->WaitReady(2).ok());
  const int64_t second = Submit("after-it", 10);
  ASSERT_TRUE(cluster_->Follow(second).has_value());
  ExpectText("after-it");
  Expect("document.getElementById('live').dataset.state === 'live'");
}

}  // namespace
}  // namespace meshwright::testing
