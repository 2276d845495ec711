// An engine's steps by a session of a job whose programs keep texts in pages.
//
//   const PagedPlan plan = PlanPages({.positions = 1024});
//   MW_ASSIGN_OR_RETURN(auto job, PagedJob(prepared.request, functions, plan));
//   MW_ASSIGN_OR_RETURN(auto session, client.OpenSession(job));
//   Engine engine(plan.limits(), StepsOf(*session, plan));
//
// The job has a program for each of a few numbers of tokens; a step takes the smallest that holds
// it, and the rest of its tokens are none. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "client/paged_program.h"
#include "client/session.h"
#include "client/trainer.h"
#include "generation/engine.h"
#include "ir/job.h"

namespace meshwright::generation {

struct PagedOptions {
  int64_t positions = 1024;  // of the longest text
  int64_t texts = 8;         // at once
  int64_t tokens = 64;       // of a step: a new prompt comes in pieces of about so many
  int64_t page_tokens = 16;
  int64_t pages = 0;   // 0: all texts at once, each as long as can be
  int64_t source = 0;  // positions of the longest source; 0: the model has no encoder
};

struct PagedPlan {
  client::PageShape shape;
  std::vector<client::PagedSize> sizes;  // of programs, by tokens

  BatchLimits limits() const;
};

// Programs for one token, for a few, for one of each text, and for a step's; with sources one more
// of a step's tokens, which reads a source, too (client/paged_source.h). Errors:
// kInvalidArgument naming the option: below 1, or fewer tokens than texts.
Result<PagedPlan> PlanPages(const PagedOptions& options);

// `of` with the programs of the plan in the place of its own, for a client to drive; its pages are
// in the type that it computes in. Errors: those of client::PagedProgram; kInvalidArgument: a
// layout with replicas, which would each compute everything.
Result<ir::JobRequest> PagedJob(ir::JobRequest of, const client::TrainerFunctions& functions,
                                PagedPlan plan, const std::string& name);

// A job of programs that renew no weights, which it keeps in the 16-bit type that it computes in:
// half the bytes, and no cast of them in each step. Any other job as it is. Behind LoRA's rewrite
// (ir/adapters.h), which looks for the products of params. Errors: those of ir::ToMixedPrecision.
Result<ir::JobRequest> WithHalfWeights(ir::JobRequest job);

// The session outlives what is returned.
StepLogits StepsOf(client::Session& session, const PagedPlan& plan);

}  // namespace meshwright::generation
