// The token that stands where tokens are hidden, of a model that says what was there.
//
// Thread rule: reads files.
#pragma once

#include "base/result.h"
#include "config/job_config.h"
#include "models/registry.h"

namespace meshwright::cli {

// A config.json of transformers has no such id: the tokenizer knows it. Where the job's data are
// tokens of a tokenizer, the configuration gets the id that the tokenizer has, so that it stands in
// what is exported, too. Models that hide nothing are left as they are.
// Errors: kInvalidArgument naming the key: the job or the config.json says another id than the
// tokenizer; the tokenizer has no such token, and neither says one; those of Tokenizer::Load, but
// for one that is not there.
Status TakeMaskToken(config::JobConfig& config);

// Of a model that is to be trained. Errors: kInvalidArgument where it hides tokens and nobody says
// its mask, or the mask is a byte of its texts, so that what is hidden could as well be shown.
Status CheckMask(const models::Model& model, const config::JobConfig& config);

}  // namespace meshwright::cli
