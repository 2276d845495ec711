// Every RPC of a real controller, and the session of a real worker, with messages that are random,
// mutated, cut, too many, none, in any order: nothing crashes, every call ends, and a sound job
// runs afterwards.
//
//   MESHWRIGHT_FUZZ_CALLS=1000000   so many calls
//   MESHWRIGHT_FUZZ_SEED=7          other ones
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "proto/convert.h"
#include "proto/meshwright.grpc.pb.h"
#include "proto/resolve.pb.h"
#include "proto/trust.pb.h"
#include "tests/e2e/control/local_cluster.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/random_message.h"
#include "tests/scale.h"
#include "worker/agent.h"

namespace meshwright::fuzz {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr int64_t kRpcPatienceMs = 120'000;
constexpr int kMostReads = 8;

int64_t CountOf(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

struct Rpc {
  std::string path;  // "/meshwright.v1.JobService/Submit"
  const MethodDescriptor* about = nullptr;
};

// All that the files of messages declare, so that a new one is called without being listed.
std::vector<Rpc> AllRpcs() {
  std::vector<Rpc> all;
  for (const FileDescriptor* file :
       {v1::Up::descriptor()->file(), v1::ResolveRequest::descriptor()->file(),
        v1::JoinRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const MethodDescriptor* method = service->method(j);
        all.push_back({"/" + service->full_name() + "/" + method->name(), method});
      }
    }
  }
  return all;
}

// A message of that type: random, then in half of the cases mutated as bytes.
std::string AnyMessage(const Rpc& rpc, const std::string& sound, Random& random) {
  std::string bytes = sound;
  if (sound.empty() || random.OneOf(2)) {
    const auto* factory = google::protobuf::MessageFactory::generated_factory();
    const std::unique_ptr<Message> message(const_cast<google::protobuf::MessageFactory*>(factory)
                                               ->GetPrototype(rpc.about->input_type())
                                               ->New());
    FillMessage(*message, random);
    bytes = message->SerializeAsString();
  }
  if (random.OneOf(2)) {
    bytes = Mutator({bytes}, random.Next()).Make(1 + random.Below(1 << 20));
  }
  return bytes;
}

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// One call with these messages. The queue is its caller's, who makes one call after the other: a
// queue for each would cost more than the call.
class FuzzCall {
 public:
  FuzzCall(grpc::GenericStub& stub, grpc::CompletionQueue& queue, const Rpc& rpc,
           int64_t deadline_ms)
      : queue_(queue) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(deadline_ms));
    call_ = stub.PrepareCall(&context_, rpc.path, &queue_);
  }

  // False: it hangs, beyond its own deadline, and the queue is of no use any more.
  bool Run(const std::vector<std::string>& messages) {
    call_->StartCall(this);
    bool going = Await();
    for (size_t i = 0; i < messages.size() && going; ++i) {
      call_->Write(BufferOf(messages[i]), this);
      going = Await();
    }
    if (going) {
      call_->WritesDone(this);
      going = Await();
    }
    grpc::ByteBuffer answer;
    for (int reads = 0; going && reads < kMostReads; ++reads) {
      call_->Read(&answer, this);
      going = Await();
    }
    if (going) context_.TryCancel();
    call_->Finish(&status_, this);
    (void)Await();
    return !hangs_;
  }
  const grpc::Status& status() const { return status_; }

 private:
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    const auto until = std::chrono::system_clock::now() + std::chrono::milliseconds(kRpcPatienceMs);
    if (!hangs_ && queue_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT) {
      return ok;
    }
    hangs_ = true;
    context_.TryCancel();
    return false;
  }

  grpc::CompletionQueue& queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool hangs_ = false;
};

// Nothing of it comes any more when this returns.
void Drain(grpc::CompletionQueue& queue) {
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

// What came of all calls.
struct Tally {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;  // by RPC
  std::map<int, int64_t> ends;           // by code
  std::vector<std::string> hung;
};

// Many, of which most wait: for an answer, or for the deadline of a stream.
constexpr int kCallers = 24;

// The calls of one of them, over a connection of its own: first those RPCs of the list whose turn
// is his, so that together they call each of them, then any.
void CallAtRandom(int port, uint64_t seed, int caller, int64_t count,
                  const std::string& sound_submit, Tally& tally) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                 grpc::InsecureChannelCredentials(), own);
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const std::vector<Rpc> rpcs = AllRpcs();
  Random random(seed);
  bool ended = true;
  for (int64_t i = 0; i < count && ended; ++i) {
    const auto turn = static_cast<size_t>(i * kCallers + caller);
    const Rpc& rpc = rpcs[turn < rpcs.size() ? turn : random.Below(rpcs.size())];
    const bool is_submit = rpc.about->name() == "Submit";
    std::vector<std::string> messages;
    // One where one is due; sometimes none, or several.
    size_t number = rpc.about->client_streaming() ? random.Below(6) : 1;
    if (random.OneOf(16)) number = random.Below(3);
    for (; number > 0; --number) {
      messages.push_back(AnyMessage(rpc, is_submit ? sound_submit : "", random));
    }
    FuzzCall call(stub, queue, rpc, rpc.about->server_streaming() ? 20 : 2'000);
    ended = call.Run(messages);
    if (!ended) Drain(queue);
    const std::lock_guard lock(tally.mutex);
    ++tally.calls[rpc.path];
    ++tally.ends[static_cast<int>(call.status().error_code())];
    if (!ended) tally.hung.push_back(rpc.path);
  }
  if (ended) Drain(queue);
}

