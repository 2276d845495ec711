// Operators and slices of a chat template, as Python has them.
//
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tokenizer/template_builtins.h"

namespace meshwright::tokenizer {

// a op b, op of + - * / // % **. Errors: kInvalidArgument: not of these kinds, by 0, and whole
// numbers beyond 64 bits.
Result<Value> Arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget);
Result<Value> Negative(const Value& value);

// value[from:to:step], each of which may be null.
Result<Value> SliceOf(const Value& value, const Value* from, const Value* to, const Value* step,
                      Budget& budget);

}  // namespace meshwright::tokenizer
