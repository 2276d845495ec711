#include "cli/token_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "formats/safetensors.h"

namespace meshwright::cli {

RowPacker::RowPacker(const RowShape& shape, std::vector<bool> goes_on)
    : shape_(shape), goes_on_(std::move(goes_on)) {
  MW_CHECK(shape.tokens >= 1) << "rows of " << shape.tokens << " tokens";
  MW_CHECK(shape.words != goes_on_.empty()) << "words are told by " << goes_on_.size() << " ids";
}

void RowPacker::Add(const Document& document) {
  MW_CHECK(document.ids.size() == document.learned.size())
      << document.ids.size() << " tokens, of which " << document.learned.size() << " are marked";
  const auto most = static_cast<size_t>(shape_.tokens);
  for (size_t begin = 0; begin + 1 < document.ids.size(); begin += most) {
    AddPiece(document, begin, std::min(most, document.ids.size() - 1 - begin));
  }
}

size_t RowPacker::RowFor(size_t count) {
  const auto all = static_cast<size_t>(shape_.tokens);
  size_t row = used_.size();
  const auto at = with_room_.lower_bound({count, 0});
  if (shape_.packed && at != with_room_.end()) {
    row = at->second;
    with_room_.erase(at);
  } else {
    used_.push_back(0);
    documents_.push_back(0);
    for (std::vector<int32_t>* field : {&tokens_, &labels_, &segments_, &positions_, &words_}) {
      field->resize(field->size() + all, field == &labels_ ? kNotLearned : 0);
    }
  }
  const size_t left = all - used_[row] - count;
  if (shape_.packed && left > 0) with_room_.insert({left, row});
  return row;
}

void RowPacker::AddPiece(const Document& document, size_t begin, size_t count) {
  const auto from = document.learned.begin() + static_cast<std::ptrdiff_t>(begin + 1);
  if (std::find(from, from + static_cast<std::ptrdiff_t>(count), true) ==
      from + static_cast<std::ptrdiff_t>(count)) {
    return;
  }
  const size_t row = RowFor(count);
  const size_t place = row * static_cast<size_t>(shape_.tokens) + used_[row];
  for (size_t i = 0; i < count; ++i) {
    tokens_[place + i] = static_cast<int32_t>(document.ids[begin + i]);
    const bool learned = document.learned[begin + i + 1];
    labels_[place + i] = learned ? static_cast<int32_t>(document.ids[begin + i + 1]) : kNotLearned;
    segments_[place + i] = documents_[row];
    positions_[place + i] = static_cast<int32_t>(i);
    // A piece of a document that begins within a word begins a word.
    const uint32_t id = document.ids[begin + i];
    const bool goes_on = i > 0 && id < goes_on_.size() && goes_on_[id];
    words_[place + i] = goes_on ? words_[place + i - 1] : static_cast<int32_t>(used_[row] + i);
  }
  used_[row] += count;
  ++documents_[row];
}

void RowPacker::Pad() {
  const auto all = static_cast<size_t>(shape_.tokens);
  for (size_t row = 0; row < used_.size(); ++row) {
    const size_t begin = used_[row];
    for (size_t i = begin; i < all; ++i) {
      segments_[row * all + i] = documents_[row];
      positions_[row * all + i] = static_cast<int32_t>(i - begin);
      words_[row * all + i] = static_cast<int32_t>(i);
    }
    used_[row] = all;
  }
  with_room_.clear();
}

Status RowPacker::Write(const std::string& path) const {
  MW_CHECK(rows() > 0) << "no rows for " << path;
  const ir::TensorType type{ir::DType::kI32, {rows(), shape_.tokens}};
  std::vector<std::pair<const char*, const std::vector<int32_t>*>> fields = {{"tokens", &tokens_},
                                                                             {"labels", &labels_}};
  if (shape_.packed) {
    fields.emplace_back("segments", &segments_);
    fields.emplace_back("positions", &positions_);
  }
  if (shape_.words) fields.emplace_back("words", &words_);
  std::vector<formats::TensorSpec> specs;
  for (const auto& [name, values] : fields) specs.push_back({name, type});
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, specs));
  for (const auto& [name, values] : fields) {
    MW_TRY(writer->Write(name, 0, std::as_bytes(std::span(*values))));
  }
  return writer->Finish();
}

}  // namespace meshwright::cli
