// Sessions of clients: their streams, and what they hear.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "controller/control_loop.h"

namespace meshwright::controller {
namespace {

Status NobodyListens() { return Unavailable("the controller is stopping"); }

}  // namespace

ClientId ControlLoop::OpenClient(std::shared_ptr<ClientPeer> peer) {
  const ClientId client(next_client_.fetch_add(1));
  const bool posted = loop_.Post([this, client, peer] {
    if (stopped_) return peer->Break(NobodyListens());
    clients_[client.value()] = peer;
  });
  if (!posted) peer->Break(NobodyListens());
  return client;
}

void ControlLoop::Attach(ClientId client, int64_t job, SessionName name) {
  loop_.Post([this, client, job, name = std::move(name)] {
    if (!clients_.contains(client.value())) return;
    StepOnLoop(AttachClient{client, JobId(job), name.name, name.again});
  });
}

void ControlLoop::Acknowledge(ClientId client, std::vector<uint64_t> ids) {
  loop_.Post([this, client, ids = std::move(ids)] {
    if (clients_.contains(client.value())) StepOnLoop(AckOfClient{client, ids});
  });
}

void ControlLoop::FromClient(ClientId client, proto::SessionAsk ask) {
  loop_.Post([this, client, ask = std::move(ask)]() mutable {
    if (!clients_.contains(client.value())) return;
    StepOnLoop(AskOfClient{client, ask.id, std::move(ask.ask), std::move(ask.acked)});
  });
}

void ControlLoop::ClientEnded(ClientId client, ClientEnd how) {
  loop_.Post([this, client, how] {
    clients_.erase(client.value());
    StepOnLoop(ClientGone{client, how});
  });
}

void ControlLoop::Do(TellClient& effect) {
  const auto it = clients_.find(effect.client.value());
  if (it != clients_.end()) it->second->Tell(std::move(effect.news));
}

void ControlLoop::Do(CloseClient& effect) {
  const auto it = clients_.find(effect.client.value());
  if (it == clients_.end()) return;
  const auto peer = std::move(it->second);
  clients_.erase(it);
  peer->Close(effect.reason);
}

void ControlLoop::AppendToJob(JobId job, const char* file, std::string text) {
  if (text.empty()) return;
  journal_.Post([this, job, file, text = std::move(text)] {
    const std::string dir = parts_.dir->job_dir(job.value());
    Status status = MakeDirs(dir);
    if (status.ok()) status = AppendFile(dir + "/" + file, text);
    if (!status.ok()) LogWarn(fmt::format("job {}: {}", job.value(), status.message()));
  });
}

void ControlLoop::FlushOnLoop() {
  for (int64_t job : std::exchange(touched_, {})) NotifyOnLoop(job);
}

}  // namespace meshwright::controller
