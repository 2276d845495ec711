// How texts are written where the user does not say it: by a model's folder, or by that of a job.
//
// Thread rule: reads files of this machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/text_args.h"
#include "generation/settings.h"
#include "ir/job.h"

namespace meshwright::cli {

// What generation_config.json says, else config.json, which also says where texts end and a decoder
// begins where the first does not. A folder without either: nothing. Errors: naming the file, what
// it says and what is wrong with it; kUnimplemented: what would change the text and is not built.
Result<generation::Settings> SettingsOfFolder(const std::string& folder);

// Texts of a job end where its documents do. Where the tokenizer of its data is that of the folder
// it started from (model.hf_path), all that the folder says counts, too: a folder that is exported
// from the job has the same file. Errors: as above.
Result<generation::Settings> SettingsOfJob(const ir::JobRequest& job, int64_t id);

// How many tokens a text gets at most, behind a prompt of so many: what the user says, else the
// model, else 128. Errors: kInvalidArgument: by the model's "max_length" there is room for none.
Result<int64_t> MostNewTokens(const GenerateArgs& args, const generation::Settings& settings,
                              int64_t prompt);

// The user's word counts before the model's.
generation::TextRules RulesOf(const GenerateArgs& args, const generation::Settings& settings);

}  // namespace meshwright::cli
