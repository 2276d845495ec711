// Where a text is no JSON, for people: parsers without exceptions only say that it is none.
//
// Thread rule: a pure function.
#pragma once

#include <string>
#include <string_view>

namespace meshwright {

// "parse error at line 3, column 7: ..."; "" of a text that is JSON.
std::string JsonErrorOf(std::string_view text);
// What a text that should be an object is: "no JSON object", or "no JSON: " and the above.
std::string WhyNoJsonObject(std::string_view text);

}  // namespace meshwright
