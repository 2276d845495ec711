// What a test does with a page in a browser: opens it, presses what is there, waits until it shows
// something.
//
// Thread rule: one thread, that of the test. Ownership: owns its browser.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "tests/page/browser.h"

namespace meshwright::testing {

class Looks {
 protected:
  void StartBrowser() {
    auto browser = Browser::Start();
    ASSERT_TRUE(browser.has_value()) << browser.error();
    browser_ = *std::move(browser);
  }
  // Returns when the page has what it shows.
  void OpenUrl(const std::string& url) {
    ASSERT_TRUE(browser_->Open(url).ok());
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
  // With MESHWRIGHT_PICTURES=FOLDER what it sees is written there, for docs/page.md.
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

}  // namespace meshwright::testing
