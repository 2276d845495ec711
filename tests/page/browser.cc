#include "tests/page/browser.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/os_error.h"

namespace meshwright::testing {
namespace {

using nlohmann::json;

constexpr int64_t kAnswerMs = 60'000;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(OsError(errno, "pipe"));
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

std::string DecodeBase64(const std::string& text) {
  std::string bytes;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    int value = -1;
    if (c >= 'A' && c <= 'Z') value = c - 'A';
    if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
    if (c >= '0' && c <= '9') value = c - '0' + 52;
    if (c == '+') value = 62;
    if (c == '/') value = 63;
    if (value < 0) continue;
    held = (held << 6) | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>((held >> bits) & 0xff);
  }
  return bytes;
}

Result<std::unique_ptr<Browser>> Browser::Start() {
  std::unique_ptr<Browser> browser(new Browser());
  MW_TRY(browser->Launch());
  return browser;
}

Status Browser::Launch() {
  auto dir = TempDir::Make();
  if (!dir) return dir.error();
  dir_ = std::make_unique<TempDir>(*std::move(dir));
  auto down = MakePipe();
  auto up = MakePipe();
  if (!down) return down.error();
  if (!up) return up.error();
  SubprocessOptions options;
  // It reads its orders from descriptor 3 and answers on 4.
  options.args = {
      "bash", "-c",
      fmt::format("exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run "
                  "--disable-dev-shm-usage --user-data-dir={} --remote-debugging-pipe "
                  "about:blank 3<&{} 4>&{}",
                  dir_->File("profile"), down->read.get(), up->write.get())};
  options.env = {{"HOME", dir_->path()}};
  options.keep_fds = {down->read.get(), up->write.get()};
  options.stdout_to = OutputTo::Discard();
  options.stderr_to = OutputTo::File(dir_->File("stderr"));
  auto process = Subprocess::Start(options);
  if (!process) return process.error();
  process_ = *std::move(process);
  to_ = std::move(down->write);
  from_ = std::move(up->read);
  return Attach();
}

Status Browser::Attach() {
  const auto target = Call("Target.createTarget", {{"url", "about:blank"}});
  if (!target) return target.error();
  const auto attached =
      Call("Target.attachToTarget", {{"targetId", (*target)["targetId"]}, {"flatten", true}});
  if (!attached) return attached.error();
  session_ = (*attached)["sessionId"];
  for (const char* domain : {"Runtime", "Log", "Page"}) {
    const auto enabled = Call(std::string(domain) + ".enable", json::object());
    if (!enabled) return enabled.error();
  }
  return OkStatus();
}

Browser::~Browser() {
  if (process_ == nullptr) return;
  session_.clear();
  (void)Call("Browser.close", json::object());
  (void)process_->Terminate(5000);
}

Result<json> Browser::Read(int64_t timeout_ms) {
  const Deadline deadline = Deadline::After(timeout_ms);
  while (true) {
    if (const size_t end = buffer_.find('\0'); end != std::string::npos) {
      json message = json::parse(buffer_.substr(0, end), nullptr, false);
      buffer_.erase(0, end + 1);
      return message;
    }
    pollfd ready{from_.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(deadline.remaining_ms())) <= 0) {
      return Fail(DeadlineExceeded("the browser does not answer"));
    }
    std::array<char, 65536> block;
    const ssize_t got = ::read(from_.get(), block.data(), block.size());
    if (got <= 0) return Fail(Unavailable("the browser has ended"));
    buffer_.append(block.data(), static_cast<size_t>(got));
  }
}

void Browser::Note(const json& message) {
  const std::string method = message.value("method", "");
  const json params = message.value("params", json::object());
  if (method == "Runtime.exceptionThrown") complaints_.push_back(params.dump());
  if (method == "Log.entryAdded" && params["entry"]["level"] == "error") {
    complaints_.push_back(params["entry"].dump());
  }
  if (method == "Runtime.consoleAPICalled" && params["type"] == "error") {
    complaints_.push_back(params["args"].dump());
  }
}

