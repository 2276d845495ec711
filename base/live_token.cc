#include "base/live_token.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/secret_file.h"
#include "base/text.h"

namespace meshwright {
namespace {

Result<std::string> ReadToken(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  std::string token(Trim(text));
  if (token.empty()) return Fail(InvalidArgument(path + " is empty"));
  return token;
}

}  // namespace

struct LiveToken::State {
  std::string path;  // empty: it never changes
  const Clock* clock = nullptr;
  Mutex mutex;
  std::string token MW_GUARDED_BY(mutex);
  int64_t looked_ms MW_GUARDED_BY(mutex) = 0;
  std::string complaint MW_GUARDED_BY(mutex);  // said already

  void Look() MW_REQUIRES(mutex) {
    const int64_t now_ms = clock->NowMs();
    if (now_ms - looked_ms < kLookMs) return;
    looked_ms = now_ms;
    auto found = ReadToken(path);
    const std::string wrong = found.has_value() ? "" : found.error().message();
    if (!wrong.empty() && wrong != complaint) {
      LogError(fmt::format("a token stays the old one: {}", wrong));
    }
    complaint = wrong;
    if (!found.has_value() || *found == token) return;
    token = *std::move(found);
    LogInfo(fmt::format("the token in {} is a new one, and the old one is none any more", path));
  }
};

LiveToken::LiveToken(std::string token) {
  if (token.empty()) return;
  state_ = std::make_shared<State>();
  const MutexLock lock(state_->mutex);
  state_->token = std::move(token);
}

Result<LiveToken> LiveToken::InFile(const std::string& path, const Clock& clock) {
  MW_ASSIGN_OR_RETURN(std::string token, ReadToken(path));
  LiveToken live(std::move(token));
  live.state_->path = path;
  live.state_->clock = &clock;
  const MutexLock lock(live.state_->mutex);
  live.state_->looked_ms = clock.NowMs();
  return live;
}

std::string LiveToken::Now() const {
  if (state_ == nullptr) return "";
  const MutexLock lock(state_->mutex);
  if (!state_->path.empty()) state_->Look();
  return state_->token;
}

}  // namespace meshwright
