// Padding: what a tensor axis does not divide is padded until it does.
//
// A vocabulary of 50,257 words, 12 heads on 8 devices, 3 key heads on 2: each is a dim of some
// weights, and of all values between a product that makes it and one that sums over it. Such a dim
// of n units becomes one of ceil(n / tensor) * tensor; who computes longest has as much to do as
// with blocks of different sizes, and all devices keep one program.
//
// The law: padding of weights is zeros, before the first step and after each. It is drawn as zeros;
// whoever sums over it gets zeros from both sides, so that no gradient reaches it; an optimizer
// leaves a weight of zero alone whose gradient is zero. What would be no zero (a sigmoid, a norm's
// bias) is multiplied by zero there before it is summed; logits get -2^100 before their exponents
// are. An op that this file does not know gets the tensor without padding, so that results are
// those of the model, whatever it is made of. State is kept, saved and loaded without padding: a
// slot says which part of it is the tensor (ir/program.h).
//
// Key heads that a group of devices has several times over (2 heads on 4 devices) are repeated
// behind their product, not padded: query heads stay as many as they are.
//
// Not padded: a table or vocabulary that would grow by more than a quarter, which is whole on every
// device; a vocabulary that stages share; anything that Adafactor renews, whose means would count
// it; anything whose shardings are searched one by one.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// By name: what dims a padded weight has.
using PaddedParams = std::map<std::string, ir::Dims>;

struct PaddedJob {
  ir::JobRequest job;  // whose weights say what they are without padding ("Sharded dims", ir/op.h)
  std::vector<std::string> notes;  // what was padded
};

// Nothing: the layout divides all that it splits. Errors: kInternal: a bug of this file.
Result<std::optional<PaddedJob>> PadJob(const ir::JobRequest& job, const Layout& layout);

// Weights of the graph, forward, that a tensor group of so many devices wants padded, with a line
// for each kind of unit. `words`: rows of tables and vocabularies, too.
PaddedParams FindPadding(const ir::Graph& graph, int64_t tensor, bool words,
                         std::vector<std::string>& notes);

// How many times as many elements the weight has that grows most, words excepted; 1: none grows.
double PaddingGrowth(const ir::Graph& graph, int64_t tensor);

// The graph on padded weights; `mask`: what is added to logits that are padding.
Result<ir::Graph> PadGraph(const ir::Graph& graph, const PaddedParams& params, double mask);

// Key heads repeated for a group of devices that they divide and do not fill; attention in pages
// that it does not divide as attention of all heads on each device.
Result<ir::Graph> RepeatKeyHeads(const ir::Graph& graph, int64_t tensor);

}  // namespace meshwright::planner
