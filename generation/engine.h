// Requests in, streams of tokens out: several texts at once, each as if it were alone.
//
//   Engine engine(limits, steps);
//   MW_ASSIGN_OR_RETURN(int64_t id, engine.Add(request, {on_token, on_end}));
//   while (!engine.idle()) MW_TRY(engine.Step());
//
// A step asks `steps` for the logits behind some tokens of the batch that the scheduler puts
// together (generation/scheduler.h), takes the next token of each text by its own request, and
// tells its listener. Requests may be added and cancelled between steps, by listeners too. What a
// request gets does not depend on what else runs: logits do not, and tokens are drawn by its own
// key. Ownership: `steps` and listeners are kept. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <variant>
#include <vector>

#include "base/result.h"
#include "generation/scheduler.h"
#include "generation/write_text.h"

namespace meshwright::generation {

// By wanted token, its logits [vocabulary]; or, of a batch that asks for no more, the likeliest
// next token: of equal ones that of the lowest id.
using StepAnswer = std::variant<std::vector<std::vector<double>>, std::vector<int32_t>>;

// What is computed stays in the pages.
using StepLogits = std::function<Result<StepAnswer>(const Batch& batch)>;

struct Listener {
  OnToken on_token;                      // but for a token that stops the text; false: enough
  std::function<void(int32_t)> on_stop;  // the token that stops the text; may be empty
  std::function<void(Finish)> on_end;    // once, unless it is cancelled; may be empty
};

class Engine {
 public:
  // REQUIRES limits as those of the scheduler.
  Engine(const BatchLimits& limits, StepLogits steps);

  // The id of the request. Errors: kInvalidArgument: no prompt, or one that is longer than a text
  // can be; as BatchLimits::CheckSource; CheckSampling; kResourceExhausted: more pages than there
  // are.
  Result<int64_t> Add(Request request, Listener listener);
  void Cancel(int64_t id);
  // Errors: those of `steps`; CheckLogits; the engine is of no use then. REQUIRES not idle.
  Status Step();

  bool idle() const { return scheduler_.idle(); }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Text {
    Request request;
    Listener listener;
    std::vector<int32_t> tokens;  // the prompt and what was generated
    RulesOfText rules;
  };

  bool WantsLikeliest(const Batch& batch) const;
  Status Take(int64_t id, const StepAnswer& answer, size_t row);
  void Go(int64_t id, Text& text, int32_t token);
  void End(int64_t id, Finish finish);

  const BatchLimits limits_;
  StepLogits steps_;
  Scheduler scheduler_;
  std::map<int64_t, Text> texts_;
  int64_t next_id_ = 0;
};

}  // namespace meshwright::generation
