#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

// What one thread matches with. The stack of the compiled code grows as a pattern asks for it.
struct MatchMemory {
  MatchMemory()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    MW_CHECK(data != nullptr && context != nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchMemory() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchMemory& ThreadMemory() {
  thread_local MatchMemory memory;
  return memory;
}

std::string Message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* made) : code(made) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  bool compiled = false;  // to machine code
};

Result<Regex> Regex::Make(const std::string& pattern, unsigned options, std::string_view shown) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  MW_CHECK(context != nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    options | PCRE2_UTF | PCRE2_NO_UTF_CHECK, &error, &place, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return Fail(InvalidArgument(fmt::format("the pattern '{}' is wrong near '{}': {}", shown,
                                            pattern.substr(std::min(place, pattern.size())),
                                            Message(error))));
  }
  const auto made = std::make_shared<Code>(code);
  made->compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(made);
}

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (FindInvalidUtf8(pattern) != pattern.size()) {
    return Fail(InvalidArgument("a pattern is not UTF-8"));
  }
  MW_ASSIGN_OR_RETURN(const std::string rewritten, RewritePattern(pattern));
  return Make(rewritten, PCRE2_UCP | PCRE2_MULTILINE, pattern);
}

Result<Regex> Regex::Literal(std::string_view text) {
  return Make(std::string(text), PCRE2_LITERAL, text);
}

Status Regex::FindAll(std::string_view text, std::vector<Match>& matches) const {
  const MatchMemory& memory = ThreadMemory();
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(memory.data);
  size_t covered = 0;
  size_t from = 0;
  bool any = false;  // whether there was a match, which ended at `covered`
  while (from <= text.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->compiled) {
      found =
          pcre2_jit_match(code_->code, subject, text.size(), from, 0, memory.data, memory.context);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->code, subject, text.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, memory.data, memory.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return ResourceExhausted(
          fmt::format("a pattern of the tokenizer gave up at byte {}: {}", from, Message(found)));
    }
    const Span span = {bounds[0], bounds[1]};
    if (span.begin == span.end && any && span.end == covered) {
      from += from < text.size() ? CharacterBytes(text[from]) : 1;
      continue;
    }
    if (covered < span.begin) matches.push_back({{covered, span.begin}, false});
    matches.push_back({span, true});
    covered = from = span.end;
    any = true;
  }
  if (covered < text.size()) matches.push_back({{covered, text.size()}, false});
  return OkStatus();
}

}  // namespace meshwright::tokenizer
