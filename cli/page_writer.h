// Texts in pages, one after the other: what the model has read of one is not read again for the
// next that begins alike, as the turns of a conversation do.
//
// Thread rule: one thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "generation/engine.h"

namespace meshwright::cli {

class PageWriter {
 public:
  // REQUIRES limits as those of generation::Engine. Behind `steps` nobody else writes pages.
  PageWriter(const generation::BatchLimits& limits, generation::StepLogits steps);

  // Errors: those of generation::Engine; the next text is read from its beginning then.
  Result<generation::Written> Write(const generation::Request& request,
                                    const generation::OnToken& on_token);

 private:
  const generation::BatchLimits limits_;
  const generation::StepLogits steps_;
  std::optional<generation::Engine> engine_;
};

}  // namespace meshwright::cli
