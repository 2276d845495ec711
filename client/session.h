// A session: a client that drives a job, call by call.
//
//   auto session = client->OpenSession(job);                    // submits it, waits until it runs
//   Feeds feeds = {{"x", Tensor::Of<float>({32, 4}, rows)}};
//   auto first = (*session)->Call("step", feeds);               // a future, one of several
//   Result<Answer> answer = (*session)->Run("predict", feeds);  // call and wait
//   answer->values.at("loss"); answer->tensors.at("logits").Values<float>();
//   (*session)->Close();                                        // its last client ends the job
//
// Calls are carried out in their order, each exactly once, also where the connection breaks and is
// made again (SessionOptions::reconnect_ms): inputs are kept until the answer has come. A call that
// fails because its job has ended says why. A job whose driver is "client" ends well when its last
// client has closed; one that is gone without Close() counts for driver.grace_s, in which another
// may go on (AttachSession). Thread rule: thread-safe. Every wait has a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "ir/graph.h"
#include "proto/actor_ref.h"
#include "proto/fetch.h"

namespace meshwright::client {

// A whole tensor on the host, in row-major order.
struct Tensor {
  ir::TensorType type;
  std::vector<std::byte> data;

  // The dtype that holds T: float, double, int32_t or int64_t.
  template <typename T>
  static ir::DType DTypeOf();
  // REQUIRES as many values as `dims` have.
  template <typename T>
  static Tensor Of(ir::Dims dims, std::span<const T> values);
  template <typename T>
  static Tensor Of(ir::Dims dims, const std::vector<T>& values) {
    return Of<T>(std::move(dims), std::span<const T>(values));
  }
  // REQUIRES T to be what the dtype holds.
  template <typename T>
  std::vector<T> Values() const;

  // Where the float type, f32 or f64, is a matter of the run: `values` rounded to it.
  static Tensor OfReals(ir::DType dtype, ir::Dims dims, const std::vector<double>& values);
  // The values of any dtype: bool as 0 and 1, an i64 beyond 2^53 rounded.
  std::vector<double> Reals() const;
  // Those of one index of the first dim. REQUIRES that there is one.
  std::vector<double> RealsOfRow(int64_t row) const;
  // Those of one index of the first two dims. REQUIRES that there is one.
  std::vector<double> RealsOfRow(int64_t row, int64_t of_row) const;
};

using Feeds = std::map<std::string, Tensor>;

struct Answer {
  int64_t step = 0;  // that noise and data of the call were keyed by
  double seconds = 0;
  std::map<std::string, double> values;   // scalars, of the whole batch
  std::map<std::string, Tensor> tensors;  // what the program gives out, where asked for
};

// Which tensors come back. kLargest: of reals [.., n] comes, as i32 [..], the place of the largest
// of each row, of equal ones the first and -1 where it is not finite or one is no number; others
// come whole.
using proto::Fetch;

struct CallOptions {
  Fetch fetch = Fetch::kAll;
  std::optional<int64_t> step;  // else the calls of a program are counted
};

struct SessionOptions {
  int64_t open_timeout_ms = 600'000;  // until the job runs: it may wait for devices
  int64_t timeout_ms = 60'000;        // of Run, ReadState and WriteState, and of waiting for credit
  // A connection that breaks is made again for so long, first at once and then after pauses that
  // double up to two seconds; what is unanswered goes on. 0: never. The job must still have the
  // session by then (driver.grace_s).
  int64_t reconnect_ms = 60'000;
};

struct CloseOptions {
  // A job whose driver is "client" ends well, although others have it open or may come back: a
  // successor says so that does not wait for the client it took over from.
  bool end_job = false;
};

using proto::ActorFate;
using proto::ActorRef;

// What became of an actor.
struct ActorNews {
  ActorFate fate = ActorFate::kUnspecified;
  ActorRef next;  // of kRestarted: its new life
  Status why;
};

class Session {
 public:
  virtual ~Session() = default;

  virtual int64_t job_id() const = 0;
  // What can be called, and with which inputs.
  virtual std::map<std::string, std::map<std::string, ir::TensorType>> programs() const = 0;

