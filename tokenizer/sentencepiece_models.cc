#include "tokenizer/sentencepiece_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>

#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

using File = std::shared_ptr<const SentencePieceFile>;

// Whether a text is looked for among these pieces when it is cut.
bool IsMade(PieceKind kind) {
  return kind == PieceKind::kNormal || kind == PieceKind::kUserDefined ||
         kind == PieceKind::kUnused;
}

// What both models have: pieces by text, and how those that are unknown are written.
class SentencePieceBase : public Model {
 public:
  explicit SentencePieceBase(File file) : file_(std::move(file)) {
    size_t bytes = 0;
    for (const SentencePiece& piece : file_->pieces) bytes += piece.text.size();
    vocabulary_.Reserve(file_->pieces.size(), bytes);
    for (uint32_t id = 0; id < file_->pieces.size(); ++id) {
      vocabulary_.Add(file_->pieces[id].text, id);
    }
    if (!file_->byte_fallback) return;
    for (size_t byte = 0; byte < 256; ++byte) {
      of_byte_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(file_->unknown);
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

 protected:
  // A piece of a text and its id.
  struct Cut {
    std::string_view text;
    uint32_t id = 0;
  };

  const SentencePiece& Of(uint32_t id) const { return file_->pieces[id]; }
  const SentencePieceFile& file() const { return *file_; }

  // Unknown pieces become bytes, or one unknown piece for neighbours.
  void Emit(const std::vector<Cut>& cuts, std::vector<uint32_t>& ids) const {
    bool after_unknown = false;
    for (const Cut& cut : cuts) {
      const bool unknown = cut.id == file_->unknown;
      if (unknown && file_->byte_fallback) {
        for (const char c : cut.text) ids.push_back(of_byte_[static_cast<unsigned char>(c)]);
        continue;
      }
      if (!unknown || !after_unknown) ids.push_back(cut.id);
      after_unknown = unknown;
    }
  }

 private:
  const File file_;
  Vocabulary vocabulary_;
  std::array<uint32_t, 256> of_byte_ = {};
};

// Of all ways to cut a text the one whose pieces have the largest sum of scores.
// Source: Kudo 2018, section 3.2.
class UnigramPieces final : public SentencePieceBase {
 public:
  explicit UnigramPieces(File of) : SentencePieceBase(std::move(of)) {
    float least = std::numeric_limits<float>::max();
    largest_ = std::numeric_limits<float>::min();
    for (uint32_t id = 0; id < file().pieces.size(); ++id) {
      const SentencePiece& piece = Of(id);
      if (IsMade(piece.kind)) tree_.Add(piece.text, id);
      if (piece.kind != PieceKind::kNormal) continue;
      least = std::min(least, piece.score);
      largest_ = std::max(largest_, piece.score);
    }
    unknown_score_ = least - kUnknownPenalty;
  }

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    std::vector<Step> best(piece.size() + 1);
    FindBest(piece, best);
    std::vector<Cut> cuts;
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      cuts.push_back({piece.substr(best[end].begin, end - best[end].begin), best[end].id});
    }
    std::reverse(cuts.begin(), cuts.end());
    Emit(cuts, ids);
    return OkStatus();
  }

 private:
  static constexpr float kUnknownPenalty = 10;
  static constexpr size_t kNowhere = SIZE_MAX;
  // The best way to a place of the text: its last piece. Sums are floats, whose rounding decides
  // between ways that are nearly equal.
  struct Step {
    float score = 0;
    size_t begin = kNowhere;
    uint32_t id = 0;
  };

  static void Improve(Step& step, float score, size_t begin, uint32_t id) {
    if (step.begin == kNowhere || score > step.score) step = {score, begin, id};
  }

  void FindBest(std::string_view text, std::vector<Step>& best) const {
    for (size_t at = 0; at < text.size();) {
      const size_t character = CharacterBytes(text[at]);
      const float here = best[at].score;
      bool single = false;
      tree_.ForEachPrefix(text.substr(at), [&](size_t length, uint32_t id) {
        const SentencePiece& piece = Of(id);
        if (piece.kind == PieceKind::kUnused) return;
        Improve(best[at + length], ScoreOf(piece, length) + here, at, id);
        single = single || length == character;
      });
      if (!single) Improve(best[at + character], unknown_score_ + here, at, file().unknown);
      at += character;
    }
  }

  // A user-defined piece is better than all others of its length.
  float ScoreOf(const SentencePiece& piece, size_t length) const {
    if (piece.kind != PieceKind::kUserDefined) return piece.score;
    return static_cast<float>(length) * largest_ - 0.1f;
  }

  PrefixTree tree_;
  float largest_ = 0;
  float unknown_score_ = 0;
};

