// Programs that go on with texts: they take some tokens of several texts, keep what attention knows
// of them in pages, and give out the logits behind the tokens that are asked for.
//
//   const PageShape shape{.pages = 64, .texts = 8, .positions = 1024};
//   MW_ASSIGN_OR_RETURN(auto prefill, PagedProgram(shape, {.tokens = 64, .rows = 8}, functions));
//   MW_ASSIGN_OR_RETURN(auto decode, PagedProgram(shape, {.tokens = 1, .rows = 1}, functions));
//
// The inputs of "rows/64", with g = shape.groups:
//   tokens, row, position  i32[g, 64]  tokens in any order; row: of the table, -1: no token
//   table                  i32[g, texts, text_pages]  the pages of each text
//   wanted                 i32[g, 8]   places of tokens; the output "logits" is [g, 8, vocabulary]
// and those of client/paged_source.h where texts have sources.
//
// All programs of a job share the pages, which are params of the job. The model's functions are
// those that train it. Logits do not depend on what else is in the batch, to the last bit, nor on
// which program computes them (docs/generation.md). Thread rule: as MakeProgram.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/paged_rows.h"
#include "client/paged_source.h"
#include "client/trainer.h"
#include "ir/job.h"

namespace meshwright::client {

struct PagedSize {
  int64_t tokens = 1;
  int64_t rows = 1;  // of logits
  SourceShape source = {};
};

std::string PagedProgramName(const PagedSize& size);  // "rows/64"; "source/64": it reads one

// Errors: what the functions did wrong; kUnimplemented naming what the model does that is not of
// one token at a time (experts, documents in a row), where it depends on tokens.
Result<ir::JobProgram> PagedProgram(const PageShape& shape, const PagedSize& size,
                                    const TrainerFunctions& functions,
                                    ir::DType dtype = ir::DType::kF32);

}  // namespace meshwright::client
