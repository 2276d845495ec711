#include "cli/pending_session.h"

#include <utility>

#include "base/check.h"

namespace meshwright::cli {
namespace {

template <typename T>
std::future<T> Ready(T value) {
  std::promise<T> promise;
  promise.set_value(std::move(value));
  return promise.get_future();
}

// The programs that are not trained, with what a client brings to them.
std::map<std::string, std::map<std::string, ir::TensorType>> ProgramsOf(const ir::JobRequest& job) {
  std::map<std::string, std::map<std::string, ir::TensorType>> programs;
  for (const ir::JobProgram& program : job.programs) {
    if (program.trained) continue;
    auto& inputs = programs[program.name];
    for (const NodeId id : program.graph.NodesOf(ir::Op::kFeed)) {
      const ir::Node& feed = program.graph.node(id);
      const std::string name = feed.attrs.Str("source");
      if (program.OriginOf(name) != ir::InputFrom::kClient) continue;
      inputs[name] = program.graph.type(feed.outputs[0]);
    }
  }
  return programs;
}

}  // namespace

PendingSession::PendingSession(const ir::JobRequest& job, Open open)
    : programs_(ProgramsOf(job)), open_(std::move(open)) {
  MW_CHECK(open_ != nullptr) << "nothing opens the session";
}

Status PendingSession::Opened() {
  if (open_ == nullptr) return refused_;
  auto opened = std::exchange(open_, nullptr)();
  if (opened.has_value()) {
    session_ = *std::move(opened);
  } else {
    refused_ = opened.error();
  }
  return refused_;
}

std::future<Result<client::Answer>> PendingSession::Call(const std::string& program,
                                                         const client::Feeds& feeds,
                                                         client::CallOptions options) {
  const Status opened = Opened();
  if (!opened.ok()) return Ready<Result<client::Answer>>(Fail(opened));
  return session_->Call(program, feeds, options);
}

Result<client::Answer> PendingSession::Run(const std::string& program, const client::Feeds& feeds,
                                           client::CallOptions options) {
  MW_TRY(Opened());
  return session_->Run(program, feeds, options);
}

Result<std::map<std::string, client::Tensor>> PendingSession::ReadState(
    const std::vector<std::string>& names) {
  MW_TRY(Opened());
  return session_->ReadState(names);
}

Status PendingSession::WriteState(const std::map<std::string, client::Tensor>& tensors) {
  MW_TRY(Opened());
  return session_->WriteState(tensors);
}

Result<client::ActorRef> PendingSession::Spawn(const std::string& type, const std::string& args,
                                               const std::string& worker) {
  MW_TRY(Opened());
  return session_->Spawn(type, args, worker);
}

std::future<Result<std::string>> PendingSession::Ask(const client::ActorRef& actor,
                                                     std::string payload, int64_t deadline_ms) {
  const Status opened = Opened();
  if (!opened.ok()) return Ready<Result<std::string>>(Fail(opened));
  return session_->Ask(actor, std::move(payload), deadline_ms);
}

std::future<Status> PendingSession::Tell(const client::ActorRef& actor, std::string payload,
                                         int64_t deadline_ms) {
  const Status opened = Opened();
  if (!opened.ok()) return Ready<Status>(opened);
  return session_->Tell(actor, std::move(payload), deadline_ms);
}

std::future<Result<client::ActorNews>> PendingSession::Watch(const client::ActorRef& actor) {
  const Status opened = Opened();
  if (!opened.ok()) return Ready<Result<client::ActorNews>>(Fail(opened));
  return session_->Watch(actor);
}

Status PendingSession::Stop(const client::ActorRef& actor) {
  MW_TRY(Opened());
  return session_->Stop(actor);
}

Status PendingSession::Close(client::CloseOptions options) {
  return session_ == nullptr ? OkStatus() : session_->Close(options);
}

}  // namespace meshwright::cli