// Again and again the neighbours that make the piece with the highest score become one, the
// leftmost ones where several make it.
class BpePieces final : public SentencePieceBase {
 public:
  BpePieces(File of, std::shared_ptr<const SentencePieceNormalizer> normalizer)
      : SentencePieceBase(std::move(of)), normalizer_(std::move(normalizer)) {}

  Status Tokenize(std::string_view piece, std::vector<uint32_t>& ids) const override {
    Run run(*this, piece);
    run.Merge();
    Emit(run.Cuts(), ids);
    return OkStatus();
  }

 private:
  std::optional<uint32_t> FindMade(std::string_view text) const {
    const auto id = vocabulary().Find(text);
    return id && IsMade(Of(*id).kind) ? id : std::nullopt;
  }

  class Run {
   public:
    Run(const BpePieces& of, std::string_view text) : of_(of) {
      while (!text.empty()) {
        const size_t user_defined = of_.normalizer_->UserDefinedAt(text);
        const size_t bytes = user_defined > 0 ? user_defined : CharacterBytes(text[0]);
        const size_t index = symbols_.size();
        symbols_.push_back({text.substr(0, bytes), index - 1, index + 1, user_defined > 0});
        text.remove_prefix(bytes);
      }
      if (!symbols_.empty()) symbols_.back().next = kNone;
      for (size_t i = 1; i < symbols_.size(); ++i) Offer(i - 1, i);
    }

    void Merge() {
      while (!queue_.empty()) {
        const Candidate best = queue_.top();
        queue_.pop();
        Symbol& left = symbols_[best.left];
        Symbol& right = symbols_[best.right];
        // One of them is part of another merge by now.
        if (left.text.empty() || right.text.empty() ||
            left.text.size() + right.text.size() != best.bytes) {
          continue;
        }
        left.text = Joined(left.text, right.text);
        left.next = right.next;
        if (right.next != kNone) symbols_[right.next].previous = best.left;
        right.text = {};
        if (left.previous != kNone) Offer(left.previous, best.left);
        if (left.next != kNone) Offer(best.left, left.next);
      }
    }

    std::vector<Cut> Cuts() const {
      std::vector<Cut> cuts;
      for (size_t at = symbols_.empty() ? kNone : 0; at != kNone; at = symbols_[at].next) {
        TakeApart(symbols_[at].text, cuts);
      }
      return cuts;
    }

   private:
    static constexpr size_t kNone = SIZE_MAX;
    struct Symbol {
      std::string_view text;  // empty: merged into its left neighbour
      size_t previous = kNone;
      size_t next = kNone;
      bool frozen = false;
    };
    struct Candidate {
      float score = 0;
      size_t left = 0;
      size_t right = 0;
      size_t bytes = 0;
      bool operator<(const Candidate& other) const {
        return score != other.score ? score < other.score : left > other.left;
      }
    };

    static std::string_view Joined(std::string_view left, std::string_view right) {
      return {left.data(), left.size() + right.size()};
    }

    void Offer(size_t left, size_t right) {
      const Symbol& a = symbols_[left];
      const Symbol& b = symbols_[right];
      if (a.frozen || b.frozen) return;
      const std::string_view text = Joined(a.text, b.text);
      const auto id = of_.FindMade(text);
      if (!id) return;
      queue_.push({of_.Of(*id).score, left, right, text.size()});
      if (of_.Of(*id).kind == PieceKind::kUnused) parts_[text] = {a.text, b.text};
    }

    // An unused piece is what it was merged of.
    void TakeApart(std::string_view text, std::vector<Cut>& cuts) const {
      std::vector<std::string_view> waiting = {text};
      while (!waiting.empty()) {
        const std::string_view part = waiting.back();
        waiting.pop_back();
        const uint32_t id = of_.vocabulary().Find(part).value_or(of_.file().unknown);
        const auto parts = of_.Of(id).kind == PieceKind::kUnused ? parts_.find(part) : parts_.end();
        if (parts == parts_.end()) {
          cuts.push_back({part, id});
        } else {
          waiting.push_back(parts->second[1]);
          waiting.push_back(parts->second[0]);
        }
      }
    }

    const BpePieces& of_;
    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> queue_;
    std::map<std::string_view, std::array<std::string_view, 2>> parts_;
  };

  const std::shared_ptr<const SentencePieceNormalizer> normalizer_;
};

}  // namespace

std::shared_ptr<const Model> MakeSentencePieceModel(
    File file, std::shared_ptr<const SentencePieceNormalizer> normalizer) {
  if (file->model == SentencePieceModel::kUnigram) {
    return std::make_shared<const UnigramPieces>(std::move(file));
  }
  return std::make_shared<const BpePieces>(std::move(file), std::move(normalizer));
}

}  // namespace meshwright::tokenizer
