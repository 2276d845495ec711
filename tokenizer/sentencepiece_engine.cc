// tokenizer.model, run by SentencePiece's library.
//
// Such a file does not say which tokens go around a text, so none are added.
#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "tokenizer/engine.h"
#include "tokenizer/vocabulary.h"

namespace meshwright::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

class SentencePieceEngine final : public Tokenizer::Engine {
 public:
  using Processor = sentencepiece::SentencePieceProcessor;

  explicit SentencePieceEngine(std::unique_ptr<Processor> processor)
      : processor_(std::move(processor)) {
    std::string text;
    const std::vector<std::string> probe = {std::string(kSpaceMark) + "a"};
    const bool drops_first = processor_->Decode(probe, &text).ok() && text == "a";
    if (processor_->unk_id() >= 0) {
      const std::vector<int> unknown = {processor_->unk_id()};
      if (processor_->Decode(unknown, &text).ok()) unknown_ = text;
    }
    decoders_ = {ByteFallbackDecoder({.whole_runs = false}), FuseDecoder(),
                 MetaspaceDecoder(std::string(kSpaceMark), false)};
    if (drops_first) decoders_.push_back(StripDecoder(" ", 1, 0));
  }

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_->Encode(text, &ids);
    if (!status.ok())
      return Fail(InvalidArgument(fmt::format("SentencePiece: {}", status.message())));
    return std::vector<uint32_t>(ids.begin(), ids.end());
  }

  Status PostProcess(std::vector<TypedIds>& /*parts*/, bool /*special*/) const override {
    return OkStatus();
  }

  std::optional<uint32_t> IdOf(std::string_view token) const override {
    const int id = processor_->PieceToId(token);
    if (id < 0 || processor_->IdToPiece(id) != token) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  std::optional<std::string> TokenOf(uint32_t id) const override {
    if (id >= id_end()) return std::nullopt;
    return processor_->IdToPiece(static_cast<int>(id));
  }

  bool IsSpecial(uint32_t id) const override {
    return id < id_end() && (processor_->IsControl(static_cast<int>(id)) ||
                             processor_->IsUnknown(static_cast<int>(id)));
  }

  uint32_t id_end() const override { return static_cast<uint32_t>(processor_->GetPieceSize()); }

  // The library shows an unknown token, and no control token.
  std::optional<std::string> DecodedText(uint32_t id, bool skip_special) const override {
    if (id >= id_end()) return std::nullopt;
    if (processor_->IsUnknown(static_cast<int>(id))) return unknown_;
    if (skip_special && processor_->IsControl(static_cast<int>(id))) return std::nullopt;
    return processor_->IdToPiece(static_cast<int>(id));
  }

  const Decoders& decoders() const override { return decoders_; }

 private:
  const std::unique_ptr<const Processor> processor_;
  std::string unknown_;
  Decoders decoders_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer::Engine>> MakeSentencePieceEngine(std::string_view bytes) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(bytes);
  if (!status.ok() || processor->GetPieceSize() <= 0) {
    return Fail(InvalidArgument(
        fmt::format("this is neither a tokenizer.json nor a model of SentencePiece: {}",
                    status.ok() ? "it has no pieces" : status.message())));
  }
  return std::make_shared<const SentencePieceEngine>(std::move(processor));
}

}  // namespace meshwright::tokenizer
