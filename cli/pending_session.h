// A session that is opened by its first call.
//
// A job of its own is submitted for what is asked of weights, and takes a number: what is refused
// for its form alone (a text, a file, a name) is refused before that. What can be called is known
// of the job's programs.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/session.h"
#include "ir/job.h"

namespace meshwright::cli {

class PendingSession final : public client::Session {
 public:
  using Open = std::function<Result<std::unique_ptr<client::Session>>()>;

  // `job`: whose programs are called; those that are not trained, as the opened session has them.
  PendingSession(const ir::JobRequest& job, Open open);

  // 0 before the first call.
  int64_t job_id() const override { return session_ == nullptr ? 0 : session_->job_id(); }
  std::map<std::string, std::map<std::string, ir::TensorType>> programs() const override {
    return programs_;
  }
  // Errors beside those of the session: why it was not opened, which is tried once.
  std::future<Result<client::Answer>> Call(const std::string& program, const client::Feeds& feeds,
                                           client::CallOptions options) override;
  Result<client::Answer> Run(const std::string& program, const client::Feeds& feeds,
                             client::CallOptions options) override;
  Result<std::map<std::string, client::Tensor>> ReadState(
      const std::vector<std::string>& names) override;
  Status WriteState(const std::map<std::string, client::Tensor>& tensors) override;
  Result<client::ActorRef> Spawn(const std::string& type, const std::string& args,
                                 const std::string& worker) override;
  std::future<Result<std::string>> Ask(const client::ActorRef& actor, std::string payload,
                                       int64_t deadline_ms) override;
  std::future<Status> Tell(const client::ActorRef& actor, std::string payload,
                           int64_t deadline_ms) override;
  std::future<Result<client::ActorNews>> Watch(const client::ActorRef& actor) override;
  Status Stop(const client::ActorRef& actor) override;
  // Of a session that was never opened nothing is left to be done.
  Status Close(client::CloseOptions options) override;

 private:
  Status Opened();

  const std::map<std::string, std::map<std::string, ir::TensorType>> programs_;
  Open open_;  // empty: it was tried
  std::unique_ptr<client::Session> session_;
  Status refused_;
};

}  // namespace meshwright::cli