TEST(RpcFuzz, TheControllerOutlivesWhateverIsCalledAndRunsASoundJob) {
  testing::LocalClusterOptions options;
  options.workers = 1;
  const auto started = testing::LocalCluster::Start(options);
  ASSERT_TRUE(started.has_value()) << started.error();
  testing::LocalCluster& cluster = **started;
  v1::SubmitRequest sound;
  sound.set_op_id("op");
  *sound.mutable_job() = proto::Encode(testing::ByteJob(1, 1, 2));
  const int64_t calls = CountOf("MESHWRIGHT_FUZZ_CALLS", kSanitizedBuild ? 200 : 2'000);
  const auto seed = static_cast<uint64_t>(CountOf("MESHWRIGHT_FUZZ_SEED", 20261127));
  Tally tally;
  std::vector<std::thread> callers;
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      CallAtRandom(cluster.port(), seed + static_cast<uint64_t>(i), i,
                   (calls + kCallers - 1) / kCallers, sound.SerializeAsString(), tally);
    });
  }
  for (std::thread& caller : callers) caller.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf("%.0f calls in a second\n", static_cast<double>(calls) / seconds);
  for (const auto& [path, count] : tally.calls) std::printf("%8ld %s\n", count, path.c_str());
  for (const auto& [code, count] : tally.ends) std::printf("%8ld ended with %d\n", count, code);
  EXPECT_TRUE(tally.hung.empty()) << tally.hung.size() << " calls hang, as " << tally.hung[0];
  EXPECT_EQ(tally.calls.size(), AllRpcs().size()) << "some were never called";
  // What was accepted of it goes, and a worker that nobody has drained comes.
  const auto jobs = cluster.client().List();
  ASSERT_TRUE(jobs.has_value()) << jobs.error();
  for (const client::JobInfo& job : *jobs) {
    if (!client::IsTerminal(job.state)) (void)cluster.client().Cancel(job.id);
  }
  const Status joined = cluster.AddWorker("sound");
  ASSERT_TRUE(joined.ok()) << joined;
  const auto id = cluster.Submit(testing::ByteJob(1, 1, 2), testing::SampleBytes(9000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const auto end = cluster.client().Wait(*id, kRpcPatienceMs);
  ASSERT_TRUE(end.has_value()) << end.error();
  EXPECT_EQ(end->state, client::JobState::kSucceeded) << end->message;
}

// A controller that says anything to its worker.
class MadController final : public v1::WorkerService::Service {
 public:
  MadController(uint64_t seed, int64_t sessions) : random_(seed), mad_sessions_(sessions) {}

  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::Down, v1::Up>* stream) override {
    v1::Up up;
    if (!stream->Read(&up) || !up.has_register_()) return grpc::Status::OK;
    v1::Down welcome;
    welcome.set_term(1);
    welcome.mutable_welcome()->set_cluster_id("c");
    welcome.mutable_welcome()->set_heartbeat_ms(20);
    welcome.mutable_welcome()->set_worker_lost_ms(60'000);
    stream->Write(welcome);
    const int64_t session = ++sessions_;
    if (session > mad_sessions_) {
      // Sane from now on: the worker still lives if it says so.
      while (stream->Read(&up)) {
        if (up.has_heartbeat()) ++heartbeats_;
        if (heartbeats_ >= 2) break;
      }
      return grpc::Status::OK;
    }
    for (v1::Down& down : Nonsense()) {
      if (!stream->Write(down)) break;
      ++said_;
    }
    return grpc::Status::OK;
  }
  int64_t heartbeats() const { return heartbeats_; }
  int64_t said() const { return said_; }

 private:
  std::vector<v1::Down> Nonsense() {
    const std::lock_guard lock(mutex_);
    std::vector<v1::Down> all(1 + random_.Below(12));
    for (v1::Down& down : all) {
      do {
        FillMessage(down, random_);
      } while (down.has_piece() && !random_.OneOf(8));
      if (!random_.OneOf(4)) down.set_term(1);
      if (random_.OneOf(3)) {
        const std::string bytes = Mutator({down.SerializeAsString()}, random_.Next()).Make(1);
        if (!down.ParseFromString(bytes)) down.Clear();
      }
    }
    return all;
  }

  std::mutex mutex_;
  Random random_;
  const int64_t mad_sessions_;
  std::atomic<int64_t> sessions_{0};
  std::atomic<int64_t> heartbeats_{0};
  std::atomic<int64_t> said_{0};
};

TEST(RpcFuzz, AWorkerOutlivesWhateverItsControllerSays) {
  const int64_t sessions = CountOf("MESHWRIGHT_FUZZ_SESSIONS", kSanitizedBuild ? 10 : 150);
  MadController service(static_cast<uint64_t>(CountOf("MESHWRIGHT_FUZZ_SEED", 20261127)), sessions);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  worker::AgentOptions options;
  options.controller = "127.0.0.1:" + std::to_string(port);
  options.name = "w0";
  options.memory_bytes = int64_t{1} << 28;
  // What no controller says is a reason to end, said in its log; whoever keeps it starts it again.
  const Deadline deadline = Deadline::After(kRpcPatienceMs);
  int starts = 0;
  while (service.heartbeats() < 2 && !deadline.expired()) {
    const auto agent = worker::Agent::Start(options);
    ASSERT_TRUE(agent.has_value()) << agent.error();
    ++starts;
    Status end = DeadlineExceeded("it runs");
    while (end.code() == StatusCode::kDeadlineExceeded && service.heartbeats() < 2 &&
           !deadline.expired()) {
      end = (*agent)->Wait(20);
    }
    (*agent)->Stop();
  }
  EXPECT_GE(service.heartbeats(), 2) << "it does not come back";
  std::printf("%ld messages in %ld sessions of %d workers\n", service.said(), sessions, starts);
  server->Shutdown();
}

}  // namespace
}  // namespace meshwright::fuzz
