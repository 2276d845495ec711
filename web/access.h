// Who may look at the page, and who may act.
//
//   without tokens   whoever reaches the port, under a name of this machine: the port is on
//   loopback with tokens      the viewer's token looks, the operator's acts, too; as
//   "Authorization: Bearer",
//                    or once in the form of the page, which leaves a cookie
// The cookie is no token: it says the role and until when, signed with the role's token, so that a
// new token, which may come while this runs (base/live_token.h), ends it. Should both tokens become
// the same one, it is a viewer's. It is HttpOnly and SameSite=Strict. What acts has to come from
// this page: a request whose Origin is another one is refused, and so is one with a cookie and no
// Origin. Without tokens the Host has to be this machine, so that no page of a stranger reaches it
// by a name of its own (DNS rebinding).
//
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/http_server.h"
#include "base/live_token.h"
#include "base/mutex.h"
#include "base/status.h"

namespace meshwright::web {

enum class Role : uint8_t { kNobody, kViewer, kOperator };
const char* RoleName(Role role);  // "viewer"

struct AccessOptions {
  LiveToken viewer_token;
  LiveToken operator_token;  // both empty: no tokens are wanted
  bool secure = false;       // browsers come by TLS: so does the cookie, or not at all
};

class Access {
 public:
  static constexpr int64_t kCookieMs = 12 * 3'600'000;
  // Wrong tokens in a minute, of one address; then none of it is looked at until the next minute.
  static constexpr int64_t kMostTries = 10;
  static constexpr size_t kMostAddresses = 4096;  // of which that is known; others have no try then

  Access(AccessOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}

  bool wants_tokens() const {
    return !options_.viewer_token.empty() || !options_.operator_token.empty();
  }
  Role RoleOf(const HttpRequest& request) const;
  // Errors: kUnauthenticated: it has to show a token; kPermissionDenied: it may not, or it comes
  // from elsewhere; kResourceExhausted: too many wrong tokens.
  Status CheckLook(const HttpRequest& request) const;
  Status CheckAct(const HttpRequest& request) const;

  struct LoginAnswer {
    HttpReply reply;
    Role role = Role::kNobody;
    Status status;  // of the one who asked, for the audit log
  };
  // Answers the form: back to the page, with the cookie of the role that the token has.
  LoginAnswer Login(const HttpRequest& request);
  HttpReply Logout(const HttpRequest& request) const;

 private:
  const LiveToken& TokenOf(Role role) const {
    return role == Role::kOperator ? options_.operator_token : options_.viewer_token;
  }
  // Errors: kResourceExhausted: wrong tokens came from there too often.
  Status CheckTries(const HttpRequest& request) const;
  void NoteWrong(const HttpRequest& request) const;
  // Without tokens, only under a name of this machine.
  Status CheckHost(const HttpRequest& request) const;
  Role RoleOfToken(const std::string& token) const;
  Role RoleOfCookie(const std::string& cookie) const;
  std::string CookieOf(Role role, int64_t until_ms) const;
  HttpReply BackToPage(const std::string& cookie, int64_t age_s) const;

  const AccessOptions options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  mutable int64_t minute_ MW_GUARDED_BY(mutex_) = 0;
  mutable std::map<std::string, int64_t> wrong_ MW_GUARDED_BY(mutex_);  // by address, this minute
};

}  // namespace meshwright::web
