// The texts of a beam search (generation/beam_search.h), of a session of programs over pages.
//
//   const PagedPlan plan = PlanPages({.positions = 256, .texts = 4});
//   ...
//   MW_ASSIGN_OR_RETURN(const std::vector<Hypothesis> texts,
//                       WriteBeams(plan.limits(), StepsOf(*session, plan), request, {.beams = 4}));
//
// Idea: beams that come of one text share its full pages. Its last page, which is not full, goes on
// with the first of them; each of the others reads what the page held into one of its own, which
// gives the same bits (docs/generation.md). So no page is ever copied, nor written by two. A source
// is read once for each beam, since a place in the table has a source of its own.
//
// Why no Engine: the next beams are known when all of them were computed, so that texts would wait
// for each other between steps. The session is the search's until it ends. Thread rule: one thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "generation/beam_search.h"
#include "generation/engine.h"
#include "generation/scheduler.h"

namespace meshwright::generation {

// Best first, at least one. Errors: CheckBeams; kInvalidArgument: no prompt, one that draws, or one
// longer than there are positions, or fewer texts in a step than beams; those of the limits and of
// `steps`; CheckLogits.
Result<std::vector<Hypothesis>> WriteBeams(const BatchLimits& limits, const StepLogits& steps,
                                           const Request& request, const BeamOptions& options);

}  // namespace meshwright::generation
