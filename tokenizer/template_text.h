// What Python does with texts, by characters: for chat templates.
//
// Thread rule: pure functions. Texts are UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::tokenizer {

int64_t CharacterCount(std::string_view text);
std::vector<std::string> CharactersOf(std::string_view text);

enum class StripEnds : uint8_t { kBoth, kLeft, kRight };
// Takes characters of `set` off, spaces where there is none.
std::string_view Stripped(std::string_view text, StripEnds ends,
                          std::optional<std::string_view> set = std::nullopt);
// Without a separator: at runs of spaces, no part empty. most: so many cuts; -1: all.
std::vector<std::string> SplitText(std::string_view text, std::optional<std::string_view> separator,
                                   int64_t most);
std::vector<std::string> SplitTextRight(std::string_view text, std::string_view separator,
                                        int64_t most);
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);
// How often `part` is in `text`, one behind the other; an empty one before each character and at
// the end.
int64_t CountOf(std::string_view text, std::string_view part);
// Bytes of what ReplacedText makes.
size_t ReplacedBytes(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most);
std::string ReplacedText(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most);
std::string LowerText(std::string_view text);
std::string UpperText(std::string_view text);
std::string CapitalText(std::string_view text);
std::string TitleText(std::string_view text);

// str.isspace of one character.
bool IsPythonSpace(char32_t code);

// As Python writes a text within a list: 'it', with escapes.
std::string TextRepr(std::string_view text);

}  // namespace meshwright::tokenizer
