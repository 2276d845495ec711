#include "cli/live_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "base/utf8.h"
#include "cli/output.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kRedrawMs = 100;
constexpr int64_t kBarCells = 20;
constexpr double kShareOfNew = 0.1;  // of a step in the mean of late ones
constexpr std::string_view kClear = "\r\x1b[K";

std::string Bar(double share) {
  const auto full = static_cast<size_t>(share * static_cast<double>(kBarCells));
  return fmt::format("[{}{}]", std::string(full, '#'),
                     std::string(static_cast<size_t>(kBarCells) - full, '-'));
}

}  // namespace

std::string LiveLine::Text(const client::JobInfo& job) const {
  const char* const state = client::JobStateName(job.state);
  if (job.state != client::JobState::kRunning || job.steps <= 0) {
    const std::string& news = job.message.empty() ? job.reason : job.message;
    return news.empty() ? state : fmt::format("{}  {}", state, OneLine(news));
  }
  const int64_t done = std::clamp<int64_t>(job.steps_done, 0, job.steps);
  const double share = static_cast<double>(done) / static_cast<double>(job.steps);
  std::string text = fmt::format("{} {:.0f}%  {}/{}", Bar(share), 100 * share, done, job.steps);
  if (step_s_ <= 0) return text;
  text += fmt::format("  loss {:.4f}  {} tokens/s", loss_, FormatShortCount(tokens_ / step_s_));
  if (done == job.steps) return text;
  return text +
         fmt::format("  {} left", FormatDuration(step_s_ * static_cast<double>(job.steps - done)));
}

std::string LiveLine::Draw(const client::JobUpdate& update) {
  if (columns_ <= 0) return "";
  for (const client::StepMetrics& step : update.steps) {
    step_s_ = step_s_ <= 0 ? step.seconds : step_s_ + kShareOfNew * (step.seconds - step_s_);
    tokens_ = step.tokens;
    loss_ = step.loss;
  }
  if (client::IsTerminal(update.info.state)) return Clear();
  const int64_t now_ms = clock_.NowMs();
  if (drawn_ && drawn_ms_ >= 0 && now_ms - drawn_ms_ < kRedrawMs) return "";
  drawn_ = true;
  drawn_ms_ = now_ms;
  // A full last column would wrap.
  const auto most = static_cast<size_t>(std::max(columns_ - 1, 1));
  return fmt::format("{}{}", kClear, TruncateUtf8(Text(update.info), most));
}

std::string LiveLine::Clear() {
  if (!drawn_) return "";
  drawn_ = false;
  return std::string(kClear);
}

int TerminalColumns(int fd) {
  if (::isatty(fd) != 1) return 0;
  const char* const kind = std::getenv("TERM");
  if (kind == nullptr || std::string_view(kind) == "dumb") return 0;
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace meshwright::cli
