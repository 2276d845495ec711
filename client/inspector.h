// Inspector: what an operator asks of a controller: where the devices of a job are, the logs of
// workers, and how the controller itself is.
//
// Thread rule: thread-safe. Every call has a deadline, Client::Options::timeout_ms.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "client/client.h"
#include "proto/log_messages.h"

namespace meshwright::client {

struct LogAsk {
  std::string worker;    // empty: the controller's own
  proto::FetchLog what;  // without `ask`
  bool kept = false;     // what the controller keeps, whether the worker is here or not
};

// A piece of a log: whole lines.
struct LogText {
  std::string text;
  int64_t next = 0;   // where to go on, in a log of the same kind
  bool end = false;   // there is nothing more for now
  bool live = false;  // it is the worker's own log
  std::string note;   // why it is not; empty: nothing to say
};

struct ControllerState {
  std::string cluster_id;
  std::string version;
  int64_t unix_ms = 0;  // its clock; 0: it does not say
};

class Inspector {
 public:
  virtual ~Inspector() = default;
  // Errors: kInvalidArgument; the calls say kUnavailable where there is no controller.
  static Result<std::unique_ptr<Inspector>> Make(const Client::Options& options);

  // Errors: kNotFound: there is no such job.
  virtual Result<std::string> Hang(int64_t job_id, bool json) = 0;
  // Errors: kNotFound: the worker is not here, and nothing is kept of it.
  virtual Result<LogText> Log(const LogAsk& ask) = 0;
  virtual Result<ControllerState> State() = 0;
  // Of the controller, as Prometheus reads them; of very many the first 3 MiB.
  virtual Result<std::string> Metrics() = 0;
};

}  // namespace meshwright::client
