// The page in Debian's Chromium: what it shows, what its buttons do, and that nothing complains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/deploy/tools.h"
#include "tests/page/looks.h"
#include "tests/page/page_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Page : public PageFixture, public Looks {
 protected:
  void Look(std::vector<std::string> controller_args = {}) {
    Begin(std::move(controller_args));
    StartBrowser();
  }
  void Open(const std::string& path) { OpenUrl(Url(path)); }
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

// A controller that wants tokens, and its form.
class LoggedInPage : public Page {
 protected:
  void LookWithTokens() {
    ASSERT_TRUE(WriteFileAtomic(dir_.File("look"), "look\n", 0600).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_.File("act"), "act\n", 0600).ok());
    Look({"--page-token-file", dir_.File("look"), "--operator-token-file", dir_.File("act")});
  }
  // Types the token and presses the button.
  void Login(const std::string& token) {
    ASSERT_TRUE(browser_->Open(Url()).ok());
    Expect("document.getElementById('token')");
    const auto typed =
        browser_->Value(fmt::format("document.getElementById('token').value = '{}'", token));
    ASSERT_TRUE(typed.has_value()) << typed.error();
    ClickButton("Log in");
  }
  bool Ran(int64_t job) {
    return cluster_->client().Get(job).value().state == client::JobState::kRunning;
  }

  TempDir dir_ = TempDir::Make().value();
};

TEST_F(LoggedInPage, AViewerLooksAndAnOperatorStops) {
  MW_NEEDS("chromium");
  LookWithTokens();
  const int64_t id = Submit("guarded", kLong);
  ASSERT_TRUE(cluster_->RunUntil(id, 5).ok());
  Login("guess");
  ExpectText("Wrong token");
  const std::string stop =
      "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Stop')";
  Login("look");
  Expect("document.querySelector('main').dataset.ready === 'true'");
  // Nothing that runs here can read the cookie.
  Expect("document.cookie === ''");
  Open(fmt::format("/#/jobs/{}", id));
  ExpectText("guarded");
  Expect("document.querySelector('.actions').hidden && " + stop);
  EXPECT_TRUE(Ran(id));
  Open("/#/config");
  ClickButton("Log out");
  Expect("document.getElementById('token')");
  Login("act");
  Expect("document.querySelector('main').dataset.ready === 'true'");
  Open(fmt::format("/#/jobs/{}", id));
  Expect("!document.querySelector('.actions').hidden");
  ClickButton("Stop");
  Click("#ask-yes");
  Expect("document.querySelector('.head .pill').dataset.state === 'CANCELLED'");
  EXPECT_FALSE(Ran(id));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// The form on a page of somebody else: its Origin is "null", and another page's.
TEST_F(LoggedInPage, AStrangersFormDoesNotLogIn) {
  MW_NEEDS("chromium");
  LookWithTokens();
  const std::string form = fmt::format(
      "data:text/html,<form method=post action={}login><input name=token "
      "value=act><button>Log in</button></form>",
      Url());
  ASSERT_TRUE(browser_->Open(form).ok());
  Expect("document.querySelector('form')");
  ClickButton("Log in");
  ExpectText("this came from another page");
  ASSERT_TRUE(browser_->Open(Url()).ok());
  Expect("document.getElementById('token')");
}

// What stands for several steps says so, and what is measured says of which steps it is.
TEST_F(Page, NumbersSayOfWhichStepsTheyAre) {
  MW_NEEDS("chromium");
  Look();
  const int64_t id = Submit("many-steps", 700);
  ASSERT_TRUE(cluster_->Follow(id).has_value());
  Open(fmt::format("/#/jobs/{}", id));
  ExpectText("mean of steps 699 to 700: loss");
  Expect("![...document.querySelectorAll('.at')].some((at) => at.textContent.startsWith('step'))");
  // Labels of axes stay within their picture.
  Expect(
      "[...document.querySelectorAll('.chart')].every((chart) => "
      "[...chart.querySelectorAll('text.x')].every((text) => { const box = text.getBBox(); "
      "return box.x >= 0 && box.x + box.width <= chart.clientWidth; }))");
  ExpectText("in the last 24 hours");
  Open(fmt::format("/#/jobs/{}/plan", id));
  ExpectText("The picture is of step");
  Expect("/Measured, (mean of steps|step) [0-9]/.test(document.body.innerText)");
  ExpectText("× the forecast; mean of steps 6");
  ExpectText("waiting for slower members");
  Expect("!document.body.innerText.includes('stragglers')");
  Keep("plan-dark", {.dark = true});
  Expect("getComputedStyle(document.querySelector('.picture img')).filter.startsWith('invert')");
  Keep("plan-phone", {.width = 390, .height = 844, .phone = true});
  Expect(
      "[...document.querySelectorAll('.picture img')].every((img) => img.getBoundingClientRect()"
      ".right <= innerWidth && img.naturalWidth > 100)");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

// Until its numbers are here, nothing is said of them.
TEST_F(Page, ACurveThatIsOnItsWayIsNotNothing) {
  MW_NEEDS("chromium");
  Look();
  const int64_t id = Submit("short", 5);
  ASSERT_TRUE(cluster_->Follow(id).has_value());
  Open("/");
  // The page's answers are held back.
  ASSERT_TRUE(browser_
                  ->Value("window.held = window.fetch; window.fetch = (url, ...rest) => "
                          "String(url).includes('/steps') ? new Promise(() => {}) : "
                          "window.held(url, ...rest); location.hash = '#/jobs/1'")
                  .has_value());
  Expect("document.querySelectorAll('.chart .nothing').length > 0");
  Expect("document.querySelector('.chart .nothing').textContent === 'loading'");
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
  const int64_t id = Submit("views", 30, "host");
  ASSERT_TRUE(cluster_->Follow(id).has_value());
  Open(fmt::format("/#/jobs/{}", id));
  ExpectText("host of device 1");
  Expect("document.querySelectorAll('.stack').length === 4");
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
  ExpectText("Programs (instructions)");
  // People know a host by its name; what tells it from others is a detail.
  Expect(
      "[...document.querySelectorAll('tr')].some((row) => "
      "/^Host\\s+127.0.0.1$/.test(row.innerText))");
  ExpectText("Identity of the host");
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
  Expect("document.activeElement.getAttribute('aria-label').startsWith('w1: ready')");
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
