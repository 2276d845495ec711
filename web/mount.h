// Puts the page on a controller that is about to start: whether it may be there at all, its tokens,
// and who draws plans.
//
//   on loopback          it is there; with tokens, for who has one
//   elsewhere, no token  it is not there; metrics and health are
//   elsewhere, tokens    only by TLS, of the controller or, where that is said, of a proxy in
//   front:
//                        tokens would pass the network in the clear
// Thread rule: pure but for the thread that draws. Ownership: the options own what is made.
#pragma once

#include <string>

#include "base/live_token.h"
#include "controller/server.h"
#include "web/api.h"

namespace meshwright::web {

struct PageOptions {
  bool wanted = true;
  LiveToken viewer_token;
  LiveToken operator_token;
  bool behind_tls = false;  // a proxy in front of it does TLS
  Settings settings;        // that the page shows, without secrets
};

struct MountedPage {
  bool there = false;
  std::string why_not;  // for people; empty: nobody wanted it
};

// REQUIRES: bind, metrics_port and http_certificate of `server` are set. Errors: kInvalidArgument
// naming the option that is missing.
Result<MountedPage> MountPage(const PageOptions& options, controller::ServerOptions& server);

}  // namespace meshwright::web
