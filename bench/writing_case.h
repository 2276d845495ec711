// How fast texts are written: a model of a folder in pages on a running cluster, its steps timed as
// a client that drives an engine (generation/engine.h) sees them.
//
// Prompts are tokens drawn by a fixed seed, tokens are the likeliest, ends of texts are passed
// over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::bench {

struct WritingCaseOptions {
  std::string address;
  std::string folder;                  // a Hugging Face model; needs no tokenizer
  std::vector<std::string> overrides;  // section.key=value
  int64_t texts = 1;                   // that are written at once
  int64_t prompt_tokens = 32;          // of each
  int64_t new_tokens = 128;            // of each
  int64_t step_tokens = 64;            // of a step: pieces of prompts are no longer
  int64_t late_prompt_tokens = 0;      // of one more text that joins in the middle; 0: none does
};

struct WritingCase {
  int64_t steps = 0;
  double prompt_seconds = 0;  // from the first step to when every text has its first token
  double decode_seconds = 0;  // of the steps behind, in which nothing but texts go on
  int64_t decode_tokens = 0;  // of those steps
  double step_median_s = 0;   // of those steps
  double late_seconds = 0;    // from the late text's first step to its first token
  double gap_median_s = 0;    // between two tokens of a text that runs, in those steps
  double late_gap_p99_s = 0;  // while the late text's prompt comes in
  double late_gap_median_s = 0;
};

// Errors: those of the folder, of planning and of the session.
Result<WritingCase> RunWritingCase(const WritingCaseOptions& options);

std::string FormatWritingCase(const WritingCase& result);  // a line of JSON

}  // namespace meshwright::bench
