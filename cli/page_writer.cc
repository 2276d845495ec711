#include "cli/page_writer.h"

#include <utility>

namespace meshwright::cli {

PageWriter::PageWriter(const generation::BatchLimits& limits, generation::StepLogits steps)
    : limits_(limits), steps_(std::move(steps)) {}

Result<generation::Written> PageWriter::Write(const generation::Request& request,
                                              const generation::OnToken& on_token) {
  if (!engine_) engine_.emplace(limits_, steps_);
  generation::Written written;
  const generation::Listener listener = {
      [&](int32_t token) {
        written.tokens.push_back(token);
        return on_token(token);
      },
      [&](int32_t token) { written.tokens.push_back(token); },
      [&](generation::Finish finish) { written.finish = finish; }};
  MW_TRY(engine_->Add(request, listener));
  while (!engine_->idle()) {
    const Status stepped = engine_->Step();
    if (stepped.ok()) continue;
    engine_.reset();  // of no use, and its listener is of this call
    return Fail(stepped);
  }
  return written;
}

}  // namespace meshwright::cli
