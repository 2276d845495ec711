#include "tokenizer/decoder.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

using Loaded = Result<std::shared_ptr<const Decoder>>;

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::unique_ptr<DecodeStage> Start(DecodeOptions /*how*/, FragmentSink& next) const override {
    return std::make_unique<Stage>(*this, next);
  }

 private:
  class Stage final : public DecodeStage {
   public:
    Stage(const ReplaceDecoder& of, FragmentSink& next) : DecodeStage(next), of_(of) {}
    void Put(Fragment fragment) override {
      Text text = {std::string(fragment.text), 0};
      // A pattern that gives up leaves the token as it is.
      const Status replaced = ReplaceAll(of_.pattern_, of_.content_, text);
      next().Put({replaced.ok() ? std::string_view(text.bytes) : fragment.text, fragment.begins});
    }
    void End() override { next().End(); }

   private:
    const ReplaceDecoder& of_;
  };

  const Regex pattern_;
  const std::string content_;
};

class SpacedDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> Start(DecodeOptions /*how*/, FragmentSink& next) const override {
    return std::make_unique<Stage>(next);
  }

 private:
  class Stage final : public DecodeStage {
   public:
    explicit Stage(FragmentSink& next) : DecodeStage(next) {}
    void Put(Fragment fragment) override {
      if (begun_) next().Put({" ", true});
      begun_ = true;
      next().Put(fragment);
    }
    void End() override { next().End(); }

   private:
    bool begun_ = false;
  };
};

Loaded LoadBpe(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(std::string suffix, node.Text("suffix"));
  return BpeDecoder(std::move(suffix));
}

Loaded LoadCtc(const JsonNode& node) {
  CtcOptions options;
  MW_ASSIGN_OR_RETURN(options.pad, node.Text("pad_token"));
  MW_ASSIGN_OR_RETURN(options.delimiter, node.Text("word_delimiter_token"));
  MW_ASSIGN_OR_RETURN(options.cleanup, node.Bool("cleanup"));
  return CtcDecoder(std::move(options));
}

Loaded LoadMetaspaceDecoder(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(MetaspaceOptions options, LoadMetaspace(node));
  return MetaspaceDecoder(std::move(options.replacement), options.prepend != PrependScheme::kNever);
}

Loaded LoadReplace(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(Regex pattern, LoadPattern(node));
  MW_ASSIGN_OR_RETURN(std::string content, node.Text("content"));
  return std::make_shared<const ReplaceDecoder>(std::move(pattern), std::move(content));
}

Loaded LoadStrip(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(std::string content, node.Text("content"));
  if (content.empty() || CharacterBytes(content[0]) != content.size()) {
    return Fail(node.Wrong(fmt::format("content is '{}', not one character", content)));
  }
  MW_ASSIGN_OR_RETURN(const int64_t start, node.Int("start"));
  MW_ASSIGN_OR_RETURN(const int64_t stop, node.Int("stop"));
  if (start < 0 || stop < 0) return Fail(node.Wrong("start or stop is below 0"));
  return StripDecoder(std::move(content), static_cast<size_t>(start), static_cast<size_t>(stop));
}

Loaded LoadWordPiece(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(std::string prefix, node.Text("prefix"));
  MW_ASSIGN_OR_RETURN(const bool cleanup, node.Bool("cleanup"));
  return WordPieceDecoder(std::move(prefix), cleanup);
}

struct Row {
  std::string_view type;
  Loaded (*load)(const JsonNode& node);
};

constexpr std::array<Row, 9> kRows = {{
    {"BPEDecoder", LoadBpe},
    {"ByteFallback", [](const JsonNode&) -> Loaded { return ByteFallbackDecoder({}); }},
    {"ByteLevel", [](const JsonNode&) -> Loaded { return ByteLevelDecoder(); }},
    {"CTC", LoadCtc},
    {"Fuse", [](const JsonNode&) -> Loaded { return FuseDecoder(); }},
    {"Metaspace", LoadMetaspaceDecoder},
    {"Replace", LoadReplace},
    {"Strip", LoadStrip},
    {"WordPiece", LoadWordPiece},
}};

Status AddDecoders(const JsonNode& node, Decoders& decoders) {
  MW_ASSIGN_OR_RETURN(const std::string type, node.Text("type"));
  if (type == "Sequence") {
    MW_ASSIGN_OR_RETURN(const JsonNode list, node.Member("decoders"));
    MW_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.AsList());
    for (const JsonNode& item : items) MW_TRY(AddDecoders(item, decoders));
    return OkStatus();
  }
  std::vector<std::string> names = {"Sequence"};
  for (const Row& row : kRows) {
    names.emplace_back(row.type);
    if (row.type != type) continue;
    MW_ASSIGN_OR_RETURN(auto decoder, row.load(node));
    decoders.push_back(std::move(decoder));
    return OkStatus();
  }
  return node.Wrong(fmt::format("unknown decoder '{}'{}; known: {}", type, DidYouMean(type, names),
                                Join(names, ", ")));
}

}  // namespace

Result<Decoders> LoadDecoders(const JsonNode& node) {
  Decoders listed;
  MW_TRY(AddDecoders(node, listed));
  // Behind one that joins, those that look at whole tokens get them.
  Decoders decoders;
  bool fragments = false;
  for (auto& decoder : listed) {
    if (fragments && !decoder->takes_fragments()) {
      decoders.push_back(WholeTokens());
      fragments = false;
    }
    fragments = fragments || decoder->joins();
    decoders.push_back(std::move(decoder));
  }
  return decoders;
}

Decoders SpacedTokens() { return {std::make_shared<const SpacedDecoder>()}; }

class DecodeRun::Output final : public FragmentSink {
 public:
  void Put(Fragment fragment) override { text_ += fragment.text; }
  void End() override {}
  std::string Take() { return std::exchange(text_, std::string()); }

 private:
  std::string text_;
};

DecodeRun::DecodeRun(const Decoders& decoders, DecodeOptions options)
    : output_(std::make_unique<Output>()) {
  FragmentSink* next = output_.get();
  for (size_t i = decoders.size(); i-- > 0;) {
    stages_.push_back(decoders[i]->Start(options, *next));
    next = stages_.back().get();
  }
}
DecodeRun::~DecodeRun() = default;
DecodeRun::DecodeRun(DecodeRun&&) noexcept = default;
DecodeRun& DecodeRun::operator=(DecodeRun&&) noexcept = default;

void DecodeRun::Put(std::string_view token) {
  if (stages_.empty()) return output_->Put({token, true});
  stages_.back()->Put({token, true});
}

void DecodeRun::End() {
  if (!stages_.empty()) stages_.back()->End();
}

std::string DecodeRun::Take() { return output_->Take(); }

}  // namespace meshwright::tokenizer
