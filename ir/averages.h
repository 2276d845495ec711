// Running means of weights (EMA): after each step e = decay * e + (1 - decay) * p, from e = p
// before the first one. They are state of the optimizer named "opt.ema/P", so checkpoints, recovery
// and ZeRO have them like its moments.
//
// Thread rule: pure functions. Source: Polyak & Juditsky 1992; as weights to use: Tarvainen &
// Valpola, NeurIPS'17.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

inline constexpr char kAverageAttr[] = "average";       // real, on a param: the decay of its mean
inline constexpr char kAverageOfAttr[] = "average_of";  // str, on a mean: the param
inline constexpr char kDrawnAsAttr[] = "drawn_as";      // str: the param whose values it starts as
inline constexpr char kAveragePrefix[] = "opt.ema/";

// The graph with means of all its trained params. Errors: kInvalidArgument: decay is not in (0, 1).
Result<Graph> WithAverages(const Graph& graph, double decay);

// "opt.ema/P" -> "P"; "" for other names.
std::string AveragedParam(const std::string& name);

}  // namespace meshwright::ir
