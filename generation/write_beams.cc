#include "generation/write_beams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "generation/page_pool.h"

namespace meshwright::generation {
namespace {

struct Beam {
  std::vector<int32_t> text;
  std::vector<int32_t> pages;
  int64_t computed = 0;

  int64_t left() const { return static_cast<int64_t>(text.size()) - computed; }
};

// The beams of a search in their pages; the row of a beam is its place among them.
class BeamPages {
 public:
  BeamPages(const BatchLimits& limits, const StepLogits& steps, const Request& request)
      : limits_(limits),
        steps_(steps),
        source_(request.source),
        pool_(limits.pages, limits.page_tokens) {
    beams_.push_back({request.prompt, {}, 0});
  }

  // Before any beam: a source for each of the rows.
  Status ReadSources(int64_t rows) {
    for (int64_t row = 0; row < rows && !source_.empty(); ++row) {
      Batch batch = Empty();
      batch.source = {static_cast<int32_t>(row), source_};
      MW_TRY(steps_(batch));
    }
    return OkStatus();
  }

  // The logits behind each beam.
  Result<std::vector<std::vector<double>>> Compute() {
    std::vector<std::vector<double>> logits(beams_.size());
    while (true) {
      const Batch batch = Next();
      if (batch.tokens.empty()) return logits;
      MW_ASSIGN_OR_RETURN(StepAnswer answer, steps_(batch));
      auto& found = std::get<std::vector<std::vector<double>>>(answer);
      MW_CHECK(found.size() == batch.wanted.size())
          << found.size() << " logits for " << batch.wanted.size() << " beams";
      for (size_t i = 0; i < found.size(); ++i) {
        MW_TRY(CheckLogits(found[i]));
        logits[static_cast<size_t>(batch.wanted[i].id)] = std::move(found[i]);
      }
    }
  }

  // REQUIRES that all beams were computed.
  void GoOn(const std::vector<BeamStep>& steps) {
    std::vector<Beam> next;
    std::vector<bool> has_child(beams_.size(), false);
    for (const BeamStep& step : steps) {
      const auto parent = static_cast<size_t>(step.parent);
      MW_CHECK(beams_[parent].left() == 0) << "beam " << parent << " was not computed";
      Beam child = beams_[parent];
      child.text.push_back(step.token);
      if (has_child[parent]) {
        child.pages.resize(static_cast<size_t>(child.computed / limits_.page_tokens));
        child.computed = static_cast<int64_t>(child.pages.size()) * limits_.page_tokens;
      }
      has_child[parent] = true;
      pool_.Hold(child.pages);
      next.push_back(std::move(child));
    }
    for (const Beam& beam : beams_) pool_.Release(beam.pages);
    beams_ = std::move(next);
  }

 private:
  Batch Empty() const {
    Batch batch;
    batch.table.resize(static_cast<size_t>(limits_.texts * limits_.text_pages()));
    if (limits_.source_positions == 0) return batch;
    batch.source_ends.assign(static_cast<size_t>(limits_.texts),
                             static_cast<int32_t>(source_.size()) - 1);
    return batch;
  }

  // As many tokens as a step takes, of the beams that have some left.
  Batch Next() {
    Batch batch = Empty();
    int64_t budget = limits_.tokens;
    for (size_t row = 0; row < beams_.size(); ++row) {
      Beam& beam = beams_[row];
      const int64_t count = std::min(beam.left(), budget);
      budget -= count;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t position = beam.computed++;
        batch.tokens.push_back({beam.text[static_cast<size_t>(position)], static_cast<int32_t>(row),
                                static_cast<int32_t>(position)});
      }
      if (count > 0 && beam.left() == 0) {
        const auto last = static_cast<int64_t>(batch.tokens.size()) - 1;
        batch.wanted.push_back({static_cast<int64_t>(row), last});
      }
      const auto pages = static_cast<size_t>(limits_.PagesOf(beam.computed));
      while (beam.pages.size() < pages) beam.pages.push_back(pool_.Take());
      std::copy(beam.pages.begin(), beam.pages.end(),
                batch.table.begin() + static_cast<int64_t>(row) * limits_.text_pages());
    }
    return batch;
  }

  const BatchLimits& limits_;
  const StepLogits& steps_;
  const std::vector<int32_t> source_;
  PagePool pool_;
  std::vector<Beam> beams_;
};

// Whether all beams find room, each with a text of so many computed tokens.
Status CheckRoom(const BatchLimits& limits, const Request& request, int64_t beams,
                 int64_t computed) {
  if (beams > limits.texts) {
    return InvalidArgument(
        fmt::format("{} beams, and a step has {} texts; use fewer beams", beams, limits.texts));
  }
  MW_TRY(limits.CheckFits(computed));
  MW_TRY(limits.CheckSource(static_cast<int64_t>(request.source.size())));
  const int64_t shared = static_cast<int64_t>(request.prompt.size()) / limits.page_tokens;
  const int64_t pages = shared + beams * (limits.PagesOf(computed) - shared);
  if (pages <= limits.pages) return OkStatus();
  return ResourceExhausted(fmt::format("{} beams of up to {} tokens need {} pages; there are {}",
                                       beams, computed, pages, limits.pages));
}

}  // namespace

Result<std::vector<Hypothesis>> WriteBeams(const BatchLimits& limits, const StepLogits& steps,
                                           const Request& request, const BeamOptions& options) {
  MW_TRY(CheckBeams(options));
  MW_TRY(CheckSampling(request.sampling));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) {
    return Fail(InvalidArgument("the prompt has no token: give a text to go on from"));
  }
  if (request.sampling.draws) {
    return Fail(InvalidArgument("beams draw no tokens; leave out how to draw, or num_beams"));
  }
  if (prompt > limits.positions) {
    return Fail(InvalidArgument(
        fmt::format("the prompt has {} tokens, and the model has {} positions: shorten the prompt",
                    prompt, limits.positions)));
  }
  // The last token of a text is never computed.
  const int64_t longest = LongestOf(request, limits.positions);
  if (longest < 1) return Fail(InvalidArgument("max_new_tokens is below 1"));
  MW_TRY(CheckRoom(limits, request, options.beams, prompt + longest - 1));
  BeamSearch search(request, options, longest);
  BeamPages pages(limits, steps, request);
  MW_TRY(pages.ReadSources(options.beams));
  while (true) {
    MW_ASSIGN_OR_RETURN(const auto logits, pages.Compute());
    const std::vector<BeamStep> next = search.Take(logits);
    if (next.empty()) return search.best();
    pages.GoOn(next);
  }
}

}  // namespace meshwright::generation
