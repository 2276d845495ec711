#include "generation/write_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::generation {

const char* FinishName(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kFull:
      return "full";
    case Finish::kBarred:
      return "barred";
    case Finish::kLength:
      break;
  }
  return "length";
}

int64_t LongestOf(const Request& request, int64_t positions) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  return std::min(request.max_new_tokens, positions + 1 - prompt);
}

RulesOfText RulesOf(const Request& request, int64_t positions) {
  return {request.rules, static_cast<int64_t>(request.prompt.size()), LongestOf(request, positions),
          request.stops};
}

Result<Written> WriteText(const Request& request, int64_t positions, const LogitsBehind& logits,
                          const OnToken& on_token) {
  MW_TRY(CheckSampling(request.sampling));
  if (request.prompt.empty()) {
    return Fail(InvalidArgument("the prompt has no token: give a text to go on from"));
  }
  std::vector<int32_t> text = request.prompt;
  if (static_cast<int64_t>(text.size()) > positions) {
    return Fail(InvalidArgument(
        fmt::format("the prompt has {} tokens, and the model has {} positions: shorten the prompt",
                    text.size(), positions)));
  }
  const RulesOfText rules = RulesOf(request, positions);
  Written written;
  while (static_cast<int64_t>(written.tokens.size()) < request.max_new_tokens) {
    if (static_cast<int64_t>(text.size()) > positions) {
      written.finish = Finish::kFull;
      return written;
    }
    MW_ASSIGN_OR_RETURN(const std::vector<double> next, logits(text));
    MW_ASSIGN_OR_RETURN(const int32_t token,
                        NextToken(next, text, request.sampling,
                                  {request.seed, request.number, text.size()}, rules));
    if (token == kNoToken) {
      written.finish = Finish::kBarred;
      return written;
    }
    text.push_back(token);
    written.tokens.push_back(token);
    if (request.stops.contains(token)) {
      written.finish = Finish::kStop;
      return written;
    }
    if (!on_token(token)) return written;
  }
  return written;
}

}  // namespace meshwright::generation
