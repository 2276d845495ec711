// Which tokens of which texts are computed next, and in which pages they are kept: a queue of texts
// that join and leave a running batch between steps.
//
//   waiting --admitted, in the order of arrival--> running --Remove--> gone
//      ^----------- preempted: the pages are needed ----'
//
// Idea: a text is tokens of which the first `computed` are in its pages. A step computes one token
// of every running text that has one left, and of texts that have more (a new prompt) as many as
// the budget of tokens allows: long prompts come in pieces and hold nobody up. Running texts come
// before waiting ones. One that needs a page when there is none takes the pages of the text that
// arrived last, which goes back to the front of the queue and is computed again later. A text is
// admitted when there are pages for all of it and `spare_pages` more, so that those who run are not
// thrown out at once. Full pages that hold its beginning already (generation/page_pool.h) are not
// computed again; its last token always is, since its logits are wanted.
//
// Where texts have sources, one of them is read in a step, so one text joins in it; a text that
// gave its place back has its source read again when it comes back.
//
// Pure: values in, values out; what came of the tokens is told by Took(). Thread rule: one thread.
// Source: Orca, OSDI'22 (iterations); vLLM, SOSP'23 (pages); Sarathi, OSDI'24 (pieces of prompts).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "generation/page_pool.h"

namespace meshwright::generation {

struct BatchLimits {
  int64_t pages = 1;
  int64_t page_tokens = 16;
  int64_t texts = 1;      // in a step
  int64_t positions = 1;  // of a text
  int64_t tokens = 1;     // in a step; at least `texts`
  int64_t spare_pages = 0;
  int64_t source_positions = 0;  // of a text's source; 0: texts have none

  int64_t text_pages() const { return (positions + page_tokens - 1) / page_tokens; }
  int64_t PagesOf(int64_t tokens_of_text) const {
    return (tokens_of_text + page_tokens - 1) / page_tokens;
  }
  // Whether a text of so many tokens can be computed. Errors: kResourceExhausted.
  Status CheckFits(int64_t tokens_of_text) const;
  // Whether a source of so many tokens can be read; 0: there is none. Errors: kInvalidArgument.
  Status CheckSource(int64_t tokens_of_source) const;
};

struct BatchToken {
  int32_t token = 0;
  int32_t row = 0;  // of the table
  int32_t position = 0;
  friend bool operator==(const BatchToken&, const BatchToken&) = default;
};

// Whose next token the logits behind a token of the batch decide.
struct WantedToken {
  int64_t id = 0;
  int64_t place = 0;  // in Batch::tokens
  friend bool operator==(const WantedToken&, const WantedToken&) = default;
};

// What an encoder is to read for a row of the table.
struct BatchSource {
  int32_t row = 0;
  std::vector<int32_t> tokens;
};

struct Batch {
  std::vector<BatchToken> tokens;
  std::vector<WantedToken> wanted;
  bool likeliest = false;      // of what is wanted only the likeliest next token
  std::vector<int32_t> table;  // [texts, text_pages], 0 where a text has no page
  // Where texts have sources: of the text that came into the batch, and of each row the last
  // position of its source.
  std::optional<BatchSource> source;
  std::vector<int32_t> source_ends;
};

// What a scheduler knows of a text.
struct ScheduledText {
  std::vector<int32_t> tokens;
  int64_t computed = 0;
  int32_t row = -1;  // of the table; -1: it waits
  TextPages pages;
  std::vector<int32_t> source;

  int64_t left() const { return static_cast<int64_t>(tokens.size()) - computed; }
};

class Scheduler {
 public:
  // REQUIRES limits of at least 1, and tokens >= texts.
  explicit Scheduler(const BatchLimits& limits);

  // longest: how many tokens the text may grow to. Errors: kInvalidArgument: an empty text, one
  // that is known, a source too many, too few or too long; kResourceExhausted: it could never be
  // computed, with what there is.
  Status Add(int64_t id, std::vector<int32_t> text, int64_t longest,
             std::vector<int32_t> source = {});
  // The text is gone, in whatever state; an unknown one is passed over.
  void Remove(int64_t id);
  // What is computed next; no tokens: there is nothing to do. REQUIRES that of all texts that were
  // wanted before, Took() or Remove() was called.
  Batch Next();
  // The next token of a text that was wanted.
  void Took(int64_t id, int32_t token);

  bool idle() const { return texts_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t free_pages() const { return pool_.free(); }
  int64_t preemptions() const { return preemptions_; }
  int64_t found_tokens() const { return found_tokens_; }  // that were not computed again

 private:
  using Text = ScheduledText;

  Text& Of(int64_t id);
  // Pages for the first `tokens` of the text, as others must give them; false: it gave its own.
  bool TakePages(int64_t id, int64_t tokens);
  void FreePages(Text& text);
  void Preempt(int64_t id);
  bool Admit(Batch& batch);
  void Schedule(int64_t id, int64_t count, Batch& batch);
  int64_t PromisedPages() const;
  void FillTable(Batch& batch) const;

  const BatchLimits limits_;
  std::map<int64_t, Text> texts_;
  std::deque<int64_t> waiting_;
  std::vector<int64_t> running_;  // by arrival
  PagePool pool_;
  std::vector<int32_t> free_rows_;
  int64_t preemptions_ = 0;
  int64_t found_tokens_ = 0;
};

}  // namespace meshwright::generation
