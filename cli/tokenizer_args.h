// The options of `meshwright tokenizer`.
//
// Thread rule: main thread. What is filled in outlives the parser.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/args.h"

namespace meshwright::cli {

// tokenizer encode, decode, train and render.
void AddTokenizer(CLI::App& app, TokenizerArgs& args);

}  // namespace meshwright::cli