Result<json> Browser::Call(const std::string& method, json params) {
  json ask = {{"id", ++last_id_}, {"method", method}, {"params", std::move(params)}};
  if (!session_.empty()) ask["sessionId"] = session_;
  const std::string text = ask.dump() + '\0';
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::write(to_.get(), text.data() + sent, text.size() - sent);
    if (count <= 0) return Fail(Unavailable("the browser has ended"));
    sent += static_cast<size_t>(count);
  }
  const Deadline deadline = Deadline::After(kAnswerMs);
  while (true) {
    MW_ASSIGN_OR_RETURN(json message, Read(deadline.remaining_ms()));
    Note(message);
    if (message.value("id", int64_t{0}) != last_id_) continue;
    if (message.contains("error")) {
      return Fail(Internal(fmt::format("{}: {}", method, message["error"].dump())));
    }
    return message["result"];
  }
}

Status Browser::Open(const std::string& url) {
  return internal::ToStatus(Call("Page.navigate", {{"url", url}}));
}

Result<json> Browser::Value(const std::string& expression) {
  MW_ASSIGN_OR_RETURN(const json answer, Call("Runtime.evaluate", {{"expression", expression},
                                                                   {"awaitPromise", true},
                                                                   {"returnByValue", true}}));
  if (answer.contains("exceptionDetails")) {
    return Fail(Internal(fmt::format("{}: {}", expression, answer["exceptionDetails"].dump())));
  }
  return answer["result"].value("value", json());
}

Status Browser::Await(const std::string& expression, int64_t timeout_ms) {
  const Deadline deadline = Deadline::After(timeout_ms);
  // The page itself waits for a moment, so that nobody here has to.
  const std::string ask = fmt::format(
      "new Promise((done) => setTimeout(() => {{ let now = false; try {{ now = Boolean(({})); }} "
      "catch (e) {{}} done(now); }}, 30))",
      expression);
  while (true) {
    const auto value = Value(ask);
    // While a page gives way to another one there is nobody to ask.
    if (value && value->is_boolean() && value->get<bool>()) return OkStatus();
    if (deadline.expired()) {
      const auto text = Value("document.body.innerText");
      return DeadlineExceeded(
          fmt::format("'{}' did not come true; the page says: {}", expression,
                      text ? text->dump().substr(0, 3000) : text.error().message()));
    }
  }
}

Status Browser::Press(const std::string& key) {
  static const std::map<std::string, int> codes = {
      {"Tab", 9}, {"Enter", 13}, {"ArrowLeft", 37}, {"ArrowRight", 39}, {"Home", 36}, {"End", 35}};
  json press = {{"type", "rawKeyDown"},
                {"key", key},
                {"code", key},
                {"windowsVirtualKeyCode", codes.at(key)}};
  if (key == "Enter") {
    press["type"] = "keyDown";
    press["text"] = "\r";
  }
  const auto down = Call("Input.dispatchKeyEvent", press);
  if (!down) return down.error();
  press["type"] = "keyUp";
  press.erase("text");
  return internal::ToStatus(Call("Input.dispatchKeyEvent", press));
}

Status Browser::Resize(const Window& window) {
  const auto sized = Call("Emulation.setDeviceMetricsOverride", {{"width", window.width},
                                                                 {"height", window.height},
                                                                 {"deviceScaleFactor", 1},
                                                                 {"mobile", window.phone}});
  if (!sized) return sized.error();
  const json scheme = {{"name", "prefers-color-scheme"}, {"value", window.dark ? "dark" : "light"}};
  return internal::ToStatus(
      Call("Emulation.setEmulatedMedia", {{"features", json::array({scheme})}}));
}

Result<std::string> Browser::Picture() {
  // Two frames later it has drawn what it was told last.
  MW_TRY(Value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"));
  MW_ASSIGN_OR_RETURN(const json shot, Call("Page.captureScreenshot", {{"format", "png"}}));
  return DecodeBase64(shot["data"]);
}

}  // namespace meshwright::testing
