// A model that is open to write texts: what `generate` opens, for commands that ask more than once.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "cli/args.h"
#include "cli/text_codec.h"
#include "client/client.h"
#include "generation/write_text.h"

namespace meshwright::cli {

class TextWriter {
 public:
  virtual ~TextWriter() = default;
  virtual TextCodec& codec() = 0;
  // The longest text, prompt and answer, that the model takes; of one that reads a prompt as a
  // source, the longest answer.
  virtual int64_t positions() const = 0;
  // The longest prompt.
  virtual int64_t prompt_positions() const = 0;
  // Writes behind a prompt. more_stops: tokens that end a text, besides the model's own.
  virtual Result<generation::Written> Write(const GenerateArgs& args, std::vector<int32_t> prompt,
                                            const std::set<int32_t>& more_stops, uint64_t number,
                                            const generation::OnToken& on_token) = 0;
  virtual Status Close() = 0;
};

// Of the folder or job that `args` names, for texts of `positions` tokens, prompt and answer
// together, or for sources and answers of so many; or of as many as the model takes. Errors: those
// of `generate`.
Result<std::unique_ptr<TextWriter>> OpenWriter(client::Client& client, const GenerateArgs& args,
                                               int64_t positions);

}  // namespace meshwright::cli