  // The answer comes exactly once, also when the job or the connection ends. Waits while as many
  // calls as the controller allows are unanswered.
  virtual std::future<Result<Answer>> Call(const std::string& program, const Feeds& feeds,
                                           CallOptions options = {}) = 0;
  // Errors: kInvalidArgument and kNotFound naming the program or input; kAborted and others: why
  // the job ended; kUnavailable: the controller is gone, and whether it was carried out is not
  // known; kDeadlineExceeded.
  virtual Result<Answer> Run(const std::string& program, const Feeds& feeds,
                             CallOptions options = {}) = 0;

  // Weights (none named: all) and optimizer state ("opt.m/NAME", "opt.v/NAME") as they are after
  // the calls before. Errors: as Run.
  virtual Result<std::map<std::string, Tensor>> ReadState(
      const std::vector<std::string>& names = {}) = 0;
  // Only where the driver is "client". Errors: as Run.
  virtual Status WriteState(const std::map<std::string, Tensor>& tensors) = 0;

  // Host actors: objects of a user's own worker binary (worker/main.h), placed and restarted by the
  // controller, that end with the job. `worker`: where; "": where there are the fewest. Errors:
  // kNotFound naming the types that there are; kUnavailable; the actor's own.
  virtual Result<ActorRef> Spawn(const std::string& type, const std::string& args = "",
                                 const std::string& worker = "") = 0;
  // The actor's reply, or why there is none, exactly once. Errors: kDeadlineExceeded; kAborted: it
  // failed first; kNotFound: this life of it is over, a reference with generation 0 is to whichever
  // there is; kCancelled: it was stopped; kUnavailable: the connection broke, and whether the actor
  // got it is not known; the actor's own.
  virtual std::future<Result<std::string>> Ask(const ActorRef& actor, std::string payload,
                                               int64_t deadline_ms = 10'000) = 0;
  // OK: the message is in the actor's mailbox; the actor sends no reply to it. Waits while 256
  // messages of this session are unanswered, as Ask. Errors: as Ask, and kResourceExhausted: the
  // mailbox is full.
  virtual std::future<Status> Tell(const ActorRef& actor, std::string payload,
                                   int64_t deadline_ms = 10'000) = 0;
  // Told once, when this life of the actor is over and it runs again, or when it has ended for
  // good. Errors: kNotFound: it is over already; why the session ended.
  virtual std::future<Result<ActorNews>> Watch(const ActorRef& actor) = 0;
  virtual Status Stop(const ActorRef& actor) = 0;

  // Says that the client has finished, once all its calls are answered. Nothing can be asked any
  // more. Errors: kDeadlineExceeded, after timeout_ms: calls are still unanswered, and may be
  // waited for by closing again, or the controller did not end the session; kUnavailable.
  virtual Status Close(CloseOptions options = {}) = 0;
};

// ---- implementation ----

template <typename T>
ir::DType Tensor::DTypeOf() {
  if constexpr (std::is_same_v<T, float>) return ir::DType::kF32;
  if constexpr (std::is_same_v<T, double>) return ir::DType::kF64;
  if constexpr (std::is_same_v<T, int32_t>) return ir::DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return ir::DType::kI64;
}

template <typename T>
Tensor Tensor::Of(ir::Dims dims, std::span<const T> values) {
  Tensor tensor{{DTypeOf<T>(), std::move(dims)}, {}};
  MW_CHECK(static_cast<int64_t>(values.size()) == tensor.type.elements())
      << values.size() << " values for " << tensor.type.ToString();
  tensor.data.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), values.size_bytes());
  return tensor;
}

template <typename T>
std::vector<T> Tensor::Values() const {
  MW_CHECK(type.dtype == DTypeOf<T>()) << type.ToString();
  std::vector<T> values(data.size() / sizeof(T));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

inline Tensor Tensor::OfReals(ir::DType dtype, ir::Dims dims, const std::vector<double>& values) {
  if (dtype == ir::DType::kF64) return Of<double>(std::move(dims), values);
  MW_CHECK(dtype == ir::DType::kF32) << ir::DTypeName(dtype);
  return Of<float>(std::move(dims), std::vector<float>(values.begin(), values.end()));
}

}  // namespace meshwright::client
