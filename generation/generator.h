// Texts for many callers at once: each request is a stream of tokens.
//
//   Generator generator(plan.limits(), StepsOf(*session, plan));
//   std::unique_ptr<TextStream> text = generator.Generate(request);    // from any thread
//   while (true) {
//     MW_ASSIGN_OR_RETURN(const std::optional<int32_t> token, text->Next(5000));
//     if (!token) break;                                               // text->finish() says why
//     ...
//   }
//
// An engine (generation/engine.h) that a loop of its own drives: requests join between two steps,
// and one whose stream is destroyed leaves before the next. Thread rule: Generate() from any
// thread; a stream has one reader. Ownership: a stream may outlive the generator, which ends it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/result.h"
#include "generation/engine.h"

namespace meshwright::generation {

class Generator;

class TextStream {
 public:
  ~TextStream();  // what is not read is not written
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  // The next token, but for one that stops the text; nothing: the text has ended. Errors: those of
  // Engine::Add and of a step; kResourceExhausted: too many wait; kCancelled: the generator is
  // gone; kDeadlineExceeded: no token yet, ask again.
  Result<std::optional<int32_t>> Next(int64_t timeout_ms);
  // REQUIRES that Next() gave nothing.
  Finish finish() const;

 private:
  friend class Generator;
  struct State {
    mutable Mutex mutex;
    CondVar changed;
    std::deque<int32_t> tokens MW_GUARDED_BY(mutex);
    std::optional<Finish> finish MW_GUARDED_BY(mutex);
    Status error MW_GUARDED_BY(mutex);
    bool left MW_GUARDED_BY(mutex) = false;  // nobody reads

    void Put(int32_t token);
    void End(Finish why);
    void Fail(Status why);
    bool HasReader() const;
  };

  explicit TextStream(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

class Generator {
 public:
  static constexpr int64_t kMostWaiting = 1024;  // of requests that no step has begun

  // REQUIRES limits as those of the scheduler.
  Generator(const BatchLimits& limits, StepLogits steps);
  ~Generator();

  std::unique_ptr<TextStream> Generate(Request request);

 private:
  using States = std::map<int64_t, std::shared_ptr<TextStream::State>>;

  void AddOnLoop(Request request, const std::shared_ptr<TextStream::State>& state);
  void StepOnLoop();
  void FailAllOnLoop(const Status& why);

  // On the loop.
  Engine engine_;
  States states_;
  Status broken_;
  bool is_stepping_ = false;  // a step is posted
  Executor loop_;             // last: it ends before what it works on
};

}  // namespace meshwright::generation
