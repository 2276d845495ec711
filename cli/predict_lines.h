// predict on texts of a file: lines of JSON, each a text that the model is asked about, or plain
// text, which is cut into windows.
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

// Whether --data names plain text that a tokenizer reads: by --format, else by the names of a job
// whose tokens are no bytes.
bool IsPlainText(const std::vector<std::string>& paths, const std::string& format,
                 const std::string& format_of_job);

// The tokens of the files, one behind the other, in windows of `positions`, of which the last may
// be shorter: as files of tokens are cut. Errors: kInvalidArgument: no token; those of reading and
// of the tokenizer. REQUIRES: positions > 0.
Result<std::vector<std::vector<int32_t>>> WindowsOfTexts(const std::vector<std::string>& paths,
                                                         const TextCodec& codec, int64_t positions);

}  // namespace meshwright::cli
