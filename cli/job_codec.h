// How the tokens of a job are read: as bytes, or by the tokenizer that its job file names.
//
// Thread rule: reads files of this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/text_codec.h"
#include "ir/job.h"

namespace meshwright::cli {

// The tokenizer with which the job's text became tokens: a file, or the folder of a model. None:
// its data are bytes. Errors: kInvalidArgument: its data are tokens whose tokenizer it does not
// name; kNotFound: that is not on this machine.
Result<std::optional<std::string>> TokenizerOfJob(const ir::JobRequest& job, int64_t id);

// Errors: as above, and those of Tokenizer::Load.
Result<TextCodec> CodecOfJob(const ir::JobRequest& job, int64_t id);

// How the rows of a job of pairs are read, and the token that ends a text; none: nothing says it.
struct PairCodec {
  TextCodec codec;
  std::optional<int32_t> end;
};
// Errors: as CodecOfJob.
Result<PairCodec> PairCodecOfJob(const ir::JobRequest& job, int64_t id);

// The folder that the job's model started from (model.hf_path), where it is on this machine and the
// tokens of the job's data are its tokenizer's.
std::optional<std::string> FolderWithTokensOfJob(const ir::JobRequest& job);

// The token that ends the texts of the job; none: nothing says it, or its data are bytes.
std::optional<int32_t> EndOfJobTexts(const ir::JobRequest& job, int64_t id);

}  // namespace meshwright::cli
