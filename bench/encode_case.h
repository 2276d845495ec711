// How fast a tokenizer is: its file read, and text encoded by one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::bench {

struct EncodeCase {
  double load_seconds = 0;  // median of a few
  double bytes_per_s = 0;   // of the whole text, by lines as they are, median of the rounds
  int64_t tokens = 0;       // of the text
};

// tokenizer: a tokenizer.json; text: a file, encoded in pieces of whole lines of about 16 KiB.
// Errors: of the files, and of encoding.
Result<EncodeCase> RunEncodeCase(const std::string& tokenizer, const std::string& text, int rounds);

}  // namespace meshwright::bench
