#include "bench/ask_case.h"

#include <signal.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "base/mutex.h"
#include "base/subprocess.h"
#include "bench/session_case.h"
#include "client/client.h"
#include "worker/main.h"

namespace meshwright::bench {
namespace {

constexpr const char* kWorkerName = "bench-actors";
constexpr int64_t kPatienceMs = 60'000;

class Echo final : public actor::Actor<actor::Bytes> {
 public:
  Status Receive(actor::Bytes message, actor::ReplySlot<actor::Bytes> reply) override {
    reply.Complete(std::move(message));
    return OkStatus();
  }
};

Status WaitForWorker(client::Client& client) {
  const Deadline deadline = Deadline::After(kPatienceMs);
  Mutex mutex;
  const MutexLock lock(mutex);
  CondVar pause;  // nobody tells when a worker has registered
  while (!deadline.expired()) {
    MW_ASSIGN_OR_RETURN(const auto workers, client.Workers());
    for (const client::WorkerInfo& worker : workers) {
      if (worker.name == kWorkerName && worker.state == "READY") return OkStatus();
    }
    (void)pause.WaitFor(mutex, std::chrono::milliseconds(20));
  }
  return DeadlineExceeded("the worker with the actors has not registered");
}

// Median of the seconds of `run`, after some that do not count.
template <typename Run>
Result<double> MedianSeconds(int64_t count, const Run& run) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kWarm = 100;
  std::vector<double> seconds;
  for (int64_t i = 0; i < count + kWarm; ++i) {
    const Clock::time_point begin = Clock::now();
    MW_TRY(run());
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (i >= kWarm) seconds.push_back(took.count());
  }
  return Median(seconds);
}

}  // namespace

Result<AskCase> RunAskCase(const std::string& address, int64_t asks) {
  SubprocessOptions worker;
  worker.args = {"/proc/self/exe", "worker",   "--address",    address,     "--name",
                 kWorkerName,      "--device", "cpu",          "--profile", "off",
                 "--log-level",    "warn",     "--memory-mib", "64"};
  worker.stdout_to = OutputTo::Discard();
  worker.death_signal = SIGTERM;
  MW_ASSIGN_OR_RETURN(const auto process, Subprocess::Start(worker));
  client::Client::Options options;
  options.address = address;
  MW_ASSIGN_OR_RETURN(const auto client, client::Client::Connect(options));
  MW_TRY(WaitForWorker(*client));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, TinyJob());
  MW_ASSIGN_OR_RETURN(const auto session, client->OpenSession(job));
  MW_ASSIGN_OR_RETURN(const client::ActorRef echo, session->Spawn("echo", "", kWorkerName));
  const std::string payload(16, 'x');
  AskCase result{.asks = asks};
  MW_ASSIGN_OR_RETURN(result.ask_seconds, MedianSeconds(asks, [&]() -> Status {
                        const auto reply = session->Ask(echo, payload).get();
                        return reply.has_value() ? OkStatus() : reply.error();
                      }));
  MW_ASSIGN_OR_RETURN(result.unary_seconds, MedianSeconds(asks, [&]() -> Status {
                        const auto info = client->Get(session->job_id());
                        return info.has_value() ? OkStatus() : info.error();
                      }));
  MW_TRY(session->Close());
  return result;
}

int AskWorker(int argc, char** argv) {
  actor::Registry registry;
  MW_CHECK(
      registry
          .AddBytes("echo",
                    [](std::string_view) -> Result<std::unique_ptr<actor::Actor<actor::Bytes>>> {
                      return std::unique_ptr<actor::Actor<actor::Bytes>>(std::make_unique<Echo>());
                    })
          .ok());
  return worker::Main(argc, argv, registry);
}

}  // namespace meshwright::bench
