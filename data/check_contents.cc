#include "data/check_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/utf8.h"
#include "data/convert.h"
#include "data/counts.h"
#include "data/file_set.h"
#include "data/roots.h"

namespace meshwright::data {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t kOverlapBytes = 16;
constexpr const char* kLabels = "labels";
constexpr int64_t kNotCounted = -100;  // a label that the loss leaves out

// Up to 3 bytes of a character that began before.
size_t Continuation(std::string_view text) {
  size_t skipped = 0;
  while (skipped < 3 && skipped < text.size() &&
         (static_cast<unsigned char>(text[skipped]) & 0xC0) == 0x80) {
    ++skipped;
  }
  return skipped;
}

// Checks one block of a file.
class BlockCheck {
 public:
  BlockCheck(const ir::DataField& field, const ContentRules& rules, const MappedFile& file,
             const ir::DataSlice& slice)
      : field_(field), rules_(rules), file_(file), slice_(slice) {}

  // Tokens [first, first + count) of the slice.
  Status Run(int64_t first, int64_t count) const {
    MW_TRY(file_.Check());
    if (rules_.text) MW_TRY(CheckText(first, count));
    return CheckTokens(BytesOf(first, count), first, count);
  }

 private:
  std::span<const std::byte> BytesOf(int64_t first, int64_t count) const {
    MW_CHECK(first >= 0 && count >= 0 && first + count <= slice_.items)
        << "tokens " << first << "+" << count << " of " << slice_.items;
    const int64_t item_bytes = field_.item_bytes();
    return file_.bytes().subspan(static_cast<size_t>(slice_.begin_bytes + first * item_bytes),
                                 static_cast<size_t>(count * item_bytes));
  }

  // A character may lie over the border of two blocks: this one looks a little further, the next
  // one leaves out what cannot begin a character.
  Status CheckText(int64_t first, int64_t count) const {
    const int64_t seen = std::min(count + kOverlapBytes, slice_.items - first);
    const std::span<const std::byte> bytes = BytesOf(first, seen);
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const size_t skipped = first == 0 ? 0 : Continuation(text);
    text.remove_prefix(skipped);
    if (first + seen < slice_.items) text = TruncateUtf8(text, text.size() - 3);
    const int64_t invalid = FindInvalidUtf8(text);
    if (invalid < 0) return OkStatus();
    return InvalidArgument(
        fmt::format("token file {} is not UTF-8 text: invalid sequence at byte offset {} "
                    "(0x{:02x}); convert it "
                    "to UTF-8 or use format uint16 or uint32",
                    file_.name(), first + static_cast<int64_t>(skipped) + invalid,
                    static_cast<unsigned char>(text[static_cast<size_t>(invalid)])));
  }

  Status CheckTokens(std::span<const std::byte> bytes, int64_t first, int64_t count) const {
    const bool is_signed =
        field_.element == ir::Element::kI16 || field_.element == ir::Element::kI32 ||
        field_.element == ir::Element::kI64 || field_.element == ir::Element::kI8;
    const int64_t values = int64_t{1} << std::min<int64_t>(62, 8 * field_.item_bytes());
    if (rules_.vocabulary == 0 || (!is_signed && rules_.vocabulary >= values)) return OkStatus();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = WholeNumberAt(field_.element, bytes.data(), i);
      if (token >= 0 && token < rules_.vocabulary) continue;
      if (token == kNotCounted && field_.name == kLabels) continue;
      return InvalidArgument(
          fmt::format("token file {}: token {} at position {} is outside the vocabulary of "
                      "{}: tokenizer and model are not of one another, or the vocab_size of the "
                      "model is too small",
                      file_.name(), token, first + i, rules_.vocabulary));
    }
    return OkStatus();
  }

  const ir::DataField& field_;
  const ContentRules& rules_;
  const MappedFile& file_;
  const ir::DataSlice& slice_;
};

// Blocks that lie evenly over the slice; all of it when its share is that large.
Status CheckSlice(const BlockCheck& check, const ir::DataSlice& slice, int64_t item_bytes,
                  double share) {
  const int64_t block = kBlockBytes / item_bytes;
  MW_CHECK(block > 0) << "items of " << item_bytes << " bytes";
  const int64_t blocks = (slice.items + block - 1) / block;
  const auto wanted = static_cast<int64_t>(static_cast<double>(blocks) * share) + 1;
  const int64_t checked = std::min(blocks, wanted);
  for (int64_t i = 0; i < checked; ++i) {
    const int64_t at = checked == 1 ? 0 : (blocks - 1) * i / (checked - 1);
    MW_TRY(check.Run(at * block, std::min(block, slice.items - at * block)));
  }
  return OkStatus();
}

// Numbers one behind the other, whatever the dims of an item are.
ir::DataField Flat(ir::DataField field) {
  const int64_t elements = field.item_bytes() / ir::ElementBytes(field.element);
  MW_CHECK(elements >= 1) << "items of " << field.item_bytes() << " bytes";
  for (auto* slices : {&field.slices, &field.validation}) {
    for (ir::DataSlice& slice : *slices) slice.items *= elements;
  }
  field.item.clear();
  return field;
}

// Whether its numbers are tokens: of records, those that a language model reads (client/trainer.h).
bool HasTokens(const ir::DataStream& stream, const ir::DataField& field) {
  if (stream.kind == ir::DataKind::kTokens) return true;
  const bool whole = field.element != ir::Element::kBool && field.element <= ir::Element::kI64;
  return whole && (field.name == "tokens" || field.name == kLabels);
}

Status CheckField(const ir::DataStream& stream, const ir::DataField& field,
                  const ContentRules& rules) {
  double total = 0;
  for (const ir::FileRef& file : stream.files) total += static_cast<double>(file.blob.size_bytes);
  const double share = static_cast<double>(rules.limit_bytes) / std::max(total, 1.0);
  MW_ASSIGN_OR_RETURN(const auto files, FileSet::Open(stream.files, OpenLocal));
  for (const auto* slices : {&field.slices, &field.validation}) {
    for (const ir::DataSlice& slice : *slices) {
      MW_ASSIGN_OR_RETURN(const auto map, files->Get(static_cast<size_t>(slice.file)));
      const BlockCheck check(field, rules, *map, slice);
      MW_TRY(CheckSlice(check, slice, field.item_bytes(), share));
    }
  }
  return OkStatus();
}

}  // namespace

int64_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word = 0;
    if (text.size() - i >= sizeof(word)) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & kHighBits) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0) return static_cast<int64_t>(i);
    i += length;
  }
  return -1;
}

Status CheckContents(const ir::DataStream& stream, const ContentRules& rules) {
  MW_TRY(CheckEnough(stream, rules.sequence));
  for (const ir::DataField& field : stream.fields) {
    if (HasTokens(stream, field)) MW_TRY(CheckField(stream, Flat(field), rules));
  }
  return OkStatus();
}

}  // namespace meshwright::data
