// Debian's Chromium without a window, driven by the DevTools protocol over a pipe: a page is
// opened, asked, used, and looked at.
//
// Thread rule: one thread. Ownership: ends its browser.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace meshwright::testing {

class Browser {
 public:
  // Errors: those of starting it; kDeadlineExceeded.
  static Result<std::unique_ptr<Browser>> Start();
  ~Browser();

  Status Open(const std::string& url);
  // The value of an expression, of a promise what it comes to. Errors: what it throws.
  Result<nlohmann::json> Value(const std::string& expression);
  // Until the expression is true. Errors: kDeadlineExceeded naming it.
  Status Await(const std::string& expression, int64_t timeout_ms = 20'000);
  Status Press(const std::string& key);  // "Tab", "ArrowRight"

  struct Window {
    int width = 1280;
    int height = 900;
    bool dark = false;
    bool phone = false;
  };
  Status Resize(const Window& window);
  // What it shows, as a PNG.
  Result<std::string> Picture();

  // What the console was told as an error, what was thrown, what the content policy refused.
  const std::vector<std::string>& complaints() const { return complaints_; }
  void ForgetComplaints() { complaints_.clear(); }

 private:
  Browser() = default;
  Status Launch();
  Status Attach();
  Result<nlohmann::json> Call(const std::string& method, nlohmann::json params);
  Result<nlohmann::json> Read(int64_t timeout_ms);
  void Note(const nlohmann::json& message);

  std::unique_ptr<TempDir> dir_;
  std::unique_ptr<Subprocess> process_;
  UniqueFd to_;
  UniqueFd from_;
  std::string buffer_;
  std::string session_;
  int64_t last_id_ = 0;
  std::vector<std::string> complaints_;
};

// Text of base64 as bytes; what is no letter of it is passed over.
std::string DecodeBase64(const std::string& text);

}  // namespace meshwright::testing
