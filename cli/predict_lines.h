// predict on texts of a file: lines of JSON, each a text that the model is asked about.
//
//   {"text": "The weather"}      or "prompt" in its place; other fields count nothing
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/text_codec.h"

namespace meshwright::cli {

// Whether --data names such files: by --format, else by the names. Errors: kInvalidArgument: some
// of them are and some are not.
Result<bool> AreLinesOfTexts(const std::vector<std::string>& paths, const std::string& format);

// The tokens of each line that is not empty, in order. Errors: kInvalidArgument naming the file and
// the line: no JSON object, no text, a text without a token; those of reading.
Result<std::vector<std::vector<int32_t>>> TokensOfLines(const std::vector<std::string>& paths,
                                                        const TextCodec& codec);

}  // namespace meshwright::cli
